"""The leader, one message at a time: which acknowledgements it counts, how it answers fetches, and which snapshots it
serves.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.raft.inputs import (
    LogSynced,
    LogTrimmed,
    PassEnded,
    SnapshotWritten,
)
from kraft.raft.log_view import SnapshotId
from kraft.raft.ready import (
    AppendLeaderChange,
    QuorumState,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
)
from kraft.raft.settings import RaftSettings
from kraft.raft.state import Leader, replica_name
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    FetchSnapshotRequest,
)
from tests.stages.single_core import (
    CLUSTER,
    ME,
    A,
    B,
    C,
    Single,
    committed,
    directory,
    following,
    key,
    leading,
    voter_set,
)

# the high watermark


def test_new_leader_commits_only_once_a_majority_has_a_record_of_its_epoch() -> None:
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


def test_replica_always_one_batch_behind_counts_as_caught_up_at_its_previous_fetch() -> None:
    single = leading()
    single.sync()

    def caught_up_ms() -> int:
        role = single.raft.role
        assert isinstance(role, Leader)
        return role.progress[replica_name(key(A))].last_caught_up_ms

    single.fetch_of(A, 1, 1)
    first_ms = single.now
    assert caught_up_ms() == first_ms
    single.append(3)
    single.now += 100
    single.fetch_of(A, 1, 1)
    single.append(3)
    single.now += 100
    single.fetch_of(A, 4, 1)
    assert caught_up_ms() == first_ms + 100


def test_leader_counts_its_own_log_only_up_to_its_synced_offset() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.append(3)
    single.fetch_of(A, 4, 1)
    assert committed(single) is None
    single.step(LogSynced(1, single.raft.log.generation))
    assert committed(single) == 1
    single.step(LogSynced(4, single.raft.log.generation))
    assert committed(single) == 4


def test_sole_voter_elects_itself_at_once_and_commits_after_its_sync() -> None:
    single = Single(voters=voter_set(ME))
    assert single.raft.is_leader
    assert committed(single) is None
    single.sync()
    assert committed(single) == 1
    again = Single(voters=voter_set(ME), stored=QuorumState(1, ME, key(ME)), epochs=((1, 0),), end_offset=1)
    assert again.raft.is_leader
    assert again.raft.epoch == 2


def test_observers_never_count_for_the_high_watermark() -> None:
    single = leading()
    single.sync()
    for observer in (C, 5, 6):
        assert single.fetch_of(observer, 1, 1) is None
    assert committed(single) is None


def test_diverging_fetch_and_fetch_past_the_log_end_record_no_progress() -> None:
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


def test_configured_voter_with_a_new_disk_counts_by_its_latest_directory_id() -> None:
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


def test_fetch_with_a_wrong_epoch_or_to_a_non_leader_is_rejected() -> None:
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


def test_fetch_at_the_log_end_is_parked_until_the_end_of_a_pass_with_an_append() -> None:
    single = leading()
    assert single.fetch_of(A, 1, 1) is None
    ready = single.append(2)
    assert ready.pass_wanted
    assert not ready.answers
    (answer,) = single.step(PassEnded()).answers
    assert isinstance(answer, ReplyWithRecords)
    assert (answer.offset, answer.end_offset) == (1, 3)


def test_parked_fetch_is_answered_if_the_requester_lacks_the_high_watermark() -> None:
    single = leading()
    assert single.fetch_of(A, 1, 1) is None
    ready = single.sync()
    assert ready.high_watermark == 1
    assert ready.pass_wanted
    (answer,) = single.step(PassEnded()).answers
    assert isinstance(answer, Reply)
    assert answer.response.high_watermark == 1
    assert single.fetch_of(A, 1, 1, high_watermark=1) is None


def test_parked_fetch_gets_an_empty_success_after_its_max_wait() -> None:
    single = leading()
    single.fetch_of(A, 1, 1, max_wait_ms=100)
    assert single.last.deadline_ms == single.now + 100
    (answer,) = single.tick(100).answers
    assert isinstance(answer, Reply)
    assert answer.response.error_code == ErrorCode.NONE


def test_second_fetch_of_a_replica_ends_its_parked_fetch() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.fetch_of(A, 1, 1)
    assert len(single.last.answers) == 1
    assert isinstance(single.raft.role, Leader)
    assert len(single.raft.role.parked) == 1


def test_fetch_is_parked_at_most_for_the_leaders_own_wait_limit() -> None:
    single = leading()
    single.fetch_of(A, 1, 1, max_wait_ms=1 << 40)
    assert single.last.deadline_ms == single.now + RaftSettings().fetch_wait_ms


def test_parked_fetches_fail_when_the_leader_resigns() -> None:
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
def test_fetch_below_the_log_start_is_directed_to_the_latest_snapshot(offset: int, epoch: int) -> None:
    single, latest = trimmed_leader()
    answer = single.fetch_of(B, offset, epoch)
    assert (answer.snapshot_end_offset, answer.snapshot_epoch) == (latest.end_offset, latest.epoch)


def test_fetch_at_the_log_start_gets_records() -> None:
    single, _ = trimmed_leader()
    single.fetch_of(B, 5, 1)
    assert isinstance(single.last.answers[0], ReplyWithRecords)


def test_snapshot_is_served_by_position_and_an_unknown_one_is_not_found() -> None:
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


def test_snapshot_may_be_written_only_of_committed_state_with_the_right_epoch() -> None:
    single, _ = trimmed_leader()
    assert not single.raft.may_snapshot(SnapshotId(11, 1))
    assert not single.raft.may_snapshot(SnapshotId(9, 2))
    assert not single.raft.may_snapshot(SnapshotId(4, 1))
    assert not single.raft.may_snapshot(SnapshotId(0, 0))
    assert not following().raft.may_snapshot(SnapshotId(9, 1))
