"""Offsets of consumer groups: who may commit and fetch, deletion, and expiry."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.group.requests import (
    ExpireRequest,
    FetchOffsetsRequest,
    OffsetDeleteRequest,
    PartitionError,
)
from kraft.wire.error_codes import ErrorCode
from tests.stages.consumer_bench import ConsumerBench
from tests.stages.group_bench import GROUP

RETENTION_MS = 7 * 24 * 3_600_000


def group_in_epoch_two() -> ConsumerBench:
    """Return a group whose member `one` is in epoch 2, with partition 0 of orders from epoch 1."""
    bench = ConsumerBench({"orders": 2, "trades": 1})
    bench.enter("one", "orders")
    bench.enter("two", "orders")
    kept = bench.beat("one", 1).assignment
    assert kept is not None
    assert bench.beat("one", 1, owned=kept).epoch == 2
    return bench


def commit_error(bench: ConsumerBench, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
    (row,) = bench.commit_offset(5, member_id, epoch, **fields).reply.rows
    error: ErrorCode = row.error
    return error


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("one", 2, ErrorCode.NONE),
        ("one", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("one", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("one", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("two", 2, ErrorCode.NONE),
        ("two", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("other", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_needs_a_member_and_its_epoch(member_id: str, epoch: int, error: ErrorCode) -> None:
    bench = group_in_epoch_two()
    assert commit_error(bench, member_id, epoch) is error
    assert bench.committed() == (5 if error is ErrorCode.NONE else -1)


def test_an_older_epoch_may_commit_what_the_member_has_held_since() -> None:
    bench = group_in_epoch_two()
    (topic_id,) = bench.consumers.assignment_of("one").assigned
    (kept,) = bench.consumers.assignment_of("one").assigned[topic_id]
    assert kept == 0
    assert commit_error(bench, "one", 1) is ErrorCode.NONE
    assert commit_error(bench, "one", 1, topic="trades") is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_error(bench, "one", 1, topic="unknown") is ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_commits_in_its_old_epoch_while_it_revokes() -> None:
    bench = ConsumerBench({"orders": 1})
    bench.enter("b", "orders")
    bench.enter("a", "orders", server_assignor="range")
    assert commit_error(bench, "b", 1) is ErrorCode.NONE


def test_a_group_without_members_accepts_clients_without_group_management() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.beat("m", -1)
    assert commit_error(bench, "", -1) is ErrorCode.NONE
    assert commit_error(bench, "m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_cannot_commit_with_a_version_that_knows_no_epochs() -> None:
    bench = group_in_epoch_two()
    assert commit_error(bench, "one", 2, knows_missing_groups=False) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("one", 2, ErrorCode.NONE),
        ("one", 3, ErrorCode.ILLEGAL_GENERATION),
        ("two", 1, ErrorCode.ILLEGAL_GENERATION),
        ("other", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ],
)
def test_a_commit_in_a_transaction_names_its_error_as_clients_know_it(
    member_id: str, epoch: int, error: ErrorCode
) -> None:
    bench = group_in_epoch_two()
    (row,) = bench.stage(5, member_id=member_id, generation=epoch).reply.rows
    assert row.error is error
    bench.end()
    assert bench.committed() == (5 if error is ErrorCode.NONE else -1)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("one", 2, ErrorCode.NONE),
        ("one", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("other", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("require_stable", [False, True])
def test_a_fetch_that_names_a_member_needs_its_epoch(
    member_id: str | None, epoch: int, error: ErrorCode, require_stable: bool
) -> None:
    bench = group_in_epoch_two()
    request = FetchOffsetsRequest(GROUP, [("orders", 0)], require_stable, member_id, epoch)
    assert bench.ask(request).error is error


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    bench = group_in_epoch_two()
    commit_error(bench, "one", 2)
    commit_error(bench, "one", 2, topic="trades")
    reply = bench.ask(OffsetDeleteRequest(GROUP, (("orders", 0), ("trades", 0)))).reply
    assert reply.rows == (
        PartitionError("orders", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        PartitionError("trades", 0, ErrorCode.NONE),
    )
    assert (bench.committed(), bench.committed("trades")) == (5, -1)


def test_only_offsets_of_unsubscribed_topics_expire_and_the_group_with_the_last_one() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    commit_error(bench, "m", 1)
    commit_error(bench, "m", 1, topic="trades")
    bench.now_ms += RETENTION_MS
    bench.ask(ExpireRequest(GROUP))
    assert (bench.committed(), bench.committed("trades")) == (5, -1)
    bench.sleep(1)
    assert not bench.consumers.members, "the session of the member is over"
    bench.ask(ExpireRequest(GROUP))
    assert bench.committed() == -1
    assert GROUP not in bench.machine.newest.consumers


def test_a_group_with_members_and_without_offsets_does_not_expire() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.ask(ExpireRequest(GROUP))
    assert bench.consumers.members
