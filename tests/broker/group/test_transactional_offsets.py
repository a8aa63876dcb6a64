"""Offsets of transactions: who may stage them, what a marker does, and what keeps them until then.

After each step the bench compares the machine's state with a replay of its log.
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


# who may stage offsets


def test_offsets_of_a_transaction_are_staged_for_a_group_that_does_not_exist() -> None:
    bench = Bench()
    assert error_of(bench, 5) is ErrorCode.NONE
    assert list(bench.machine.groups) == [GROUP]


def test_a_transactional_commit_with_a_generation_of_an_unknown_group_is_refused() -> None:
    assert error_of(Bench(), 5, generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_a_transactional_commit_without_member_fields_is_accepted_in_each_state_of_a_group() -> None:
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


def test_a_transactional_commit_of_a_member_is_checked_as_another_commit_is() -> None:
    bench = Bench()
    leader, static = bench.stable(None, "i1")
    assert error_of(bench, 5, member_id="who", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(bench, 5, member_id=leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, 5, member_id=leader, generation=2, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID
    assert error_of(bench, 5, member_id=leader) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, 5, member_id=static, generation=2, instance_id="i1") is ErrorCode.NONE


def test_a_metadata_text_that_is_too_long_refuses_its_own_partition_only() -> None:
    bench = Bench(metadata_chars_max=4)
    rows = (OffsetToCommit("orders", 0, 5, -1, "short"), OffsetToCommit("other", 0, 6, -1, "ok"))
    answered = bench.stage(0, offsets=rows).reply.rows
    assert [row.error for row in answered] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert bench.stable_error("orders") is ErrorCode.NONE
    assert bench.stable_error("other") is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert [row.error for row in bench.stage(0, 8, offsets=rows[:1]).reply.rows] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]


# what is visible


def test_staged_offsets_are_visible_only_after_the_commit_marker() -> None:
    bench = Bench()
    bench.commit_offset(1)
    bench.stage(5)
    assert bench.committed() == 1
    assert bench.stable_error() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert bench.end() is ErrorCode.NONE
    assert bench.committed(stable=True) == 5
    assert bench.stable_error() is ErrorCode.NONE


def test_an_abort_marker_drops_the_staged_offsets_of_its_producer_only() -> None:
    bench = Bench()
    bench.commit_offset(1)
    bench.stage(5, 7)
    bench.stage(6, 8, topic="other")
    bench.end(7, commit=False)
    assert bench.committed(stable=True) == 1
    assert bench.stable_error("other") is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end(8)
    assert bench.committed("other") == 6


def test_a_fetch_of_all_offsets_that_requires_stable_ones_lists_partitions_with_staged_offsets_only() -> None:
    bench = Bench()
    bench.commit_offset(1, topic="a")
    bench.stage(5, topic="b")
    rows = bench.ask(FetchOffsetsRequest(GROUP, None, require_stable=True)).reply.rows
    assert [(row.topic, row.error) for row in rows] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ]
    assert [row.topic for row in bench.ask(FetchOffsetsRequest(GROUP, None)).reply.rows] == ["a"]


def test_a_plain_commit_after_the_staging_wins_over_a_later_marker() -> None:
    bench = Bench()
    bench.stage(5)
    bench.commit_offset(9)
    bench.end()
    assert bench.committed() == 9


def test_a_marker_that_comes_late_does_not_replace_the_offset_of_a_newer_record() -> None:
    bench = Bench()
    bench.stage(5, 7)
    bench.stage(6, 8)
    bench.end(8)
    bench.end(7)
    assert bench.committed() == 6


def test_the_newest_record_wins_when_markers_come_in_the_order_of_the_records() -> None:
    bench = Bench()
    bench.stage(5, 7)
    bench.stage(6, 8)
    bench.end(7)
    assert bench.stable_error() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end(8)
    assert bench.committed() == 6


def test_the_offset_of_an_aborted_transaction_does_not_hide_an_older_committed_one() -> None:
    bench = Bench()
    bench.stage(5, 7)
    bench.stage(6, 8)
    bench.end(8, commit=False)
    bench.end(7)
    assert bench.committed() == 5


def test_a_producer_replaces_its_own_staged_offset() -> None:
    bench = Bench()
    bench.stage(5)
    bench.stage(6)
    bench.end()
    assert bench.committed() == 6


def test_a_reply_to_a_transactional_commit_waits_for_its_batch() -> None:
    bench = Bench(commits_at_once=False)
    asked = bench.stage(5)
    assert asked.is_parked
    bench.commit()
    assert asked.reply.rows[0].error is ErrorCode.NONE


def test_a_marker_is_answered_and_applied_for_clients_when_it_is_committed() -> None:
    bench = Bench()
    bench.stage(5)
    bench.commits_at_once = False
    asked = bench.ask(end_of(7))
    assert asked.is_parked
    assert bench.committed() == -1
    bench.commit()
    assert asked.error is ErrorCode.NONE
    assert bench.committed() == 5


def test_a_marker_that_a_moved_partition_refuses_is_retried_at_the_new_leader() -> None:
    bench = Bench(commits_at_once=False)
    bench.stage(5)
    asked = bench.ask(end_of(7))
    bench.move()
    assert asked.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_the_error_of_a_log_that_refuses_a_marker_reaches_its_sender(error: ErrorCode) -> None:
    bench = Bench()
    bench.refuses_appends = error
    assert bench.end() is error


def end_of(producer_id: int) -> Any:
    return MarkerRequest(producer_id, 0, 1, is_commit=True)


# what keeps staged offsets


def test_a_new_coordinator_knows_staged_offsets_and_applies_a_later_marker() -> None:
    bench = Bench()
    bench.stage(5)
    bench.move()
    assert list(bench.machine.groups) == [GROUP]
    assert bench.stable_error() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end()
    assert bench.committed() == 5


def test_a_partition_with_a_staged_offset_does_not_expire_and_neither_does_its_group() -> None:
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


def test_a_group_with_staged_offsets_only_does_not_expire() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    bench.stage(5)
    bench.sleep(RETENTION_MS)
    bench.ask(ExpireRequest(GROUP))
    assert GROUP in bench.machine.newest.groups
    bench.end(commit=False)
    bench.ask(ExpireRequest(GROUP))
    assert GROUP not in bench.machine.newest.groups


def test_a_deleted_group_loses_its_staged_offsets_and_the_marker_is_harmless() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    bench.stage(5)
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NONE
    assert GROUP not in bench.machine.groups
    assert bench.end() is ErrorCode.NONE
    assert bench.committed() == -1
    assert GROUP not in bench.machine.groups


def test_a_group_created_again_inside_a_transaction_keeps_what_was_committed_after_the_deletion() -> None:
    bench = Bench()
    bench.stage(5)
    bench.ask(DeleteRequest(GROUP))
    bench.commit_offset(2)
    bench.end()
    assert bench.committed() == 2


def test_the_deletion_of_an_offset_drops_its_staged_one() -> None:
    bench = Bench()
    bench.stage(5)
    bench.ask(OffsetDeleteRequest(GROUP, (("orders", 0),)))
    bench.end()
    assert bench.committed() == -1


def committed_id(bench: Bench, offset: int, topic_id: UUID, commit: Callable[..., Any]) -> None:
    commit(0, offsets=(OffsetToCommit("orders", 0, offset, -1, "", topic_id),))


def test_a_topic_deleted_inside_a_transaction_takes_its_staged_offsets_away() -> None:
    bench = Bench()
    committed_id(bench, 5, OLD_ID, bench.stage)
    assert bench.machine.topics_of(GROUP) == {("orders", OLD_ID)}
    bench.ask(TopicsGoneRequest(GROUP, frozenset({("orders", OLD_ID)})))
    bench.end()
    assert bench.committed() == -1


def test_a_topic_created_again_inside_a_transaction_keeps_the_staged_offset_of_the_new_topic() -> None:
    bench = Bench()
    committed_id(bench, 1, OLD_ID, bench.commit_offset)
    committed_id(bench, 5, NEW_ID, bench.stage)
    bench.ask(TopicsGoneRequest(GROUP, frozenset({("orders", OLD_ID)})))
    bench.end()
    assert bench.committed() == 5


def test_a_group_of_an_aborted_transaction_is_forgotten() -> None:
    bench = Bench()
    bench.stage(5)
    bench.end(commit=False)
    assert not bench.machine.groups


# the log as compaction leaves it


def compacted(log: list[LoggedRecord]) -> list[tuple[int, LoggedRecord]]:
    """Return the log without aborted records and without older records of a key, up to the first open transaction."""
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
def test_the_live_state_equals_the_replay_of_a_compacted_log(seed: int) -> None:
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
