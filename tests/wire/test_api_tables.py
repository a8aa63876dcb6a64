from __future__ import annotations

import kio.index
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map

from kraft.wire.api_keys import (
    BROKER_APIS,
    CLIENT_APIS,
    CONTROLLER_APIS,
    ApiKey,
    is_flexible,
    request_header_version,
    response_header_version,
)
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey
from tests.docs.kafka_apis import KAFKA_APIS


def test_a_broker_serves_the_ranges_of_kafka_4_1_or_of_a_later_release() -> None:
    assert {key: row.min for key, row in BROKER_APIS.items()} == {key: KAFKA_APIS[key].min for key in BROKER_APIS}
    for key, row in BROKER_APIS.items():
        assert row.max in (KAFKA_APIS[key].max, KAFKA_APIS[key].newest), key.name


def test_of_what_later_releases_add_one_version_alone_is_missing() -> None:
    missing = {key for key, row in BROKER_APIS.items() if row.max < KAFKA_APIS[key].newest}
    assert missing == {ApiKey.ADD_RAFT_VOTER}


def test_clients_know_what_brokers_answer_but_for_offsets_by_topic_ids() -> None:
    older = {key: CLIENT_APIS[key].max for key, row in BROKER_APIS.items() if CLIENT_APIS[key] != row}
    assert older == {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}


def test_produce_alone_is_shown_from_zero_and_accepted_from_three() -> None:
    shown = {key: row.advertised_min for key, row in BROKER_APIS.items() if row.advertised_min != row.min}
    assert shown == {ApiKey.PRODUCE: 0}
    assert 2 not in BROKER_APIS[ApiKey.PRODUCE]
    assert 3 in BROKER_APIS[ApiKey.PRODUCE]


def test_the_keys_and_their_flexible_versions_are_those_of_kafkas_schemas() -> None:
    assert {int(key): key.name.lower() for key in ApiKey} == dict(api_key_map)
    for key, name in api_key_map.items():
        for version in schema_name_map[name]:
            request = kio.index.load_request_schema(key, version)
            response = kio.index.load_response_schema(key, version)
            assert is_flexible(key, version) == request.__flexible__ == response.__flexible__
            assert request_header_version(key, version) == request.__header_schema__.__version__
            assert response_header_version(key, version) == response.__header_schema__.__version__


def test_internal_keys_are_out_of_the_way_and_have_plain_headers() -> None:
    assert min(InternalKey) >= 10000
    for key in InternalKey:
        assert (request_header_version(key, 0), response_header_version(key, 0)) == (1, 0)


def test_controllers_do_not_serve_data() -> None:
    assert not {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA} & set(CONTROLLER_APIS)


def test_error_codes_are_kafkas() -> None:
    assert {code.name.lower(): int(code) for code in ErrorCode} == {code.name: int(code) for code in KioErrorCode}


@pytest.mark.parametrize(("number", "code"), [(0, ErrorCode.NONE), (19, ErrorCode.NOT_ENOUGH_REPLICAS), (30000, -1)])
def test_an_unknown_number_reads_as_unknown_server_error(number: int, code: int) -> None:
    assert ErrorCode.of(number) == code
