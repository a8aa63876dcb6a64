"""The follower's decisions about fetch responses, the role that a partition state gives a broker, and the replica that
a consumer reads from.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.replica.follower import (
    BACKOFF_MS_FIRST,
    FollowerState,
    FollowerStatus,
    Resolution,
    SentFetch,
    StepKind,
    decide_answer,
    decide_out_of_range,
    follower_high_watermark,
    start_offset,
    truncation_offset,
)
from kraft.broker.replica.role import RoleChange, decide_role
from kraft.broker.replica.selector import ReplicaView, select_rack_aware
from kraft.image.partitions import PartitionState
from kraft.wire.error_codes import ErrorCode


class History:
    """A fake log that consists only of the leader epoch of each record."""

    def __init__(self, *epochs: int, start: int = 0, high_watermark: int = 0) -> None:
        self.epochs = list(epochs)
        self.log_start_offset = start
        self.high_watermark = high_watermark

    @property
    def log_end_offset(self) -> int:
        return len(self.epochs)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if not self.epochs or epoch < 0 or epoch > self.epochs[-1]:
            return -1, -1
        if epoch == self.epochs[-1]:
            return epoch, len(self.epochs)
        below = [one for one in self.epochs if one <= epoch]
        return (below[-1] if below else epoch), len(below)


def following(offset: int = 5, epoch: int = 3) -> FollowerState:
    return FollowerState(leader_id=1, leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=epoch)


LOG = History(1, 1, 2, 2, 3)
SENT = SentFetch(fetch_offset=5, leader_epoch=3)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.NONE, StepKind.APPEND),
        (ErrorCode.OFFSET_OUT_OF_RANGE, StepKind.RESOLVE),
        (ErrorCode.FENCED_LEADER_EPOCH, StepKind.STOP),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, StepKind.BACK_OFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, StepKind.BACK_OFF),
        (ErrorCode.UNKNOWN_TOPIC_ID, StepKind.BACK_OFF),
        (ErrorCode.KAFKA_STORAGE_ERROR, StepKind.BACK_OFF),
    ],
)
def test_each_fetch_error_code_gives_the_follower_its_expected_next_action(error: ErrorCode, kind: StepKind) -> None:
    assert decide_answer(following(), SENT, LOG, error, None).kind is kind


def test_a_follower_ignores_a_fetch_response_if_offset_epoch_or_status_changed_since_its_request() -> None:
    for state in (following(offset=6), following(epoch=4)):
        assert decide_answer(state, SENT, LOG, 0, None).kind is StepKind.IGNORE
    for status in (FollowerStatus.BACKOFF, FollowerStatus.RESOLVING, FollowerStatus.STOPPED):
        state = following()
        state.status = status
        for diverging in (None, (1, 2)):
            assert decide_answer(state, SENT, LOG, 0, diverging).kind is StepKind.IGNORE


def test_a_follower_only_truncates_after_a_fetch_response_that_reports_a_divergence() -> None:
    step = decide_answer(following(), SENT, LOG, 0, (2, 3))
    assert (step.kind, step.offset) == (StepKind.TRUNCATE, 3)


def test_a_follower_truncates_no_lower_than_its_own_epoch_history_requires() -> None:
    assert truncation_offset(History(1, 1, 2, 2, 3), 2, 9) == 4, "our own end of epoch 2 is nearer"
    assert truncation_offset(History(1, 1, 2, 2, 3), 2, 3) == 3
    assert truncation_offset(History(1, 1, 4, 4), 3, 7) == 2, "epoch 3 is unknown here: to the end of epoch 1"
    assert truncation_offset(History(1, 1, high_watermark=1), -1, -1) == 1, "nothing to compare: the high watermark"
    assert truncation_offset(History(), 2, 5) == 0


def leader_answer(leader: History, last_epoch: int, offset: int) -> tuple[int, int] | None:
    """Return a leader's (epoch, end offset) for a fetch from `offset` with `last_epoch`; None if the logs do not
    diverge."""
    epoch, end = leader.end_offset_for(last_epoch)
    assert epoch >= 0
    return (epoch, end) if epoch != last_epoch or end < offset else None


histories = st.lists(st.integers(0, 3), max_size=12).map(lambda steps: list(itertools.accumulate(steps)))


@given(shared=histories, ours=histories, theirs=histories)
def test_repeated_truncation_rounds_end_at_the_last_common_record(
    shared: list[int], ours: list[int], theirs: list[int]
) -> None:
    base = shared[-1] if shared else 0
    # each epoch has one leader, so different records have different epochs, and the record with the highest epoch is
    # the newest
    follower = History(*shared, *[base + 1 + 2 * epoch for epoch in ours])
    leader = History(*shared, *[base + 2 + 2 * epoch for epoch in theirs], base + 100)
    for _ in range(40):
        if not follower.epochs:
            break
        diverging = leader_answer(leader, follower.epochs[-1], follower.log_end_offset)
        if diverging is None:
            break
        cut = truncation_offset(follower, *diverging)
        assert len(shared) <= cut < follower.log_end_offset or cut == follower.log_end_offset > len(shared)
        del follower.epochs[cut:]
    assert follower.epochs == shared


def test_a_followers_high_watermark_is_limited_to_its_local_log_and_may_decrease() -> None:
    assert follower_high_watermark(50, 10, 100) == 50
    assert follower_high_watermark(150, 10, 100) == 100
    assert follower_high_watermark(5, 10, 100) == 10


def test_a_follower_whose_log_has_no_epochs_fetches_from_its_high_watermark() -> None:
    log = History(1, 1, 1, high_watermark=2)
    assert start_offset(log, latest_epoch=1) == 3
    assert start_offset(log, latest_epoch=-1) == 2


def test_an_out_of_range_follower_decides_by_the_leaders_log_start_and_log_end() -> None:
    assert decide_out_of_range(10, 8, None) == (Resolution.TRUNCATE, 8)
    assert decide_out_of_range(10, 20, None) is None, "the earliest offset is needed"
    assert decide_out_of_range(10, 20, 15) == (Resolution.RESTART, 15)
    assert decide_out_of_range(10, 20, 10) == (Resolution.RESTART, 10), "the leader knows nothing of what we have"
    assert decide_out_of_range(10, 20, 5) == (Resolution.CONTINUE, 10)


def test_a_followers_backoff_doubles_up_to_its_maximum() -> None:
    state = following()
    pauses = []
    for _ in range(10):
        state.back_off(1_000, 1_000)
        pauses.append(state.retry_at_ms - 1_000)
    assert pauses[0] == BACKOFF_MS_FIRST
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1_000
    state.resume(7, 3)
    assert (state.status, state.fetch_offset) == (FollowerStatus.FETCHING, 7)


def held(leader: int, leader_epoch: int = 5, partition_epoch: int = 7) -> PartitionState:
    return PartitionState((1, 2, 3), (1, 2), leader, leader_epoch, partition_epoch)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, held(1), RoleChange.LEAD),
        (None, held(2), RoleChange.FOLLOW),
        (None, held(-1), RoleChange.FOLLOW),
        (held(1), None, RoleChange.REMOVE),
        (held(1), held(1)._replace(replicas=(2, 3)), RoleChange.REMOVE),
        (held(1), held(1, partition_epoch=8), RoleChange.KEEP_LEADING),
        (held(1), held(1, 6, 8), RoleChange.LEAD),
        (held(1), held(2, 6, 8), RoleChange.FOLLOW),
        (held(2), held(2, partition_epoch=8), RoleChange.KEEP_FOLLOWING),
        (held(2), held(1, 6, 8), RoleChange.LEAD),
        (held(2), held(-1, 6, 8), RoleChange.FOLLOW),
        (held(1), held(2, 5, 6), RoleChange.IGNORE),
        (held(1), held(1), RoleChange.KEEP_LEADING),
    ],
)
def test_decide_role_returns_the_role_that_a_partition_state_assigns_to_the_broker(
    before: PartitionState | None, after: PartitionState | None, expected: RoleChange
) -> None:
    assert decide_role(1, before, after) is expected


def test_consumers_read_from_the_most_caught_up_replica_in_their_rack() -> None:
    leader = ReplicaView(1, "a", 100, 0)
    followers = [ReplicaView(2, "b", 90, 5), ReplicaView(3, "b", 95, 1), ReplicaView(4, "c", 100, 9)]
    assert select_rack_aware("a", leader, followers) == 1
    assert select_rack_aware("b", leader, followers) == 3
    assert select_rack_aware("d", leader, followers) == 1
    assert select_rack_aware("", leader, followers) == 1
