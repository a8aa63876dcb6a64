"""APIs of absent features: they are answered like a Kafka broker on which the feature is off, and one log line names
the feature.
"""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kraft.broker.serving.gates import CLUSTER, Operation
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying

ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
REFUSED: list[tuple[ApiKey, dict[str, Any], str]] = [
    (ApiKey.DESCRIBE_ACLS, FILTER, "ACLs"),
    (ApiKey.CREATE_ACLS, {"creations": [ACL]}, "ACLs"),
    (ApiKey.DELETE_ACLS, {"filters": [FILTER]}, "ACLs"),
    (ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, "SASL"),
    (ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0a\0b"}, "SASL"),
]


def newest(key: ApiKey) -> int:
    return BROKER_APIS[key].max


@pytest.mark.parametrize("version", range(1, 4))
def test_acl_requests_get_security_disabled_because_there_is_no_authorizer(version: int) -> None:
    harness = BrokerHarness()
    described = harness.ask(ApiKey.DESCRIBE_ACLS, version, **FILTER)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, ())
    assert described.error_message.startswith("No Authorizer is configured on the broker")
    created = harness.ask(ApiKey.CREATE_ACLS, version, creations=[ACL, ACL]).results
    deleted = harness.ask(ApiKey.DELETE_ACLS, version, filters=[FILTER]).filter_results
    assert (len(created), len(deleted)) == (2, 1)
    for row in (*created, *deleted):
        assert row.error_code == ErrorCode.SECURITY_DISABLED
        assert row.error_message.startswith("No Authorizer is configured.")


def test_acl_requests_are_authorized_on_the_cluster_before_security_disabled_is_returned() -> None:
    denying = Denying((Operation.DESCRIBE, CLUSTER.name), (Operation.ALTER, CLUSTER.name))
    harness = BrokerHarness(authorizer=denying)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert harness.ask(ApiKey.DESCRIBE_ACLS, 3, **FILTER).error_code == refused
    assert harness.ask(ApiKey.CREATE_ACLS, 3, creations=[ACL]).results[0].error_code == refused
    assert harness.ask(ApiKey.DELETE_ACLS, 3, filters=[FILTER]).filter_results[0].error_code == refused


@pytest.mark.parametrize("version", range(2))
def test_a_sasl_handshake_on_a_plaintext_listener_gets_illegal_sasl_state_and_no_mechanisms(version: int) -> None:
    answer = BrokerHarness().ask(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())


@pytest.mark.parametrize("version", range(3))
def test_a_sasl_token_on_a_plaintext_listener_gets_illegal_sasl_state(version: int) -> None:
    answer = BrokerHarness().ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"\0a\0b")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "SASL" in answer.error_message


@pytest.mark.parametrize(("key", "fields", "missing"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_a_request_for_an_absent_feature_is_logged_once_per_client(
    key: ApiKey, fields: dict[str, Any], missing: str
) -> None:
    harness = BrokerHarness()
    with capture_logs() as logs:
        for _ in range(50):
            harness.ask(key, newest(key), **fields)
    (line,) = logs
    assert missing in line["missing"]
    assert (line["client_id"], line["client_address"], line["listener"]) == ("test", "192.0.2.7", "PLAINTEXT")


@pytest.mark.parametrize(
    "key",
    [*dict.fromkeys(key for key, _, _ in REFUSED)],
)
def test_apis_of_absent_features_are_advertised_as_in_kafka(key: ApiKey) -> None:
    harness = BrokerHarness()
    told = harness.ask(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    assert key in {row.api_key for row in told.api_keys}
