"""Leader and follower one message at a time: what a fetch is answered, what an answer does, what must wait."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.raft.inputs import (
    ConnectionEnded,
    Failure,
    LogSynced,
    LogTrimmed,
    PassEnded,
    Redialled,
    RequestFailed,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotWritten,
    VotersChangeRequested,
)
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.raft.ready import (
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    QuorumState,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Truncate,
)
from kraft.raft.settings import RaftSettings
from kraft.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc_quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)

from .single import CLUSTER, ME, A, B, C, Single, directory, key, voter_set


def leading(**arguments: Any) -> Single:
    single = Single(**arguments)
    single.become_leader()
    return single


def committed(single: Single) -> int | None:
    return single.raft.high_watermark


def following(**arguments: Any) -> Single:
    arguments.setdefault("stored", QuorumState(3, A))
    arguments.setdefault("epochs", ((1, 0), (3, 10)))
    arguments.setdefault("end_offset", 20)
    single = Single(**arguments)
    assert isinstance(single.raft.role, Follower)
    return single


def fetch(single: Single) -> Any:
    """The fetch that is under way."""
    return single.take_sent(MetadataFetchRequest)[-1]


# the high watermark


def test_a_new_leader_commits_only_with_a_record_of_its_own_epoch_on_a_majority() -> None:
    single = leading(epochs=((1, 0),), end_offset=10, stored=QuorumState(1))
    assert isinstance(single.raft.role, Leader)
    change = single.last.log[0]
    assert isinstance(change, AppendLeaderChange)
    assert (change.base_offset, change.epoch) == (10, 2)
    assert single.last.sync_wanted
    single.sync()
    assert single.fetch_of(A, 10, 1).high_watermark == -1
    assert committed(single) is None
    single.fetch_of(A, 11, 2)
    assert committed(single) == 11


def test_the_leader_counts_its_own_log_only_when_it_is_synced() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.append(3)
    single.fetch_of(A, 4, 1)
    assert committed(single) is None
    single.step(LogSynced(1, single.raft.log.generation))
    assert committed(single) == 1
    single.step(LogSynced(4, single.raft.log.generation))
    assert committed(single) == 4


def test_a_sole_voter_elects_itself_at_once_and_commits_after_its_sync() -> None:
    single = Single(voters=voter_set(ME))
    assert single.raft.is_leader
    assert committed(single) is None
    single.sync()
    assert committed(single) == 1
    again = Single(voters=voter_set(ME), stored=QuorumState(1, ME, key(ME)), epochs=((1, 0),), end_offset=1)
    assert again.raft.is_leader
    assert again.raft.epoch == 2


def test_observers_never_count() -> None:
    single = leading()
    single.sync()
    for observer in (C, 5, 6):
        assert single.fetch_of(observer, 1, 1) is None
    assert committed(single) is None


def test_a_fetch_that_diverges_or_asks_for_too_much_moves_nothing() -> None:
    single = leading(epochs=((1, 0), (2, 10)), end_offset=20, stored=QuorumState(2))
    single.sync()
    too_far = single.fetch_of(A, 25, 2)
    assert (too_far.diverging_epoch, too_far.diverging_end_offset) == (2, 20)
    other = single.fetch_of(A, 15, 1)
    assert (other.diverging_epoch, other.diverging_end_offset) == (1, 10)
    ahead = single.fetch_of(A, 30, 3)
    assert (ahead.diverging_epoch, ahead.diverging_end_offset) == (3, 21)
    assert committed(single) is None
    assert single.raft.progress()[(A, directory(A))].end_offset == -1


def test_of_a_configured_voter_with_a_new_disk_the_directory_that_fetched_last_counts() -> None:
    single = leading()
    single.append(3)
    single.fetch_of(A, 4, 1)
    single.fetch_of(A, 1, 1, replica_directory_id=directory(9))
    single.step(LogSynced(1, single.raft.log.generation))
    single.fetch_of(B, 4, 1)
    assert committed(single) == 1
    single.fetch_of(A, 4, 1, replica_directory_id=directory(9))
    assert committed(single) == 4


# serving fetches


def test_a_fetch_is_refused_by_epoch_and_role() -> None:
    single = leading()
    assert single.fetch_of(A, 0, 0, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert single.fetch_of(A, 0, 0, epoch=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert single.raft.epoch == 1
    assert single.fetch_of(A, -1, 0).error_code == ErrorCode.INVALID_REQUEST
    assert single.fetch_of(A, 0, 2).error_code == ErrorCode.INVALID_REQUEST
    assert single.fetch_of(A, 0, 0, cluster_id="x").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    follower = following()
    answer = follower.fetch_of(B, 0, 0)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader_id, answer.leader_host, answer.leader_port) == (A, "n2", 9000)


def test_a_fetch_with_nothing_new_is_parked_until_the_end_of_a_pass_with_news() -> None:
    single = leading()
    assert single.fetch_of(A, 1, 1) is None
    ready = single.append(2)
    assert ready.pass_wanted
    assert not ready.answers
    (answer,) = single.step(PassEnded()).answers
    assert isinstance(answer, ReplyWithRecords)
    assert (answer.offset, answer.end_offset) == (1, 3)


def test_a_parked_fetch_is_answered_when_its_requester_does_not_know_the_high_watermark() -> None:
    single = leading()
    assert single.fetch_of(A, 1, 1) is None
    ready = single.sync()
    assert ready.high_watermark == 1
    assert ready.pass_wanted
    (answer,) = single.step(PassEnded()).answers
    assert isinstance(answer, Reply)
    assert answer.response.high_watermark == 1
    assert single.fetch_of(A, 1, 1, high_watermark=1) is None


def test_a_parked_fetch_ends_after_its_wait_with_an_empty_success() -> None:
    single = leading()
    single.fetch_of(A, 1, 1, max_wait_ms=100)
    assert single.last.deadline_ms == single.now + 100
    (answer,) = single.tick(100).answers
    assert isinstance(answer, Reply)
    assert answer.response.error_code == ErrorCode.NONE


def test_a_second_fetch_of_a_replica_ends_the_parked_one() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.fetch_of(A, 1, 1)
    assert len(single.last.answers) == 1
    assert isinstance(single.raft.role, Leader)
    assert len(single.raft.role.parked) == 1


def test_no_fetch_is_parked_for_longer_than_this_node_says() -> None:
    single = leading()
    single.fetch_of(A, 1, 1, max_wait_ms=1 << 40)
    assert single.last.deadline_ms == single.now + RaftSettings().fetch_wait_ms


def test_parked_fetches_fail_when_leadership_ends() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.vote_of(B, 2, 1, 9)
    errors = [answer.response.error_code for answer in single.last.answers if hasattr(answer.response, "records")]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


# snapshots, the leader's side


def trimmed_leader() -> tuple[Single, SnapshotId]:
    single = leading()
    single.append(9)
    single.sync()
    single.fetch_of(A, 10, 1)
    assert committed(single) == 10
    for end in (5, 8):
        snapshot = SnapshotId(end, 1)
        assert single.raft.may_snapshot(snapshot)
        single.step(SnapshotWritten(snapshot))
    single.step(LogTrimmed(5))
    return single, SnapshotId(8, 1)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (3, 1), (5, 0), (7, 0)])
def test_who_is_behind_the_log_start_is_sent_to_the_latest_snapshot(offset: int, epoch: int) -> None:
    single, latest = trimmed_leader()
    answer = single.fetch_of(B, offset, epoch)
    assert (answer.snapshot_end_offset, answer.snapshot_epoch) == (latest.end_offset, latest.epoch)


def test_who_is_at_the_log_start_gets_records() -> None:
    single, _ = trimmed_leader()
    single.fetch_of(B, 5, 1)
    assert isinstance(single.last.answers[0], ReplyWithRecords)


def test_a_snapshot_is_served_by_position_and_unknown_ones_are_not_found() -> None:
    single, latest = trimmed_leader()

    def ask(**changes: Any) -> Any:
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "replica_id": B,
            "replica_directory_id": directory(B),
            "epoch": 1,
            "snapshot_end_offset": latest.end_offset,
            "snapshot_epoch": latest.epoch,
            "position": 7,
            "max_bytes": 100,
        }
        return single.ask(FetchSnapshotRequest(**{**fields, **changes}))

    ask()
    answer = single.last.answers[0]
    assert isinstance(answer, ReplyWithSnapshot)
    assert (answer.snapshot, answer.position, answer.max_bytes) == (latest, 7, 100)
    for changes, error in [
        ({"snapshot_end_offset": 3}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"snapshot_end_offset": 0, "snapshot_epoch": 0}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"position": -1}, ErrorCode.INVALID_REQUEST),
        ({"max_bytes": 0}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]:
        assert ask(**changes).error_code == error


def test_a_snapshot_may_be_written_only_of_what_is_committed_with_the_right_epoch() -> None:
    single, _ = trimmed_leader()
    assert not single.raft.may_snapshot(SnapshotId(11, 1))
    assert not single.raft.may_snapshot(SnapshotId(9, 2))
    assert not single.raft.may_snapshot(SnapshotId(4, 1))
    assert not single.raft.may_snapshot(SnapshotId(0, 0))
    assert not following().raft.may_snapshot(SnapshotId(9, 1))


# the follower's side


def success(single: Single, **changes: Any) -> MetadataFetchResponse:
    fields: dict[str, Any] = {"epoch": single.raft.epoch, "leader_id": A, "leader_host": "n2", "leader_port": 9000}
    return MetadataFetchResponse(**{**fields, **changes})


def batch(base: int, end: int, epoch: int) -> BatchSummary:
    return BatchSummary(base, end, epoch)


def test_a_voter_fetches_again_only_when_what_it_appended_is_synced() -> None:
    single = following()
    ready = single.answer(fetch(single), success(single, records=b"r", high_watermark=21), (batch(20, 25, 3),))
    assert ready.log == (AppendFetched(b"r", (batch(20, 25, 3),)),)
    assert ready.high_watermark == 21
    assert ready.sync_wanted
    assert not single.take_sent(MetadataFetchRequest)
    single.sync()
    request = fetch(single).request
    assert (request.fetch_offset, request.last_fetched_epoch, request.high_watermark) == (25, 3, 21)


def test_an_observer_does_not_wait_for_its_disk() -> None:
    single = Single(voters=voter_set(A, B), may_vote=False)
    request = fetch(single)
    answer = success(single, epoch=0, leader_id=-1)
    single.answer(request, MetadataFetchResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, epoch=3, leader_id=A))
    assert single.raft.leader_id == A
    ready = single.answer(fetch(single), success(single, records=b"r", high_watermark=-1), (batch(0, 5, 3),))
    assert not ready.sync_wanted
    assert fetch(single).request.fetch_offset == 5
    assert answer.epoch == 0


def test_the_high_watermark_is_never_above_the_log_end() -> None:
    single = following()
    ready = single.answer(fetch(single), success(single, high_watermark=500))
    assert ready.high_watermark == 20


def test_divergence_truncates_by_epoch_and_may_take_several_rounds() -> None:
    single = following(epochs=((1, 0), (2, 5), (3, 10)), end_offset=20)
    ready = single.answer(fetch(single), success(single, diverging_epoch=2, diverging_end_offset=7))
    assert ready.log == (Truncate(7),)
    single.sync()
    request = fetch(single)
    assert (request.request.fetch_offset, request.request.last_fetched_epoch) == (7, 2)
    ready = single.answer(request, success(single, diverging_epoch=1, diverging_end_offset=3))
    assert ready.log == (Truncate(3),)
    assert single.raft.log.last_epoch == 1


def test_divergence_at_an_epoch_that_we_do_not_have_goes_back_to_our_own_end_of_an_older_one() -> None:
    single = following(epochs=((1, 0), (3, 10)), end_offset=20)
    ready = single.answer(fetch(single), success(single, diverging_epoch=2, diverging_end_offset=15))
    assert ready.log == (Truncate(10),)


def test_truncation_below_the_high_watermark_is_fatal() -> None:
    single = following()
    single.answer(fetch(single), success(single, high_watermark=18))
    with pytest.raises(InvariantError, match="below the high watermark"):
        single.answer(fetch(single), success(single, diverging_epoch=3, diverging_end_offset=15))


def test_a_high_watermark_that_goes_back_is_fatal() -> None:
    single = following()
    single.answer(fetch(single), success(single, high_watermark=18))
    with pytest.raises(InvariantError, match="went back"):
        single.answer(fetch(single), success(single, high_watermark=17))


def test_two_leaders_of_one_epoch_are_fatal() -> None:
    single = following()
    with pytest.raises(InvariantError, match="two leaders"):
        single.answer(fetch(single), success(single, leader_id=B))


@pytest.mark.parametrize(
    "batches", [(batch(19, 25, 3),), (batch(21, 25, 3),), (batch(20, 25, 2),), (batch(20, 25, 4),)]
)
def test_batches_that_do_not_continue_the_log_are_not_appended(batches: tuple[BatchSummary, ...]) -> None:
    single = following()
    ready = single.answer(fetch(single), success(single, records=b"r"), batches)
    assert not ready.log
    assert single.raft.log.end_offset == 20


def test_a_late_answer_of_an_earlier_fetch_changes_nothing() -> None:
    """B07: a stale divergence does not cut a log that has moved on."""
    single = following()
    stale = fetch(single)
    single.follow(B, 4)
    ready = single.answer(stale, success(single, epoch=3, diverging_epoch=1, diverging_end_offset=2))
    assert not ready.log
    assert single.raft.log.end_offset == 20


def test_an_answer_of_a_newer_epoch_is_followed() -> None:
    single = following()
    single.answer(fetch(single), MetadataFetchResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, epoch=7, leader_id=B))
    assert (single.raft.epoch, single.raft.leader_id) == (7, B)
    single.answer(fetch(single), MetadataFetchResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, epoch=9, leader_id=-1))
    assert single.raft.epoch == 9
    assert isinstance(single.raft.role, Unattached)


def test_an_observer_appends_in_the_same_round_trip_in_which_it_finds_the_leader() -> None:
    single = Single(voters=voter_set(A, B), may_vote=False, stored=QuorumState(3))
    request = fetch(single)
    node_id = request.destination.node_id
    answer = success(single, leader_id=node_id, records=b"r", high_watermark=2)
    ready = single.answer(request, answer, (batch(0, 3, 3),))
    assert ready.log == (AppendFetched(b"r", (batch(0, 3, 3),)),)
    assert single.raft.leader_id == node_id
    assert ready.high_watermark == 2


def test_an_observer_that_cannot_reach_its_leader_asks_the_voters() -> None:
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


def test_a_snapshot_is_fetched_in_chunks_and_replaces_the_log() -> None:
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


def test_a_snapshot_that_is_gone_or_does_not_fit_is_dropped_and_asked_for_again() -> None:
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


def test_a_refused_snapshot_is_fetched_anew() -> None:
    single, snapshot = downloading()
    chunk(single, 0, b"1234567890")
    single.step(SnapshotRefused(snapshot))
    single.tick_to_deadline()
    assert fetch(single).request.fetch_offset == 20


def test_a_change_of_leader_drops_the_download() -> None:
    single, _ = downloading()
    chunk(single, 0, b"12345")
    single.follow(B, 4)
    assert single.last.discard_download
    assert fetch(single).destination.node_id == B


def test_a_snapshot_below_the_high_watermark_is_fatal() -> None:
    single = following()
    single.answer(fetch(single), success(single, high_watermark=18))
    with pytest.raises(InvariantError, match="below the high watermark"):
        single.answer(fetch(single), success(single, snapshot_end_offset=10, snapshot_epoch=1))


# contact with the leader


def test_a_closed_connection_is_redialled_at_once_and_a_refused_one_is_lost_contact() -> None:
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
def test_a_leader_that_says_it_leads_no_more_is_lost_contact(error: ErrorCode) -> None:
    single = following()
    epoch = 3 if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else 0
    single.answer(fetch(single), MetadataFetchResponse(error_code=error, epoch=epoch))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.role.lost_since_ms == single.now


def test_time_outs_and_resets_leave_contact_as_it_is() -> None:
    single = following()
    for failure in (Failure.TIMED_OUT, Failure.OTHER, Failure.CLOSED, Failure.CLOSED):
        sent = single.take_sent(MetadataFetchRequest)
        while not sent:
            single.tick_to_deadline()
            sent = single.take_sent(MetadataFetchRequest)
        single.step(RequestFailed(sent[-1].request_id, failure))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.role.lost_since_ms is None


def test_an_idle_connection_that_ends_is_redialled_at_once() -> None:
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


def test_contact_returns_with_a_successful_fetch() -> None:
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


def test_an_answer_to_the_fetch_brings_a_prospective_back_to_its_leader() -> None:
    single = following()
    request = fetch(single)
    single.now += 2000
    single.tick()
    assert isinstance(single.raft.role, Prospective)
    single.answer(request, success(single))
    assert isinstance(single.raft.role, Follower)


# campaigns


def test_a_lost_pre_vote_round_keeps_epoch_and_vote_and_goes_back_to_the_leader() -> None:
    single = following()
    single.now += 2000
    single.tick()
    for send in single.take_sent(VoteRequest):
        single.answer(send, VoteResponse(epoch=3, leader_id=A, vote_granted=False))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.epoch == 3


def test_a_pre_vote_round_without_answers_ends_with_the_election_time_out() -> None:
    single = following()
    single.now += 2000
    single.tick()
    single.tick_to_deadline()
    assert isinstance(single.raft.role, Follower)


def test_a_vote_request_that_timed_out_is_sent_again_and_a_refused_one_is_out_of_the_round() -> None:
    single = Single()
    asked = single.become_candidate()
    single.step(RequestFailed(asked[0].request_id, Failure.TIMED_OUT))
    (again,) = single.take_sent(VoteRequest)
    assert again.destination.node_id == asked[0].destination.node_id
    single.step(RequestFailed(again.request_id, Failure.REFUSED))
    ready = single.step(RequestFailed(asked[1].request_id, Failure.REFUSED))
    assert isinstance(single.raft.role, Candidate)
    assert ready.deadline_ms is not None
    assert ready.deadline_ms - single.now <= 100
    single.tick_to_deadline()
    assert isinstance(single.raft.role, Prospective)
    assert single.raft.voted == key(ME)


def test_a_pre_vote_answer_of_a_lower_epoch_counts() -> None:
    single = Single(stored=QuorumState(5))
    single.become_prospective()
    send = single.take_sent(VoteRequest)[0]
    single.answer(send, VoteResponse(epoch=4, vote_granted=True))
    assert isinstance(single.raft.role, Candidate)


def test_an_answer_of_a_newer_epoch_ends_a_campaign() -> None:
    single = Single()
    single.become_prospective()
    single.answer(single.take_sent(VoteRequest)[0], VoteResponse(epoch=8, leader_id=B))
    assert isinstance(single.raft.role, Follower)
    assert (single.raft.epoch, single.raft.leader_id) == (8, B)
    other = Single(stored=QuorumState(5))
    other.become_prospective()
    refusal = VoteResponse(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, epoch=5)
    other.answer(other.take_sent(VoteRequest)[0], refusal)
    assert isinstance(other.raft.role, Prospective)


# starting


def test_a_node_starts_in_the_role_that_its_disk_allows() -> None:
    log: dict[str, Any] = {"epochs": ((1, 0), (4, 5)), "end_offset": 9}
    behind = Single(stored=QuorumState(2, A, key(A)), **log)
    assert (behind.raft.epoch, behind.raft.voted, behind.raft.leader_id) == (4, None, None)
    assert isinstance(behind.raft.role, Unattached)
    led = Single(stored=QuorumState(4, ME, key(ME)), **log)
    assert isinstance(led.raft.role, Resigned)
    assert led.take_sent(EndQuorumEpochRequest)
    stood = Single(stored=QuorumState(5, None, key(ME)), **log)
    assert isinstance(stood.raft.role, Candidate)
    assert stood.raft.epoch == 5
    assert len(stood.take_sent(VoteRequest)) == 2
    followed = Single(stored=QuorumState(5, A), **log)
    assert isinstance(followed.raft.role, Follower)
    voted = Single(stored=QuorumState(5, None, key(B)), **log)
    assert isinstance(voted.raft.role, Unattached)
    assert voted.raft.voted == key(B)
    unknown = Single(stored=QuorumState(5, 77), may_vote=False, voters=voter_set(A, B), **log)
    assert isinstance(unknown.raft.role, Unattached)


def test_a_former_leader_stands_again_in_a_new_epoch() -> None:
    single = Single(stored=QuorumState(4, ME, key(ME)), epochs=((4, 0),), end_offset=9)
    assert single.last.deadline_ms is not None
    assert single.last.deadline_ms - single.now <= 100
    single.become_prospective()
    assert single.raft.epoch == 5


# ending


def test_a_leader_that_stops_names_the_longest_log_first_and_waits_to_be_heard() -> None:
    single = leading()
    single.append(3)
    single.fetch_of(A, 1, 1)
    single.fetch_of(B, 4, 1)
    ready = single.step(ShutdownRequested())
    ends = single.take_sent(EndQuorumEpochRequest)
    assert [end.request.preferred_successors for end in ends] == [(B, A), (B, A)]  # type: ignore[union-attr]
    assert not ready.may_stop
    assert ready.leadership is not None
    assert not ready.leadership.is_local
    single.answer(ends[0], EndQuorumEpochResponse(epoch=1))
    assert not single.last.may_stop
    assert single.step(RequestFailed(ends[1].request_id, Failure.REFUSED)).may_stop
    assert single.append().refusal is not None


def test_a_stop_waits_for_silent_voters_only_so_long() -> None:
    single = leading()
    ready = single.step(ShutdownRequested())
    assert not ready.may_stop
    assert single.tick(1000).may_stop
    assert following().step(ShutdownRequested()).may_stop


def test_resignation_is_void_in_another_epoch() -> None:
    single = leading()
    single.step(ResignRequested(0))
    assert single.raft.is_leader
    single.step(ResignRequested(1))
    assert isinstance(single.raft.role, Resigned)
    assert single.raft.leader_id is None
    assert single.fetch_of(A, 0, 0).leader_id == -1


def test_a_leader_without_a_majority_resigns_after_one_and_a_half_fetch_time_outs() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.now += 2999
    single.tick()
    assert single.raft.is_leader
    single.now += 1
    single.tick()
    assert isinstance(single.raft.role, Resigned)


def test_a_leader_announces_itself_until_it_is_fetched_from() -> None:
    single = leading()
    begun = single.take_sent(BeginQuorumEpochRequest)
    assert [send.destination.node_id for send in begun] == [A, B]
    for send in begun:
        single.step(RequestFailed(send.request_id, Failure.TIMED_OUT))
    single.now += 900
    single.fetch_of(A, 1, 1)
    single.now += 100
    single.tick()
    assert [send.destination.node_id for send in single.take_sent(BeginQuorumEpochRequest)] == [B]


def test_observers_are_forgotten_after_their_session() -> None:
    single = leading(settings=RaftSettings(observer_session_ms=1000))
    single.fetch_of(C, 1, 1)
    assert (C, directory(C)) in single.raft.progress()
    single.now += 1001
    single.fetch_of(A, 1, 1)
    single.tick()
    assert (C, directory(C)) not in single.raft.progress()
    assert (A, directory(A)) in single.raft.progress()


def test_what_a_forgotten_observer_had_does_not_count_when_it_votes() -> None:
    single = leading(settings=RaftSettings(observer_session_ms=1000))
    single.append(3)
    single.fetch_of(C, 4, 1)
    single.fetch_of(A, 1, 1)
    single.fetch_of(B, 1, 1)
    assert committed(single) == 1
    single.now += 1001
    single.fetch_of(A, 1, 1)
    single.tick()
    single.step(VotersChangeRequested(voter_set(ME, A, B, C)))
    single.sync()
    single.fetch_of(A, 4, 1)
    assert committed(single) == 1


# voter changes


def test_a_voters_record_takes_effect_when_it_is_appended_and_is_guarded() -> None:
    single = leading()
    grown = voter_set(ME, A, B, C)
    assert single.step(VotersChangeRequested(grown)).refusal is not None
    single.sync()
    single.fetch_of(A, 1, 1)
    ready = single.step(VotersChangeRequested(grown))
    assert ready.log == (AppendVoters(1, 1, grown),)
    assert single.raft.voters == grown
    assert single.step(VotersChangeRequested(voter_set(ME, A, B))).refusal is not None
    single.sync()
    single.fetch_of(A, 2, 1)
    assert committed(single) == 1
    single.fetch_of(C, 2, 1)
    assert committed(single) == 2
    for refused in (voter_set(), voter_set(ME)):
        assert single.step(VotersChangeRequested(refused)).refusal is not None
    assert following().step(VotersChangeRequested(grown)).refusal is not None


def test_a_leader_that_removed_itself_goes_when_that_is_committed() -> None:
    single = leading()
    single.sync()
    single.fetch_of(A, 1, 1)
    single.step(VotersChangeRequested(voter_set(A, B)))
    single.sync()
    assert single.raft.is_leader
    single.fetch_of(A, 2, 1)
    assert single.raft.is_leader
    single.fetch_of(B, 2, 1)
    assert committed(single) == 2
    assert isinstance(single.raft.role, Resigned)


def test_an_answer_of_another_kind_than_the_request_is_a_bug_of_ours() -> None:
    single = following()
    with pytest.raises(InvariantError, match="was answered with"):
        single.step(ResponseReceived(fetch(single).request_id, VoteResponse()))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="hurry"):
        RaftSettings(election_timeout_ms=10)
    with pytest.raises(ValueError, match="fetch_wait_ms"):
        RaftSettings(fetch_timeout_ms=400)
