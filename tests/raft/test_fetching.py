"""The follower, one message at a time: the effect of each response, what must wait for a sync, and when contact is
lost.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.raft.inputs import (
    ConnectionEnded,
    Failure,
    Redialled,
    RequestFailed,
    SnapshotInstalled,
    SnapshotRefused,
)
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.raft.ready import (
    AlertKind,
    AppendFetched,
    QuorumState,
    Truncate,
)
from kraft.raft.state import Follower, Prospective, Unattached
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)
from tests.stages.single_core import A, B, C, Single, fetch, following, voter_set

# the follower's side


def success(single: Single, **changes: Any) -> MetadataFetchResponse:
    fields: dict[str, Any] = {"epoch": single.raft.epoch, "leader_id": A, "leader_host": "n2", "leader_port": 9000}
    return MetadataFetchResponse(**{**fields, **changes})


def batch(base: int, end: int, epoch: int) -> BatchSummary:
    return BatchSummary(base, end, epoch)


def test_voter_fetches_again_only_after_syncing_appended_batches() -> None:
    single = following()
    ready = single.answer(fetch(single), success(single, records=b"r", high_watermark=21), (batch(20, 25, 3),))
    assert ready.log == (AppendFetched(b"r", (batch(20, 25, 3),)),)
    assert ready.high_watermark == 21
    assert ready.sync_wanted
    assert not single.take_sent(MetadataFetchRequest)
    single.sync()
    request = fetch(single).request
    assert (request.fetch_offset, request.last_fetched_epoch, request.high_watermark) == (25, 3, 21)


def test_observer_fetches_again_without_waiting_for_a_sync() -> None:
    single = Single(voters=voter_set(A, B), may_vote=False)
    request = fetch(single)
    answer = success(single, epoch=0, leader_id=-1)
    single.answer(request, MetadataFetchResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, epoch=3, leader_id=A))
    assert single.raft.leader_id == A
    ready = single.answer(fetch(single), success(single, records=b"r", high_watermark=-1), (batch(0, 5, 3),))
    assert not ready.sync_wanted
    assert fetch(single).request.fetch_offset == 5
    assert answer.epoch == 0


def test_followers_high_watermark_is_never_above_its_log_end() -> None:
    single = following()
    ready = single.answer(fetch(single), success(single, high_watermark=500))
    assert ready.high_watermark == 20


def test_follower_with_a_diverging_log_truncates_it_by_epoch_in_one_or_more_rounds() -> None:
    single = following(epochs=((1, 0), (2, 5), (3, 10)), end_offset=20)
    ready = single.answer(fetch(single), success(single, diverging_epoch=2, diverging_end_offset=7))
    assert ready.log == (Truncate(7),)
    single.sync()
    request = fetch(single)
    assert (request.request.fetch_offset, request.request.last_fetched_epoch) == (7, 2)
    ready = single.answer(request, success(single, diverging_epoch=1, diverging_end_offset=3))
    assert ready.log == (Truncate(3),)
    assert single.raft.log.last_epoch == 1


def test_follower_that_diverges_at_an_unknown_epoch_truncates_to_the_end_of_an_older_epoch() -> None:
    single = following(epochs=((1, 0), (3, 10)), end_offset=20)
    ready = single.answer(fetch(single), success(single, diverging_epoch=2, diverging_end_offset=15))
    assert ready.log == (Truncate(10),)


def test_truncation_below_the_high_watermark_is_fatal() -> None:
    single = following()
    single.answer(fetch(single), success(single, high_watermark=18))
    with pytest.raises(InvariantError, match="below the high watermark"):
        single.answer(fetch(single), success(single, diverging_epoch=3, diverging_end_offset=15))


def test_decreasing_high_watermark_from_the_leader_is_fatal() -> None:
    single = following()
    single.answer(fetch(single), success(single, high_watermark=18))
    with pytest.raises(InvariantError, match="decreased"):
        single.answer(fetch(single), success(single, high_watermark=17))


def test_follower_that_fetched_from_one_leader_ignores_a_second_leader_of_the_same_epoch() -> None:
    single = following()
    single.answer(fetch(single), success(single))
    ready = single.answer(fetch(single), success(single, leader_id=B, records=b"r"), (batch(20, 25, 3),))
    assert not ready.log
    assert single.raft.leader_id == A
    assert [alert.kind for alert in ready.alerts] == [AlertKind.CONFLICTING_LEADER]


@pytest.mark.parametrize(
    "batches", [(batch(19, 25, 3),), (batch(21, 25, 3),), (batch(20, 25, 2),), (batch(20, 25, 4),)]
)
def test_fetched_batches_that_do_not_continue_the_log_are_not_appended(batches: tuple[BatchSummary, ...]) -> None:
    single = following()
    ready = single.answer(fetch(single), success(single, records=b"r"), batches)
    assert not ready.log
    assert single.raft.log.end_offset == 20


def test_late_response_to_a_fetch_from_a_previous_leader_changes_nothing() -> None:
    """A stale report of divergence must not truncate a log that now follows another leader (B07)."""
    single = following()
    stale = fetch(single)
    single.follow(B, 4)
    ready = single.answer(stale, success(single, epoch=3, diverging_epoch=1, diverging_end_offset=2))
    assert not ready.log
    assert single.raft.log.end_offset == 20


def test_fetch_response_with_a_newer_epoch_moves_the_follower_to_it() -> None:
    single = following()
    single.answer(fetch(single), MetadataFetchResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, epoch=7, leader_id=B))
    assert (single.raft.epoch, single.raft.leader_id) == (7, B)
    single.answer(fetch(single), MetadataFetchResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, epoch=9, leader_id=-1))
    assert single.raft.epoch == 9
    assert isinstance(single.raft.role, Unattached)


def test_observer_appends_from_the_response_in_which_it_finds_the_leader() -> None:
    single = Single(voters=voter_set(A, B), may_vote=False, stored=QuorumState(3))
    request = fetch(single)
    node_id = request.destination.node_id
    answer = success(single, leader_id=node_id, records=b"r", high_watermark=2)
    ready = single.answer(request, answer, (batch(0, 3, 3),))
    assert ready.log == (AppendFetched(b"r", (batch(0, 3, 3),)),)
    assert single.raft.leader_id == node_id
    assert ready.high_watermark == 2


def test_observer_that_cannot_reach_its_leader_fetches_from_the_voters() -> None:
    single = Single(voters=voter_set(A, B, C), may_vote=False, stored=QuorumState(3, A))
    asked = [fetch(single).destination.node_id]
    assert asked == [A]
    request_id = single.last.sends[0].request_id
    for _ in range(12):
        ready = single.step(RequestFailed(request_id, Failure.REFUSED))
        while not ready.sends:
            ready = single.tick_to_deadline()
        asked.append(ready.sends[0].destination.node_id)
        request_id = ready.sends[0].request_id
    assert set(asked) == {A, B, C}
    assert isinstance(single.raft.role, Follower)


# snapshots, the follower's side


def downloading() -> tuple[Single, SnapshotId]:
    single = following()
    single.answer(fetch(single), success(single, snapshot_end_offset=50, snapshot_epoch=3, high_watermark=60))
    return single, SnapshotId(50, 3)


def chunk(single: Single, at: int, data: bytes, **changes: Any) -> Any:
    send = single.take_sent(FetchSnapshotRequest)[-1]
    assert send.request.position == at  # type: ignore[union-attr]
    fields: dict[str, Any] = {
        "epoch": 3,
        "leader_id": A,
        "snapshot_end_offset": 50,
        "snapshot_epoch": 3,
        "size": 10,
        "position": at,
        "data": data,
    }
    return single.answer(send, FetchSnapshotResponse(**{**fields, **changes}))


def test_snapshot_is_fetched_in_chunks_and_replaces_the_log() -> None:
    single, snapshot = downloading()
    ready = chunk(single, 0, b"12345")
    assert ready.chunk is not None
    assert not ready.chunk.is_last
    ready = chunk(single, 5, b"67890")
    assert ready.chunk is not None
    assert ready.chunk.is_last
    ready = single.step(SnapshotInstalled(snapshot, None))
    assert ready.high_watermark == 50
    log = single.raft.log
    assert (log.start_offset, log.end_offset, log.last_epoch) == (50, 50, 3)
    assert fetch(single).request.fetch_offset == 50


def test_snapshot_download_that_is_missing_or_mismatched_is_dropped_and_retried() -> None:
    for changes in (
        {"error_code": ErrorCode.SNAPSHOT_NOT_FOUND},
        {"error_code": ErrorCode.POSITION_OUT_OF_RANGE},
        {"position": 4},
        {"data": b""},
        {"data": b"x" * 11},
        {"snapshot_epoch": 2},
    ):
        single, _ = downloading()
        data = changes.pop("data", b"12345")  # type: ignore[call-overload]
        ready = chunk(single, 0, data, **changes)
        assert ready.discard_download
        assert ready.chunk is None
        single.tick_to_deadline()
        assert fetch(single).request.fetch_offset == 20


def test_snapshot_that_the_driver_rejects_is_downloaded_again() -> None:
    single, snapshot = downloading()
    chunk(single, 0, b"1234567890")
    single.step(SnapshotRefused(snapshot))
    single.tick_to_deadline()
    assert fetch(single).request.fetch_offset == 20


def test_leader_change_drops_the_snapshot_download() -> None:
    single, _ = downloading()
    chunk(single, 0, b"12345")
    single.follow(B, 4)
    assert single.last.discard_download
    assert fetch(single).destination.node_id == B


def test_snapshot_that_ends_below_the_high_watermark_is_fatal() -> None:
    single = following()
    single.answer(fetch(single), success(single, high_watermark=18))
    with pytest.raises(InvariantError, match="below the high watermark"):
        single.answer(fetch(single), success(single, snapshot_end_offset=10, snapshot_epoch=1))


# contact with the leader


def test_follower_redials_a_closed_connection_at_once_and_loses_leader_contact_if_refused() -> None:
    single = following()
    single.step(RequestFailed(fetch(single).request_id, Failure.CLOSED))
    request = fetch(single)
    assert request.destination.node_id == A
    assert isinstance(single.raft.role, Follower)
    assert single.raft.role.lost_since_ms is None
    ready = single.step(RequestFailed(request.request_id, Failure.REFUSED))
    assert single.raft.role.lost_since_ms == single.now
    assert ready.deadline_ms is not None
    assert ready.deadline_ms - single.now <= 50


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE])
def test_follower_loses_leader_contact_if_the_leader_answers_that_it_no_longer_leads(error: ErrorCode) -> None:
    single = following()
    epoch = 3 if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else 0
    single.answer(fetch(single), MetadataFetchResponse(error_code=error, epoch=epoch))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.role.lost_since_ms == single.now


def test_follower_keeps_leader_contact_after_fetch_timeouts_and_connection_resets() -> None:
    single = following()
    for failure in (Failure.TIMED_OUT, Failure.OTHER, Failure.CLOSED, Failure.CLOSED):
        sent = single.take_sent(MetadataFetchRequest)
        while not sent:
            single.tick_to_deadline()
            sent = single.take_sent(MetadataFetchRequest)
        single.step(RequestFailed(sent[-1].request_id, failure))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.role.lost_since_ms is None


def test_follower_redials_an_idle_connection_to_the_leader_at_once_when_it_ends() -> None:
    single = following()
    single.answer(fetch(single), success(single, records=b"r"), (batch(20, 25, 3),))
    ready = single.step(ConnectionEnded(A))
    assert ready.redial is not None
    assert ready.redial.node_id == A
    single.step(Redialled(A, None))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.role.lost_since_ms is None
    single.step(Redialled(A, Failure.REFUSED))
    assert single.raft.role.lost_since_ms == single.now
    assert single.step(ConnectionEnded(B)).redial is None


def test_leader_contact_returns_with_a_successful_fetch() -> None:
    single = following()
    single.step(RequestFailed(fetch(single).request_id, Failure.REFUSED))
    single.tick_to_deadline()
    single.become_prospective()
    for send in single.take_sent(VoteRequest):
        single.answer(send, VoteResponse(epoch=3, leader_id=A, vote_granted=False))
    assert isinstance(single.raft.role, Follower)
    sent = single.take_sent(MetadataFetchRequest)
    while not sent:
        single.tick_to_deadline()
        sent = single.take_sent(MetadataFetchRequest)
    single.answer(sent[-1], success(single))
    assert single.raft.role.lost_since_ms is None
    assert single.raft.role.has_fetched
    assert single.raft.epoch == 3


def test_prospective_returns_to_its_leader_after_a_successful_fetch() -> None:
    single = following()
    request = fetch(single)
    single.now += 2000
    single.tick()
    assert isinstance(single.raft.role, Prospective)
    single.answer(request, success(single))
    assert isinstance(single.raft.role, Follower)
