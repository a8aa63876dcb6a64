"""ApiVersions: the version ranges that clients read, and the response to an unsupported version."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kraft.broker.api.table import HANDLERS
from kraft.image import events
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.docs.kafka_apis import KAFKA_APIS
from tests.stages.broker_harness import BrokerHarness
from tests.stages.images import image_of, three_brokers
from tests.stages.tables import shown_as

LISTED = {int(key): (row.min, row.newest) for key, row in KAFKA_APIS.items() if key in HANDLERS}
LISTED |= {int(ApiKey.PRODUCE): (0, 13), int(ApiKey.ADD_RAFT_VOTER): (0, 0)}
"""Apache Kafka 4.3's ranges for the APIs that have a handler, but for a version of AddRaftVoter. Produce is accepted
from 3 and shown from 0: older librdkafka looks there before it compresses."""


def ask(harness: BrokerHarness, version: int, **fields: Any) -> Any:
    if version >= 3:
        fields = {"client_software_name": "test-client", "client_software_version": "1.2.3-rc1", **fields}
    return harness.ask(ApiKey.API_VERSIONS, version, **fields)


@pytest.mark.parametrize("version", range(5))
def test_the_advertised_api_version_ranges_equal_those_of_kafka_4_3(version: int) -> None:
    response = ask(BrokerHarness(), version)
    assert response.error_code == 0
    assert {api.api_key: (api.min_version, api.max_version) for api in response.api_keys} == LISTED


def test_api_versions_lists_the_apis_sorted_by_key_whatever_the_order_of_the_table() -> None:
    with shown_as(BROKER_APIS, dict(reversed(BROKER_APIS.items()))):
        assert [api.api_key for api in ask(BrokerHarness(), 4).api_keys] == sorted(LISTED)


def test_every_advertised_api_has_a_handler_and_every_kafka_handler_is_advertised() -> None:
    assert {int(key) for key in HANDLERS if key < 10_000} == set(LISTED)


@pytest.mark.parametrize("version", [5, 9, 32767])
def test_an_unknown_api_versions_version_is_answered_in_version_0_with_error_35(version: int) -> None:
    client = BrokerHarness().connect()
    client.send_bytes(struct.pack(">ihhih", 4 + 4 + 2 + 5, 18, version, 77, -1) + b"\0\xff\xff\xff\xff")
    data = client.received()
    assert struct.unpack(">iihihhh", data) == (4 + 12, 77, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 4)
    assert client.transport.closed_for is None


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ü", "x/y"])
def test_an_invalid_client_software_name_gets_invalid_request(name: str) -> None:
    assert ask(BrokerHarness(), 3, client_software_name=name).error_code == ErrorCode.INVALID_REQUEST
    assert ask(BrokerHarness(), 4, client_software_version=name).error_code == ErrorCode.INVALID_REQUEST


def test_api_versions_returns_the_features_of_the_cluster() -> None:
    image = image_of(*three_brokers(), events.FeatureLevel("metadata.version", 27), offset=321)
    harness = BrokerHarness(image)
    response = ask(harness, 4)
    assert {f.name: f.max_version_level for f in response.finalized_features} == {"metadata.version": 27}
    assert response.finalized_features_epoch == 321
    assert "eligible.leader.replicas.version" in {f.name for f in response.supported_features}
    assert "eligible.leader.replicas.version" not in {f.name for f in ask(harness, 3).supported_features}


def test_api_versions_is_answered_repeatedly_on_one_connection() -> None:
    client = BrokerHarness().connect()
    body = messages.encode_request(18, 0, messages.build(messages.request_class(18)))
    for _ in range(3):
        client.send(18, 0, body)
    assert len(client.answers()) == 3
