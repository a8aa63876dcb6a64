"""DescribeCluster: brokers by listener, fenced brokers on request, and endpoint types."""

from __future__ import annotations

import pytest

from kraft.broker.serving.gates import CLUSTER, Operation
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import CLUSTER_ID, BrokerHarness, Denying
from tests.stages.images import image_of, three_brokers

KEY = ApiKey.DESCRIBE_CLUSTER


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_returns_live_brokers_with_their_endpoints_on_the_clients_listener(version: int) -> None:
    response = BrokerHarness(image_of(*three_brokers())).ask(KEY, version, endpoint_type=1)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, 1)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (1, "broker-1", 9092, "a"),
        (2, "broker-2", 9092, None),
    ]
    assert response.cluster_authorized_operations == -(2**31)


def test_describe_cluster_includes_fenced_brokers_on_request() -> None:
    response = BrokerHarness(image_of(*three_brokers())).ask(KEY, 2, endpoint_type=1, include_fenced_brokers=True)
    assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, False), (3, True)]


def test_describe_cluster_for_controllers_is_rejected_by_a_broker() -> None:
    harness = BrokerHarness(image_of(*three_brokers()))
    assert harness.ask(KEY, 1, endpoint_type=2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert harness.ask(KEY, 1, endpoint_type=9).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_authorized_operations_on_the_cluster_are_returned_on_request() -> None:
    image = image_of(*three_brokers())
    harness = BrokerHarness(image, authorizer=Denying((Operation.ALTER, CLUSTER.name)))
    bits = harness.ask(
        KEY, 1, include_cluster_authorized_operations=True, endpoint_type=1
    ).cluster_authorized_operations
    assert bits >> Operation.DESCRIBE & 1
    assert not bits >> Operation.ALTER & 1
    blind = BrokerHarness(image, authorizer=Denying((Operation.DESCRIBE, CLUSTER.name)))
    assert (
        blind.ask(KEY, 1, include_cluster_authorized_operations=True, endpoint_type=1).cluster_authorized_operations
        == 0
    )
