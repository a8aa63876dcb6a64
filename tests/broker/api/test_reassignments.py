"""Reassignment requests through a broker: every version is converted to the controller's newest version and back."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.test_admin import Cluster, nested

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS


def row(index: int, *replicas: int) -> dict[str, Any]:
    return {"partition_index": index, "replicas": list(replicas)}


@pytest.mark.parametrize("version", [0, 1])
def test_partitions_are_reassigned_in_every_version_and_the_reassignment_is_listed(version: int) -> None:
    cluster = Cluster()
    before = cluster.controller.image.topics.get("orders")
    assert before is not None
    keep, gone = before.partition(0).replicas[:2]
    topic = nested(ALTER, "topics", name="orders", partitions=[row(0, keep), row(1, 9)])
    response = cluster.ask(ALTER, version, topics=[topic], timeout=5_000)
    assert (response.error_code, response.error_message) == (0, None)
    assert [(one.partition_index, one.error_code) for one in response.responses[0].partitions] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ]
    after = cluster.controller.image.topics.get("orders")
    assert after is not None
    assert after.partition(0).replicas == (keep,) or gone in after.partition(0).removing
    listed = cluster.ask(LIST, 0, topics=None, timeout=5_000)
    assert bool(listed.topics) == after.partition(0).is_reassigning


def test_a_reassignment_may_forbid_a_replication_factor_change_from_version_1_on() -> None:
    cluster = Cluster()
    topic = nested(ALTER, "topics", name="orders", partitions=[row(0, 1)])
    response = cluster.ask(ALTER, 1, topics=[topic], allow_replication_factor_change=False, timeout=5_000)
    assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert response.allow_replication_factor_change is False
