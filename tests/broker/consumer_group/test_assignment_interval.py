"""The shortest time between two target assignments of a consumer group (`group.consumer.assignment.interval.ms`)."""

from __future__ import annotations

import pytest

from kraft.broker.consumer_group.epochs import is_assignment_due
from kraft.broker.consumer_group.records import TargetEpochKey
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import ConsumerGroupState
from kraft.broker.group.records import decode_entry
from kraft.wire.error_codes import ErrorCode
from tests.broker.consumer_group.consumer_bench import ConsumerBench
from tests.broker.consumer_group.migrating_clients import ClassicClient, MigratingGroup

INTERVAL_MS = 1_000


def bench_with(interval_ms: int = INTERVAL_MS) -> ConsumerBench:
    found = ConsumerGroupSettings(assignment_interval_ms=interval_ms)
    return ConsumerBench({"orders": 4}, settings_of=lambda group: found)


def size(partitions: object) -> int:
    assert isinstance(partitions, dict)
    return sum(map(len, partitions.values()))


def test_a_member_that_joins_within_the_interval_gets_partitions_after_it() -> None:
    bench = bench_with()
    assert size(bench.enter("one", "orders").assignment) == 4
    bench.sleep(INTERVAL_MS - 1)
    reply = bench.enter("two", "orders")
    assert (reply.error, reply.epoch, reply.assignment) == (ErrorCode.NONE, 1, {})
    assert bench.beat("one", 1).assignment is None
    assert bench.consumers.state is ConsumerGroupState.ASSIGNING
    bench.sleep(1)
    kept = bench.beat("one", 1).assignment
    assert size(kept) == 2
    assert bench.beat("one", 1, owned=kept).epoch == 2
    assert size(bench.beat("two", 1).assignment) == 2
    assert bench.consumers.state is ConsumerGroupState.STABLE


def test_changes_within_one_interval_are_assigned_together() -> None:
    bench = bench_with()
    bench.enter("one", "orders")
    for member in ("two", "three", "four"):
        bench.enter(member, "orders")
    bench.beat("three", -1)
    assert (bench.consumers.epoch, bench.consumers.assignment_epoch) == (5, 1)
    bench.sleep(INTERVAL_MS)
    bench.beat("two", 1)
    assert bench.consumers.assignment_epoch == 5
    entries = [decode_entry(record.key, record.value) for record in bench.log]
    assert sum(entry is not None and isinstance(entry.key, TargetEpochKey) for entry in entries) == 2
    assert {size(dict(bench.consumers.target_of(one))) for one in ("one", "two", "four")} == {1, 2}


def test_the_first_member_of_an_emptied_group_is_assigned_at_once() -> None:
    bench = bench_with()
    bench.enter("one", "orders")
    bench.beat("one", -1)
    assert size(bench.enter("two", "orders").assignment) == 4


def test_the_interval_goes_on_at_the_next_coordinator() -> None:
    bench = bench_with()
    bench.enter("one", "orders")
    bench.sleep(INTERVAL_MS - 1)
    bench.move()
    assert bench.enter("two", "orders").epoch == 1
    bench.sleep(1)
    assert bench.beat("two", 1).epoch == 2


def test_an_interval_of_zero_assigns_with_the_heartbeat_that_changes_the_group() -> None:
    bench = bench_with(0)
    bench.enter("one", "orders")
    assert bench.enter("two", "orders").epoch == 2


@pytest.mark.parametrize(
    ("assigned_ms", "is_due"),
    [(0, True), (9_000, True), (9_001, False), (10_000, False), (10_001, True)],
    ids=["never", "as old as the interval", "younger", "now", "ahead of the clock"],
)
def test_the_next_assignment_is_due_when_the_last_one_is_as_old_as_the_interval(assigned_ms: int, is_due: bool) -> None:
    assert is_assignment_due(assigned_ms, INTERVAL_MS, 10_000) is is_due


def settle_without_time(group: MigratingGroup) -> None:
    """Let all clients take steps while the clock does not advance."""
    for _ in range(12):
        for client in group.clients:
            group.step(client)


@pytest.mark.parametrize("interval_ms", [1_500, 4_500])
def test_classic_members_of_a_mixed_group_work_on_until_the_interval_is_over(interval_ms: int) -> None:
    found = ConsumerGroupSettings(assignment_interval_ms=interval_ms)
    bench = ConsumerBench(settings_of=lambda group: found)
    group = MigratingGroup(bench)
    classic = group.start(True)
    assert isinstance(classic, ClassicClient)
    group.settle()
    group.start(False)
    group.settle()
    assert group.covered == group.all_partitions
    group.start(False)
    settle_without_time(group)
    group.start(False)
    group.step(group.clients[-1])
    assert bench.heartbeat(classic.member_id, classic.epoch) is ErrorCode.NONE
    bench.sleep(interval_ms - 1)
    assert bench.heartbeat(classic.member_id, classic.epoch) is ErrorCode.NONE
    bench.sleep(1)
    assert bench.heartbeat(classic.member_id, classic.epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    group.settle()
    assert group.covered == group.all_partitions
    assert all(client.owned for client in group.clients)


def test_a_classic_member_that_joins_within_the_interval_syncs_without_a_rebalance() -> None:
    bench = bench_with(60_000)
    bench.enter("one", "orders")
    group = MigratingGroup(bench)
    classic = group.start(True)
    for _ in range(6):
        group.step(classic)
    assert isinstance(classic, ClassicClient)
    assert (classic.must_join, classic.pending, classic.epoch, classic.owned) == (False, None, 1, set())
