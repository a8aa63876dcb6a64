"""Offset commits, fetches, expiry and deletion: which clients may commit in which group state, and which version of an
offset is returned.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.broker.group.requests import (
    DeleteRequest,
    DescribeRequest,
    ExpireRequest,
    FetchOffsetsRequest,
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


# which clients may commit


def test_a_commit_without_a_generation_is_accepted_for_an_unknown_group() -> None:
    bench = Bench()
    assert error_of(bench, 5) is ErrorCode.NONE
    assert bench.committed() == 5


@pytest.mark.parametrize(
    ("knows", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_commit_with_a_generation_is_rejected_for_an_unknown_group(knows: bool, error: ErrorCode) -> None:
    assert error_of(Bench(), 5, "who", 1, knows_missing_groups=knows) is error


def test_an_empty_group_accepts_commits_of_an_administrator() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    assert error_of(bench, 5) is ErrorCode.NONE
    assert error_of(bench, 5, "who", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_accepts_commits_of_members_only() -> None:
    bench = Bench()
    leader, _ = bench.stable(None, "i1")
    assert error_of(bench, 5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(bench, 5, instance_id="i2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(bench, 5, leader, 1) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, 5, leader, 2) is ErrorCode.NONE


def test_a_member_may_commit_while_a_rebalance_is_prepared_but_not_while_it_completes() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.rejoin(leader)
    assert error_of(bench, 5, follower, 2) is ErrorCode.NONE, "commit on revoke"
    bench.rejoin(follower)
    assert error_of(bench, 6, follower, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.committed() == 5


def test_a_commit_extends_the_members_session() -> None:
    bench = Bench()
    (only,) = bench.stable(None)
    for _ in range(3):
        bench.sleep(SESSION_MS - 1)
        error_of(bench, 5, only, 1)
    assert only in bench.group.members


# writes and reads


def test_an_offset_whose_commit_timed_out_is_returned_once_its_record_is_committed() -> None:
    bench = Bench(commits_at_once=False)
    asked = bench.commit_offset(5)
    assert (asked.is_parked, bench.committed()) == (True, -1)
    stable = bench.ask(FetchOffsetsRequest(GROUP, [("orders", 0)], True))
    assert stable.is_parked, "a stable read waits for what is being written"
    bench.lose()
    assert asked.reply.rows[0].error is stable.error or stable.error is ErrorCode.NOT_COORDINATOR
    bench.commit()
    assert bench.committed() == 5


def test_offset_fetch_returns_not_coordinator_instead_of_coordinator_not_available() -> None:
    bench = Bench(commits_at_once=False)
    bench.commit_offset(5)
    stable = bench.ask(FetchOffsetsRequest(GROUP, None, True))
    bench.lose(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert stable.error is ErrorCode.NOT_COORDINATOR


def test_offset_metadata_that_is_too_long_fails_only_its_own_partition() -> None:
    bench = Bench(metadata_chars_max=3)
    rows = (OffsetToCommit("orders", 0, 1, -1, "abcd"), OffsetToCommit("orders", 1, 2, -1, "abc"))
    reply = bench.commit_offset(0, offsets=rows).reply
    assert [row.error for row in reply.rows] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert len(bench.log) == 1


def test_a_commit_without_accepted_offsets_is_answered_after_older_writes() -> None:
    bench = Bench(commits_at_once=False, metadata_chars_max=3)
    bench.commit_offset(1)
    refused = bench.commit_offset(0, offsets=(OffsetToCommit("orders", 0, 1, -1, "abcd"),))
    assert refused.is_parked
    bench.commit()
    assert refused.reply.rows[0].error is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_all_offsets_of_a_group_are_returned_sorted_by_topic() -> None:
    bench = Bench()
    for topic in ("b", "a"):
        bench.commit_offset(1, topic=topic)
    rows = bench.ask(FetchOffsetsRequest(GROUP, None)).reply.rows
    assert [(row.topic, row.leader_epoch) for row in rows] == [("a", 3), ("b", 3)]
    assert bench.ask(FetchOffsetsRequest("another", None)).reply.rows == ()


def test_acknowledged_offsets_survive_a_coordinator_move() -> None:
    bench = Bench()
    bench.commit_offset(5)
    bench.move()
    assert bench.committed() == 5


# expiry and deletion


def expire(bench: Bench) -> None:
    bench.ask(ExpireRequest(GROUP))


def test_the_offsets_of_a_group_without_members_expire_together_with_the_group() -> None:
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


def test_a_stable_consumer_group_loses_offsets_of_topics_without_subscription() -> None:
    bench = Bench()
    (only,) = bench.stable(None, session_timeout_ms=1_800_000)
    error_of(bench, 5, only, 1)
    bench.commit_offset(6, only, 1, topic="old")
    for _ in range(RETENTION_MS // 1_700_000 + 1):
        bench.sleep(1_700_000)
        bench.heartbeat(only, 1)
    expire(bench)
    assert (bench.committed(), bench.committed("old")) == (5, -1)


def test_offsets_of_a_rebalancing_group_or_of_a_non_consumer_group_do_not_expire() -> None:
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


def test_an_offset_with_a_requested_retention_time_expires_after_that_time() -> None:
    bench = Bench()
    bench.commit_offset(5, retention_ms=1_000)
    bench.commit_offset(6, topic="other")
    bench.sleep(1_000)
    expire(bench)
    assert (bench.committed(), bench.committed("other")) == (-1, 6)


def test_an_offset_with_a_requested_retention_time_stays_while_its_topic_is_subscribed_to() -> None:
    bench = Bench()
    (only,) = bench.stable(None)
    for topic in ("orders", "old"):
        bench.commit_offset(5, only, 1, topic=topic, retention_ms=1_000)
    bench.sleep(1_000)
    expire(bench)
    assert (bench.committed(), bench.committed("old")) == (5, -1)


def test_offsets_of_a_deleted_topic_are_removed_and_offsets_of_its_recreation_stay() -> None:
    bench = Bench()
    rows = (
        OffsetToCommit("orders", 0, 1, -1, "", TOPIC_ID),
        OffsetToCommit("orders", 1, 2, -1, "", UUID(int=8)),
        OffsetToCommit("orders", 2, 3, -1, "", None),
    )
    bench.commit_offset(0, offsets=rows)
    bench.ask(TopicsGoneRequest(GROUP, frozenset({("orders", TOPIC_ID), ("orders", None)})))
    left = bench.ask(FetchOffsetsRequest(GROUP, None)).reply.rows
    assert [(row.partition, row.offset) for row in left] == [(1, 2)]
    assert bench.machine.topics_of(GROUP) == {("orders", UUID(int=8))}
    assert bench.machine.offset_count(GROUP) == 1


def test_only_offsets_of_topics_without_subscription_can_be_deleted() -> None:
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


def test_offsets_of_a_non_consumer_group_with_members_cannot_be_deleted() -> None:
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
def test_offset_removals_too_large_for_one_batch_are_written_in_several_batches(request_: Request) -> None:
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


def test_a_group_joined_during_its_removal_in_several_batches_stays() -> None:
    bench = Bench(removal_bytes_max=200, commits_at_once=True)
    rows = tuple(OffsetToCommit("orders", index, 1, -1, "", None) for index in range(20))
    bench.commit_offset(0, offsets=rows)
    bench.commits_at_once = False
    asked = bench.ask(DeleteRequest(GROUP))
    member = bench.join()
    bench.commit()
    assert asked.error is ErrorCode.NON_EMPTY_GROUP
    assert (member.error, list(bench.group.members)) == (ErrorCode.NONE, [member.reply.member_id])


# descriptions of groups


def test_groups_are_described_and_listed_by_their_committed_state() -> None:
    bench = Bench()
    unknown = bench.ask(DescribeRequest(GROUP)).reply
    assert (unknown.error, unknown.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (only,) = bench.stable(None)
    description = bench.ask(DescribeRequest(GROUP)).reply
    assert (description.state, description.protocol_type, description.protocol) == ("Stable", "consumer", "range")
    assert [(member.member_id, member.assignment) for member in description.members] == [(only, only.encode())]
    bench.commits_at_once = False
    bench.commit_offset(1, group="another")
    listing = bench.ask(ListRequest())
    assert listing.is_parked, "an uncommitted state is not returned"
    bench.commit()
    assert [(row.group, row.state) for row in listing.reply.groups] == [(GROUP, "Stable"), ("another", "Empty")]


def test_group_records_contain_wall_clock_times() -> None:
    bench = Bench()
    bench.commit_offset(5, retention_ms=10)
    value = bench.machine.newest.offsets_of(GROUP)["orders", 0]
    assert (value.commit_timestamp, value.expire_timestamp) == (WALL_MS + 1_000, WALL_MS + 1_010)
