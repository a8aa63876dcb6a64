"""ReplicaIndex without a broker: which replica a topic name or topic id finds, and the error if there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kraft.broker.partition.replica_index import ReplicaIndex
from kraft.wire.error_codes import ErrorCode
from tests.stages.images import image_of, orders, three_brokers
from tests.stages.part_stage import replica

OLD, NEW = UUID(int=1), UUID(int=2)


def index_of(*directories: Any) -> ReplicaIndex:
    folders: Any = SimpleNamespace(all=directories)
    return ReplicaIndex(folders, lambda: image_of(*three_brokers(), *orders()))


def test_a_topic_name_finds_the_replicas_of_the_topic_that_currently_has_this_name() -> None:
    index = index_of()
    old, new = replica(topic_id=OLD), replica(topic_id=NEW)
    index.host(old)
    index.host(new)
    assert (index.find("orders", 0), index.find(OLD, 0), index.find(NEW, 0)) == (new, old, new)
    assert not index.drop(old), "the name is another topic's"
    assert list(index.of_topic("orders")) == list(index) == [new]
    assert index.drop(new)
    assert (index.find("orders", 0), len(index), list(index.of_topic(NEW))) == (None, 0, [])


def test_removing_the_last_replica_of_a_topic_removes_its_name_from_the_replica_index() -> None:
    index = index_of()
    first, last = replica(), replica(index=1)
    index.host(first)
    index.host(last)
    assert [index.drop(first), index.drop(last)] == [False, True]


def test_locating_a_partition_that_is_not_hosted_gives_its_error_code() -> None:
    index = index_of()
    index.host(replica(index=1, is_offline=True))
    assert index.locate("orders", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert index.locate("orders", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert index.locate("orders", 99) is index.locate("nowhere", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_replica_index_lists_the_open_logs_of_all_directories() -> None:
    one, other = replica(), replica(index=1)
    index = index_of(SimpleNamespace(open_logs={one: None}), SimpleNamespace(open_logs={other: None}))
    assert index.with_open_logs() == [one, other]
