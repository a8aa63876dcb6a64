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


def test_broker_api_versions_equal_those_of_kafka_4_1_or_a_later_release() -> None:
    assert {key: row.min for key, row in BROKER_APIS.items()} == {key: KAFKA_APIS[key].min for key in BROKER_APIS}
    for key, row in BROKER_APIS.items():
        assert row.max in (KAFKA_APIS[key].max, KAFKA_APIS[key].newest), key.name


def test_only_add_raft_voter_lacks_the_newest_kafka_version() -> None:
    missing = {key for key, row in BROKER_APIS.items() if row.max < KAFKA_APIS[key].newest}
    assert missing == {ApiKey.ADD_RAFT_VOTER}


def test_client_apis_cover_broker_apis_except_offsets_by_topic_id_and_partitions_of_many_transactions() -> None:
    older = {key: CLIENT_APIS[key].max for key, row in BROKER_APIS.items() if CLIENT_APIS[key] != row}
    assert older == {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9, ApiKey.ADD_PARTITIONS_TO_TXN: 3}


def test_only_produce_is_advertised_from_version_0_and_accepted_from_version_3() -> None:
    shown = {key: row.advertised_min for key, row in BROKER_APIS.items() if row.advertised_min != row.min}
    assert shown == {ApiKey.PRODUCE: 0}
    assert 2 not in BROKER_APIS[ApiKey.PRODUCE]
    assert 3 in BROKER_APIS[ApiKey.PRODUCE]


def test_api_keys_and_flexible_versions_equal_those_of_kafkas_schemas() -> None:
    assert {int(key): key.name.lower() for key in ApiKey} == dict(api_key_map)
    for key, name in api_key_map.items():
        for version in schema_name_map[name]:
            request = kio.index.load_request_schema(key, version)
            response = kio.index.load_response_schema(key, version)
            assert is_flexible(key, version) == request.__flexible__ == response.__flexible__
            assert request_header_version(key, version) == request.__header_schema__.__version__
            assert response_header_version(key, version) == response.__header_schema__.__version__


def test_internal_api_keys_do_not_collide_with_kafkas_and_have_plain_headers() -> None:
    assert min(InternalKey) >= 10000
    for key in InternalKey:
        assert (request_header_version(key, 0), response_header_version(key, 0)) == (1, 0)


def test_controllers_do_not_serve_produce_and_fetch() -> None:
    assert not {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA} & set(CONTROLLER_APIS)


def test_error_codes_equal_kafkas() -> None:
    assert {code.name.lower(): int(code) for code in ErrorCode} == {code.name: int(code) for code in KioErrorCode}


@pytest.mark.parametrize(("number", "code"), [(0, ErrorCode.NONE), (19, ErrorCode.NOT_ENOUGH_REPLICAS), (30000, -1)])
def test_an_unknown_error_code_becomes_unknown_server_error(number: int, code: int) -> None:
    assert ErrorCode.of(number) == code
