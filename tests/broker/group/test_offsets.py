"""Tables 4.1 and 4.5, and what of an offset is told when."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.broker.group.requests import (
    DeleteRequest,
    DescribeRequest,
    ExpireRequest,
    FetchRequest,
    ListRequest,
    OffsetDeleteRequest,
    OffsetToCommit,
    Request,
    TopicsGoneRequest,
)
from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import GROUP, SESSION_MS, WALL_MS, Bench

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS
TOPIC_ID = UUID(int=7)


def error_of(bench: Bench, *arguments: object, **fields: object) -> ErrorCode:
    rows = bench.commit_offset(*arguments, **fields).reply.rows  # type: ignore[arg-type]
    error: ErrorCode = rows[0].error
    return error


# who may commit


def test_without_a_group_offsets_are_committed_by_who_claims_no_generation() -> None:
    bench = Bench()
    assert error_of(bench, 5) is ErrorCode.NONE
    assert bench.committed() == 5


@pytest.mark.parametrize(
    ("knows", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_generation_of_a_group_that_does_not_exist_is_refused(knows: bool, error: ErrorCode) -> None:
    assert error_of(Bench(), 5, "who", 1, knows_missing_groups=knows) is error


def test_an_empty_group_takes_offsets_of_an_administrator() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    assert error_of(bench, 5) is ErrorCode.NONE
    assert error_of(bench, 5, "who", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_takes_offsets_of_members_only() -> None:
    bench = Bench()
    leader, _ = bench.stable(None, "i1")
    assert error_of(bench, 5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(bench, 5, instance_id="i2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(bench, 5, leader, 1) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, 5, leader, 2) is ErrorCode.NONE


def test_a_member_commits_while_a_rebalance_is_prepared_but_not_while_it_completes() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.rejoin(leader)
    assert error_of(bench, 5, follower, 2) is ErrorCode.NONE, "commit on revoke"
    bench.rejoin(follower)
    assert error_of(bench, 6, follower, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.committed() == 5


def test_a_commit_is_a_sign_of_life() -> None:
    bench = Bench()
    (only,) = bench.stable(None)
    for _ in range(3):
        bench.sleep(SESSION_MS - 1)
        error_of(bench, 5, only, 1)
    assert only in bench.group.members


# what is written and told


def test_an_offset_is_told_only_when_it_is_committed_and_kept_even_if_the_answer_was_an_error() -> None:
    bench = Bench(commits_at_once=False)
    asked = bench.commit_offset(5)
    assert (asked.is_parked, bench.committed()) == (True, -1)
    stable = bench.ask(FetchRequest(GROUP, [("orders", 0)], True))
    assert stable.is_parked, "a stable read waits for what is being written"
    bench.lose()
    assert asked.reply.rows[0].error is stable.error or stable.error is ErrorCode.NOT_COORDINATOR
    bench.commit()
    assert bench.committed() == 5


def test_old_consumers_know_no_other_word_for_an_unavailable_coordinator_in_a_fetch() -> None:
    bench = Bench(commits_at_once=False)
    bench.commit_offset(5)
    stable = bench.ask(FetchRequest(GROUP, None, True))
    bench.lose(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert stable.error is ErrorCode.NOT_COORDINATOR


def test_metadata_that_is_too_long_refuses_its_partition_alone() -> None:
    bench = Bench(metadata_chars_max=3)
    rows = (OffsetToCommit("orders", 0, 1, -1, "abcd"), OffsetToCommit("orders", 1, 2, -1, "abc"))
    reply = bench.commit_offset(0, offsets=rows).reply
    assert [row.error for row in reply.rows] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert len(bench.log) == 1


def test_a_commit_of_which_nothing_is_accepted_waits_for_older_writes_too() -> None:
    bench = Bench(commits_at_once=False, metadata_chars_max=3)
    bench.commit_offset(1)
    refused = bench.commit_offset(0, offsets=(OffsetToCommit("orders", 0, 1, -1, "abcd"),))
    assert refused.is_parked
    bench.commit()
    assert refused.reply.rows[0].error is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_all_offsets_of_a_group_are_told_in_order() -> None:
    bench = Bench()
    for topic in ("b", "a"):
        bench.commit_offset(1, topic=topic)
    rows = bench.ask(FetchRequest(GROUP, None)).reply.rows
    assert [(row.topic, row.leader_epoch) for row in rows] == [("a", 3), ("b", 3)]
    assert bench.ask(FetchRequest("another", None)).reply.rows == ()


def test_acknowledged_offsets_survive_a_move() -> None:
    bench = Bench()
    bench.commit_offset(5)
    bench.move()
    assert bench.committed() == 5


# what goes


def expire(bench: Bench) -> None:
    bench.ask(ExpireRequest(GROUP))


def test_offsets_without_a_group_go_after_their_retention_and_so_does_the_group() -> None:
    bench = Bench()
    bench.commit_offset(5)
    bench.sleep(RETENTION_MS - 1)
    expire(bench)
    assert bench.committed() == 5
    bench.sleep(1)
    expire(bench)
    assert bench.committed() == -1
    assert not bench.machine.groups


def test_an_empty_group_keeps_its_offsets_from_the_time_when_it_became_empty() -> None:
    bench = Bench()
    (only,) = bench.stable(None)
    error_of(bench, 5, only, 1)
    bench.sleep(SESSION_MS)
    assert bench.state == "Empty"
    bench.sleep(RETENTION_MS - 1)
    expire(bench)
    assert bench.committed() == 5
    bench.sleep(1)
    expire(bench)
    assert bench.committed() == -1
    assert GROUP not in bench.machine.newest.groups


def test_a_stable_group_of_consumers_loses_offsets_of_topics_that_nobody_subscribes_to() -> None:
    bench = Bench()
    (only,) = bench.stable(None, session_timeout_ms=1_800_000)
    error_of(bench, 5, only, 1)
    bench.commit_offset(6, only, 1, topic="old")
    for _ in range(RETENTION_MS // 1_700_000 + 1):
        bench.sleep(1_700_000)
        bench.heartbeat(only, 1)
    expire(bench)
    assert (bench.committed(), bench.committed("old")) == (5, -1)


def test_a_group_in_a_rebalance_or_of_another_type_loses_nothing() -> None:
    for protocol_type in ("consumer", "connect"):
        bench = Bench(session_timeout_ms_max=2 * RETENTION_MS)
        ids = bench.stable(
            None, None, protocol_type=protocol_type, session_timeout_ms=2 * RETENTION_MS,
            rebalance_timeout_ms=2**31 - 1,
        )  # fmt: skip
        bench.commit_offset(6, ids[0], 2, topic="old")
        if protocol_type == "consumer":
            bench.rejoin(ids[0], session_timeout_ms=2 * RETENTION_MS, rebalance_timeout_ms=2**31 - 1)
        bench.sleep(RETENTION_MS + 1)
        expire(bench)
        assert bench.committed("old") == 6


def test_an_offset_with_its_own_retention_goes_at_its_own_time() -> None:
    bench = Bench()
    bench.commit_offset(5, retention_ms=1_000)
    bench.commit_offset(6, topic="other")
    bench.sleep(1_000)
    expire(bench)
    assert (bench.committed(), bench.committed("other")) == (-1, 6)


def test_an_offset_with_its_own_retention_stays_while_its_topic_is_subscribed_to() -> None:
    bench = Bench()
    (only,) = bench.stable(None)
    for topic in ("orders", "old"):
        bench.commit_offset(5, only, 1, topic=topic, retention_ms=1_000)
    bench.sleep(1_000)
    expire(bench)
    assert (bench.committed(), bench.committed("old")) == (5, -1)


def test_offsets_of_a_deleted_topic_go_and_those_of_its_successor_stay() -> None:
    bench = Bench()
    rows = (
        OffsetToCommit("orders", 0, 1, -1, "", TOPIC_ID),
        OffsetToCommit("orders", 1, 2, -1, "", UUID(int=8)),
        OffsetToCommit("orders", 2, 3, -1, "", None),
    )
    bench.commit_offset(0, offsets=rows)
    bench.ask(TopicsGoneRequest(GROUP, frozenset({("orders", TOPIC_ID), ("orders", None)})))
    left = bench.ask(FetchRequest(GROUP, None)).reply.rows
    assert [(row.partition, row.offset) for row in left] == [(1, 2)]
    assert bench.machine.topics_of(GROUP) == {("orders", UUID(int=8))}
    assert bench.machine.offset_count(GROUP) == 1


def test_only_offsets_that_nobody_subscribes_to_can_be_deleted() -> None:
    bench = Bench()
    assert bench.ask(OffsetDeleteRequest(GROUP, ())).error is ErrorCode.GROUP_ID_NOT_FOUND
    (only,) = bench.stable(None)
    bench.commit_offset(5, only, 1)
    bench.commit_offset(6, only, 1, topic="old")
    reply = bench.ask(OffsetDeleteRequest(GROUP, (("orders", 0), ("old", 0), ("old", 1)))).reply
    assert [row.error for row in reply.rows] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert (bench.committed(), bench.committed("old")) == (5, -1)


def test_offsets_of_a_busy_group_of_another_type_cannot_be_deleted() -> None:
    bench = Bench()
    bench.stable(None, protocol_type="connect")
    assert bench.ask(OffsetDeleteRequest(GROUP, (("orders", 0),))).error is ErrorCode.NON_EMPTY_GROUP


def test_a_group_is_deleted_with_its_offsets_only_when_it_is_empty() -> None:
    bench = Bench()
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.GROUP_ID_NOT_FOUND
    (only,) = bench.stable(None)
    bench.commit_offset(5, only, 1)
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NON_EMPTY_GROUP
    bench.leave(only)
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NONE
    assert (bench.committed(), bench.machine.groups) == (-1, {})
    bench.move()
    assert not bench.machine.groups


@pytest.mark.parametrize(
    "request_",
    [DeleteRequest(GROUP), ExpireRequest(GROUP), TopicsGoneRequest(GROUP, frozenset({("orders", TOPIC_ID)}))],
    ids=["delete", "expire", "topics gone"],
)
def test_what_no_batch_has_room_for_is_removed_batch_after_batch(request_: Request) -> None:
    bench = Bench(removal_bytes_max=200)
    (only,) = bench.stable(None)
    rows = tuple(OffsetToCommit("orders", index, 1, -1, "", TOPIC_ID) for index in range(20))
    bench.commit_offset(0, only, 1, offsets=rows)
    bench.leave(only)
    bench.sleep(RETENTION_MS)
    bench.commits_at_once = False
    batches, written = [], len(bench.log)
    asked = bench.ask(request_)
    while bench.waiting:
        assert asked.is_parked
        batches.append(bench.log[written:])
        written = len(bench.log)
        bench.commit()
    batches.append(bench.log[written:])
    bench.commit()
    assert sum(map(len, batches)) == 20 + (not isinstance(request_, TopicsGoneRequest))
    assert max(sum(len(record.key) for record in batch) for batch in batches) < 200
    assert not bench.machine.committed.offsets_of(GROUP)
    if isinstance(request_, DeleteRequest):
        assert asked.error is ErrorCode.NONE


def test_a_group_that_somebody_joins_while_it_is_removed_batch_after_batch_stays() -> None:
    bench = Bench(removal_bytes_max=200, commits_at_once=True)
    rows = tuple(OffsetToCommit("orders", index, 1, -1, "", None) for index in range(20))
    bench.commit_offset(0, offsets=rows)
    bench.commits_at_once = False
    asked = bench.ask(DeleteRequest(GROUP))
    member = bench.join()
    bench.commit()
    assert asked.error is ErrorCode.NON_EMPTY_GROUP
    assert (member.error, list(bench.group.members)) == (ErrorCode.NONE, [member.reply.member_id])


# what is told of groups


def test_groups_are_described_and_listed_by_what_is_committed() -> None:
    bench = Bench()
    unknown = bench.ask(DescribeRequest(GROUP)).reply
    assert (unknown.error, unknown.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (only,) = bench.stable(None)
    told = bench.ask(DescribeRequest(GROUP)).reply
    assert (told.state, told.protocol_type, told.protocol) == ("Stable", "consumer", "range")
    assert [(member.member_id, member.assignment) for member in told.members] == [(only, only.encode())]
    bench.commits_at_once = False
    bench.commit_offset(1, group="another")
    listing = bench.ask(ListRequest())
    assert listing.is_parked, "what is not committed is not told"
    bench.commit()
    assert [(row.group, row.state) for row in listing.reply.groups] == [(GROUP, "Stable"), ("another", "Empty")]


def test_wall_clock_times_stand_in_the_records() -> None:
    bench = Bench()
    bench.commit_offset(5, retention_ms=10)
    value = bench.machine.newest.offsets_of(GROUP)["orders", 0]
    assert (value.commit_timestamp, value.expire_timestamp) == (WALL_MS + 1_000, WALL_MS + 1_010)
