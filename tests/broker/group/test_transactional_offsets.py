"""Offsets of transactions: which clients may stage them, the effect of a marker, and what keeps them until the marker.

After each step the bench compares the state machine's state with a replay of its log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.requests import (
    DeleteRequest,
    ExpireRequest,
    FetchOffsetsRequest,
    MarkerRequest,
    OffsetDeleteRequest,
    OffsetToCommit,
    TopicsGoneRequest,
)
from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import GROUP, Bench, LoggedRecord, replay

RETENTION_MS = 7 * 24 * 3_600_000
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def error_of(bench: Bench, offset: int, **fields: Any) -> ErrorCode:
    error: ErrorCode = bench.stage(offset, **fields).reply.rows[0].error
    return error


# which clients may stage offsets


def test_a_txn_offset_commit_without_a_generation_is_accepted_for_an_unknown_group() -> None:
    bench = Bench()
    assert error_of(bench, 5) is ErrorCode.NONE
    assert list(bench.machine.groups) == [GROUP]


def test_a_txn_offset_commit_with_a_generation_is_rejected_for_an_unknown_group() -> None:
    assert error_of(Bench(), 5, generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_a_txn_offset_commit_without_member_fields_is_accepted_in_every_group_state() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert error_of(bench, 5) is ErrorCode.NONE
    bench.rejoin(leader)
    assert bench.state == "PreparingRebalance"
    assert error_of(bench, 6) is ErrorCode.NONE
    bench.rejoin(follower)
    assert bench.state == "CompletingRebalance"
    assert error_of(bench, 7) is ErrorCode.NONE
    assert error_of(bench, 8, generation=bench.group.generation, member_id=follower) is ErrorCode.NONE


def test_a_txn_offset_commit_of_a_member_is_checked_for_member_id_generation_and_instance_id() -> None:
    bench = Bench()
    leader, static = bench.stable(None, "i1")
    assert error_of(bench, 5, member_id="who", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(bench, 5, member_id=leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, 5, member_id=leader, generation=2, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID
    assert error_of(bench, 5, member_id=leader) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, 5, member_id=static, generation=2, instance_id="i1") is ErrorCode.NONE


def test_a_txn_offset_commit_with_too_long_metadata_fails_only_for_that_partition() -> None:
    bench = Bench(metadata_chars_max=4)
    rows = (OffsetToCommit("orders", 0, 5, -1, "short"), OffsetToCommit("other", 0, 6, -1, "ok"))
    answered = bench.stage(0, offsets=rows).reply.rows
    assert [row.error for row in answered] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert bench.stable_error("orders") is ErrorCode.NONE
    assert bench.stable_error("other") is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert [row.error for row in bench.stage(0, 8, offsets=rows[:1]).reply.rows] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]


# which offsets are visible


def test_transactional_offsets_are_visible_only_after_the_commit_marker() -> None:
    bench = Bench()
    bench.commit_offset(1)
    bench.stage(5)
    assert bench.committed() == 1
    assert bench.stable_error() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert bench.end() is ErrorCode.NONE
    assert bench.committed(stable=True) == 5
    assert bench.stable_error() is ErrorCode.NONE


def test_an_abort_marker_drops_only_its_producers_transactional_offsets() -> None:
    bench = Bench()
    bench.commit_offset(1)
    bench.stage(5, 7)
    bench.stage(6, 8, topic="other")
    bench.end(7, commit=False)
    assert bench.committed(stable=True) == 1
    assert bench.stable_error("other") is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end(8)
    assert bench.committed("other") == 6


def test_a_fetch_of_all_stable_offsets_also_lists_partitions_that_only_have_transactional_offsets() -> None:
    bench = Bench()
    bench.commit_offset(1, topic="a")
    bench.stage(5, topic="b")
    rows = bench.ask(FetchOffsetsRequest(GROUP, None, require_stable=True)).reply.rows
    assert [(row.topic, row.error) for row in rows] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ]
    assert [row.topic for row in bench.ask(FetchOffsetsRequest(GROUP, None)).reply.rows] == ["a"]


def test_a_commit_marker_does_not_replace_an_offset_committed_after_the_transactional_offset() -> None:
    bench = Bench()
    bench.stage(5)
    bench.commit_offset(9)
    bench.end()
    assert bench.committed() == 9


def test_a_late_commit_marker_does_not_replace_an_offset_whose_record_is_newer() -> None:
    bench = Bench()
    bench.stage(5, 7)
    bench.stage(6, 8)
    bench.end(8)
    bench.end(7)
    assert bench.committed() == 6


def test_of_two_committed_transactions_the_offset_with_the_newer_record_counts() -> None:
    bench = Bench()
    bench.stage(5, 7)
    bench.stage(6, 8)
    bench.end(7)
    assert bench.stable_error() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end(8)
    assert bench.committed() == 6


def test_a_newer_aborted_transaction_does_not_hide_the_offset_of_an_older_committed_transaction() -> None:
    bench = Bench()
    bench.stage(5, 7)
    bench.stage(6, 8)
    bench.end(8, commit=False)
    bench.end(7)
    assert bench.committed() == 5


def test_a_producers_second_offset_for_a_partition_replaces_its_first_in_the_transaction() -> None:
    bench = Bench()
    bench.stage(5)
    bench.stage(6)
    bench.end()
    assert bench.committed() == 6


def test_a_txn_offset_commit_is_answered_only_when_its_batch_is_committed() -> None:
    bench = Bench(commits_at_once=False)
    asked = bench.stage(5)
    assert asked.is_parked
    bench.commit()
    assert asked.reply.rows[0].error is ErrorCode.NONE


def test_a_commit_marker_takes_effect_for_clients_when_it_is_below_the_high_watermark() -> None:
    bench = Bench()
    bench.stage(5)
    bench.commits_at_once = False
    asked = bench.ask(end_of(7))
    assert asked.is_parked
    assert bench.committed() == -1
    bench.commit()
    assert asked.error is ErrorCode.NONE
    assert bench.committed() == 5


def test_a_marker_gets_not_leader_or_follower_if_the_offsets_partition_moves_before_its_commit() -> None:
    bench = Bench(commits_at_once=False)
    bench.stage(5)
    asked = bench.ask(end_of(7))
    bench.move()
    assert asked.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_rejected_by_the_log_of_an_offsets_partition_gets_the_logs_error(error: ErrorCode) -> None:
    bench = Bench()
    bench.refuses_appends = error
    assert bench.end() is error


def end_of(producer_id: int) -> Any:
    return MarkerRequest(producer_id, 0, 1, is_commit=True)


# events before the marker: moves, expiry, deletions


def test_a_new_group_coordinator_loads_transactional_offsets_and_applies_a_later_marker() -> None:
    bench = Bench()
    bench.stage(5)
    bench.move()
    assert list(bench.machine.groups) == [GROUP]
    assert bench.stable_error() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end()
    assert bench.committed() == 5


def test_an_offset_that_an_open_transaction_may_replace_does_not_expire() -> None:
    bench = Bench()
    (only,) = bench.stable(None)
    bench.commit_offset(1, only, 1)
    bench.commit_offset(1, only, 1, topic="other")
    bench.leave(only)
    bench.stage(5)
    bench.sleep(RETENTION_MS)
    bench.ask(ExpireRequest(GROUP))
    assert (bench.committed(), bench.committed("other")) == (1, -1)
    assert GROUP in bench.machine.newest.groups
    bench.end()
    assert bench.committed() == 5


def test_a_group_with_only_transactional_offsets_does_not_expire() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    bench.stage(5)
    bench.sleep(RETENTION_MS)
    bench.ask(ExpireRequest(GROUP))
    assert GROUP in bench.machine.newest.groups
    bench.end(commit=False)
    bench.ask(ExpireRequest(GROUP))
    assert GROUP not in bench.machine.newest.groups


def test_deleting_a_group_drops_its_transactional_offsets_and_a_later_marker_has_no_effect() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    bench.stage(5)
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NONE
    assert GROUP not in bench.machine.groups
    assert bench.end() is ErrorCode.NONE
    assert bench.committed() == -1
    assert GROUP not in bench.machine.groups


def test_a_group_deleted_during_a_transaction_keeps_offsets_committed_after_the_deletion() -> None:
    bench = Bench()
    bench.stage(5)
    bench.ask(DeleteRequest(GROUP))
    bench.commit_offset(2)
    bench.end()
    assert bench.committed() == 2


def test_deleting_an_offset_also_drops_the_transactional_offset_of_its_partition() -> None:
    bench = Bench()
    bench.stage(5)
    bench.ask(OffsetDeleteRequest(GROUP, (("orders", 0),)))
    bench.end()
    assert bench.committed() == -1


def committed_id(bench: Bench, offset: int, topic_id: UUID, commit: Callable[..., Any]) -> None:
    commit(0, offsets=(OffsetToCommit("orders", 0, offset, -1, "", topic_id),))


def test_deleting_a_topic_during_a_transaction_drops_the_transactional_offsets_for_it() -> None:
    bench = Bench()
    committed_id(bench, 5, OLD_ID, bench.stage)
    assert bench.machine.topics_of(GROUP) == {("orders", OLD_ID)}
    bench.ask(TopicsGoneRequest(GROUP, frozenset({("orders", OLD_ID)})))
    bench.end()
    assert bench.committed() == -1


def test_recreating_a_topic_during_a_transaction_keeps_the_transactional_offset_for_the_new_topic() -> None:
    bench = Bench()
    committed_id(bench, 1, OLD_ID, bench.commit_offset)
    committed_id(bench, 5, NEW_ID, bench.stage)
    bench.ask(TopicsGoneRequest(GROUP, frozenset({("orders", OLD_ID)})))
    bench.end()
    assert bench.committed() == 5


def test_a_group_that_only_had_offsets_of_an_aborted_transaction_is_removed() -> None:
    bench = Bench()
    bench.stage(5)
    bench.end(commit=False)
    assert not bench.machine.groups


# a log that was compacted


def compacted(log: list[LoggedRecord]) -> list[tuple[int, LoggedRecord]]:
    """Return the log up to the first open transaction without aborted records and without older records of a key, and
    then the rest of the log unchanged."""
    open_from: dict[int, int] = {}
    aborted: set[int] = set()
    mine: dict[int, list[int]] = {}
    for offset, record in enumerate(log):
        if record.commits is not None:
            if not record.commits:
                aborted.update(mine.get(record.producer_id, ()))
            open_from.pop(record.producer_id, None)
            mine.pop(record.producer_id, None)
        elif record.producer_id >= 0:
            open_from.setdefault(record.producer_id, offset)
            mine.setdefault(record.producer_id, []).append(offset)
    limit = min(open_from.values(), default=len(log))
    newest: dict[bytes, int] = {}
    for offset, record in enumerate(log[:limit]):
        if record.commits is None and offset not in aborted:
            newest[record.key] = offset
    return [
        (offset, record)
        for offset, record in enumerate(log)
        if offset >= limit or record.commits is not None or newest.get(record.key) == offset
    ]


@pytest.mark.parametrize("seed", range(30))
def test_group_offsets_in_memory_equal_a_replay_of_the_compacted_log_under_random_transactions(seed: int) -> None:
    draw = random.Random(seed)
    bench = Bench()
    for number in range(60):
        producer, topic = draw.choice((7, 8, 9)), draw.choice(("a", "b"))
        kind = draw.random()
        if kind < 0.5:
            bench.stage(number, producer, topic=topic)
        elif kind < 0.7:
            bench.commit_offset(number, topic=topic)
        elif kind < 0.75:
            bench.ask(OffsetDeleteRequest(GROUP, ((topic, 0),)))
        elif kind < 0.8:
            bench.move()
        else:
            bench.end(producer, commit=draw.random() < 0.7)
        state = EMPTY_STATE
        for offset, record in compacted(bench.log):
            state = replay(state, [record], offset)
        assert state.offsets == bench.machine.newest.offsets
        assert state.staged.groups == bench.machine.newest.staged.groups
