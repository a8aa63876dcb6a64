"""Leader: serving fetches, high watermark, check-quorum, announcing the epoch.

The high watermark is unknown until a majority of the latest voter set has a record of this epoch on disk; the
LeaderChange record is the first. The leader counts itself only while it is a voter, and only up to its synced offset.
Only valid fetches advance a replica's progress. A parked fetch is answered at the end of a pass.
Source: KIP-595, Raft paper, section 5.4.2, Raft dissertation, section 6.2 (check-quorum), Kafka's LeaderState.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kraft.raft.core import Core
from kraft.raft.fencing import check_fetch_epoch, is_other_cluster
from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.raft.ready import (
    AppendEvents,
    AppendLeaderChange,
    AppendVoters,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
)
from kraft.raft.state import NEVER, Leader, ParkedFetch, Progress, replica_name
from kraft.raft.transitions import refuse_fetch, to_resigned
from kraft.raft.votes import majority_of, majority_offset
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
)

FetchObstacle = SnapshotId | tuple[int, int]
"""Reason why a fetch cannot be served with records: a snapshot to load first, or the (epoch, end offset) where the logs
diverge."""
NO_SNAPSHOT = SnapshotId(-1, -1)

# start and end of the leader's epoch


def begin_leadership(core: Core, leader: Leader) -> None:
    """Append the LeaderChange record and announce the epoch. Append a Voters record too if only the first checkpoint
    names the voters, or if they name this node at another address."""
    base = core.log.end_offset
    core.log.append(BatchSummary(base, base + 1, core.epoch))
    core.out.log.append(AppendLeaderChange(base, core.epoch, core.node_id, core.voters.ids, leader.granting))
    is_first = core.log.start_offset == 0 and core.log.voters.latest_offset < 0
    voters = _at_our_address(core)
    if not core.voters.is_configured and (is_first or voters != core.voters):
        core.log.append(BatchSummary(base + 1, base + 2, core.epoch, voters))
        core.out.log.append(AppendVoters(base + 1, core.epoch, voters))
    announce(core, leader)


def _at_our_address(core: Core) -> VoterSet:
    """Return the voter set with this node at its present address, if that address is complete."""
    own, address = core.voters.find(core.node_id), core.identity.address
    if own is None or own.key != core.identity.key or address is None or not address.host or address.port <= 0:
        return core.voters
    moved = replace(own, address=address)
    return VoterSet(tuple(moved if voter is own else voter for voter in core.voters.voters))


def announce(core: Core, leader: Leader) -> None:
    """Send BeginQuorumEpoch to each other voter that has not fetched recently."""
    due_ms = core.settings.begin_epoch_ms
    leader.begin_due_ms = core.now_ms + due_ms
    for node_id in core.other_voters:
        progress = _progress_of_voter(core, leader, node_id)
        is_silent = progress is None or core.now_ms - progress.last_fetch_ms >= due_ms
        if is_silent and not core.has_request_in_flight(node_id, BeginQuorumEpochRequest):
            core.send_to_voter(node_id, _begin_request(core, node_id))


def _begin_request(core: Core, node_id: int) -> BeginQuorumEpochRequest:
    voter = core.voters.find(node_id)
    _, host, port = core.named_leader
    return BeginQuorumEpochRequest(
        cluster_id=core.identity.cluster_id,
        voter_id=node_id,
        voter_directory_id=None if voter is None else voter.key.directory_id,
        epoch=core.epoch,
        leader_id=core.node_id,
        leader_host=host,
        leader_port=port,
    )


def resign(core: Core, leader: Leader) -> None:
    """Resign from this epoch permanently, and notify the voters. The voter with the longest log is the first
    successor."""
    others = core.other_voters
    successors = sorted(others, key=lambda node_id: (-_end_offset_of_voter(core, leader, node_id), node_id))
    resign_to(core, tuple(successors), core.election_timeout())


def resign_to(core: Core, successors: tuple[int, ...], deadline_ms: int) -> None:
    """Resign and notify `successors`, which are in order of preference. At `deadline_ms` this node campaigns again, in
    a new epoch."""
    to_resigned(core, unacked=set(successors), successors=successors, deadline_ms=deadline_ms)
    for node_id in successors:
        request = EndQuorumEpochRequest(
            cluster_id=core.identity.cluster_id,
            epoch=core.epoch,
            leader_id=core.node_id,
            preferred_successors=successors,
        )
        core.send_to_voter(node_id, request)


# appending


def append_events(core: Core, payload: Sequence[bytes]) -> None:
    leader = core.role
    if not isinstance(leader, Leader) or core.is_stopping:
        core.out.refusal = f"node {core.node_id} does not lead epoch {core.epoch}"
        return
    base = core.log.end_offset
    core.log.append(BatchSummary(base, base + len(payload), core.epoch))
    core.out.log.append(AppendEvents(base, core.epoch, payload))
    _mark_news(core, leader)


def append_voters(core: Core, voters: VoterSet) -> None:
    """Append a Voters record that changes the set by one replica. Refused while an earlier change is not committed
    (KIP-853)."""
    refusal = _check_voters_change(core, voters)
    if refusal is not None:
        core.out.refusal = refusal
        return
    leader = core.role
    base = core.log.end_offset
    was_alone = core.is_sole_voter
    core.log.append(BatchSummary(base, base + 1, core.epoch, voters))
    core.out.log.append(AppendVoters(base, core.epoch, voters))
    if isinstance(leader, Leader):
        leader.voters_with_fetch.intersection_update(voters.ids)
        if was_alone:  # check-quorum starts now; a sole voter needs no fetches of others
            leader.check_quorum_deadline_ms = core.now_ms + core.settings.check_quorum_ms
        _mark_news(core, leader)


def _check_voters_change(core: Core, voters: VoterSet) -> str | None:
    leader = core.role
    if not isinstance(leader, Leader) or core.is_stopping:
        return f"node {core.node_id} does not lead epoch {core.epoch}"
    if leader.high_watermark is None:
        return f"no record of epoch {core.epoch} is committed yet"
    if core.log.voters.latest_offset >= leader.high_watermark:
        return f"the voters record at offset {core.log.voters.latest_offset} is not committed yet"
    if len(voters) == 0:
        return "a quorum needs at least one voter"
    if voters.differs_by(core.voters) > 1:
        return "only one voter may be added or removed at a time"
    return None


def _mark_news(core: Core, leader: Leader) -> None:
    if leader.parked:
        leader.has_news = True
    core.out.pass_wanted = core.out.pass_wanted or leader.has_news


# fetches


def handle_fetch(core: Core, token: int, request: MetadataFetchRequest) -> None:
    error = check_fetch_epoch(core, request.epoch)
    if is_other_cluster(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.fetch_offset < 0 or not 0 <= request.last_fetched_epoch <= max(request.epoch, 0):
        error = ErrorCode.INVALID_REQUEST
    leader = core.role
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        refuse_fetch(core, token, error)
        return
    key = ReplicaKey(request.replica_id, request.replica_directory_id)
    obstacle = _fetch_obstacle(core, request)
    if obstacle is None:
        _record_fetch(core, leader, key, request)
    else:
        _record_alive(core, leader, key)
    if core.role is not leader:
        # The fetch committed our own removal from the voter set.
        refuse_fetch(core, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif obstacle is None and request.max_wait_ms > 0 and not _has_news_for(core, leader, request):
        name = replica_name(key) if request.replica_id >= 0 else ("token", token)
        _park(core, leader, name, token, request)
    else:
        _answer_fetch(core, leader, token, request, obstacle)


def _park(core: Core, leader: Leader, name: object, token: int, request: MetadataFetchRequest) -> None:
    older = leader.parked.pop(name, None)
    if older is not None:
        _answer_fetch(core, leader, older.token, older.request, _fetch_obstacle(core, older.request))
    wait_ms = min(request.max_wait_ms, core.settings.fetch_wait_ms)
    leader.parked[name] = ParkedFetch(token, request, core.now_ms + wait_ms)


def _fetch_obstacle(core: Core, request: MetadataFetchRequest) -> FetchObstacle | None:
    log, offset, epoch = core.log, request.fetch_offset, request.last_fetched_epoch
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    if latest is not None and earliest is not None and latest.end_offset > 0:
        is_before = offset < log.start_offset or (offset == log.start_offset > 0 and epoch != earliest.epoch)
        if offset == 0 or is_before or (log.start_offset > 0 and epoch < earliest.epoch):
            return latest
    end_epoch, end_offset = log.end_offset_for(epoch)
    if end_epoch != epoch or end_offset < offset:
        return (end_epoch, end_offset)
    return None


def _has_news_for(core: Core, leader: Leader, request: MetadataFetchRequest) -> bool:
    """Return whether the log has records past the fetch offset, or the high watermark is above the one that the
    requester knows."""
    if request.fetch_offset < core.log.end_offset:
        return True
    known = leader.high_watermark
    return known is not None and request.high_watermark < known and request.high_watermark < request.fetch_offset


def _answer_fetch(
    core: Core, leader: Leader, token: int, request: MetadataFetchRequest, obstacle: FetchObstacle | None
) -> None:
    leader_id, host, port = core.named_leader
    snapshot, diverging = NO_SNAPSHOT, (-1, -1)
    if isinstance(obstacle, SnapshotId):
        snapshot = obstacle
    elif obstacle is not None:
        diverging = obstacle
    response = MetadataFetchResponse(
        epoch=core.epoch,
        leader_id=leader_id,
        leader_host=host,
        leader_port=port,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        log_start_offset=core.log.start_offset,
        diverging_epoch=diverging[0],
        diverging_end_offset=diverging[1],
        snapshot_end_offset=snapshot.end_offset,
        snapshot_epoch=snapshot.epoch,
    )
    end_offset = core.log.end_offset
    if obstacle is None and request.fetch_offset < end_offset:
        bytes_max = max(1, min(request.max_bytes, core.settings.fetch_bytes_max))
        core.out.answers.append(ReplyWithRecords(token, response, request.fetch_offset, end_offset, bytes_max))
    else:
        core.out.answers.append(Reply(token, response))


def answer_parked(core: Core, leader: Leader, *, only_due: bool) -> None:
    """Answer parked fetches: those with new data (at the end of a pass), and those whose maximum wait is over."""
    for name, parked in list(leader.parked.items()):
        is_due = parked.deadline_ms <= core.now_ms
        if is_due or (not only_due and _has_news_for(core, leader, parked.request)):
            del leader.parked[name]
            _answer_fetch(core, leader, parked.token, parked.request, _fetch_obstacle(core, parked.request))
    if not only_due:
        leader.has_news = False


def handle_fetch_snapshot(core: Core, token: int, request: FetchSnapshotRequest) -> None:
    error = check_fetch_epoch(core, request.epoch)
    snapshot = SnapshotId(request.snapshot_end_offset, request.snapshot_epoch)
    if is_other_cluster(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.position < 0 or request.max_bytes <= 0:
        error = ErrorCode.INVALID_REQUEST
    elif error is ErrorCode.NONE and (snapshot.end_offset == 0 or snapshot not in core.log.snapshots):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    where = {"snapshot_end_offset": snapshot.end_offset, "snapshot_epoch": snapshot.epoch, "position": request.position}
    response = core.answer_as(FetchSnapshotResponse, error, **where)
    leader = core.role
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        core.out.answers.append(Reply(token, response))
        return
    _record_alive(core, leader, ReplicaKey(request.replica_id, request.replica_directory_id))
    bytes_max = min(request.max_bytes, core.settings.snapshot_chunk_bytes)
    core.out.answers.append(ReplyWithSnapshot(token, response, snapshot, request.position, bytes_max))


# progress


def _record_fetch(core: Core, leader: Leader, key: ReplicaKey, request: MetadataFetchRequest) -> None:
    """Record a valid fetch at offset N, which acknowledges everything below N. If N reaches the log end as of the
    replica's previous fetch, the replica was caught up at the time of that previous fetch, not now."""
    known = leader.progress.get(replica_name(key))
    fetched_before_ms = -1 if known is None else known.last_fetch_ms
    progress = _record_alive(core, leader, key)
    if progress is None:
        return
    end = core.log.end_offset
    if request.fetch_offset >= end:
        progress.last_caught_up_ms = core.now_ms
    elif request.fetch_offset >= progress.leader_end_at_last_fetch >= 0:
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, fetched_before_ms)
    progress.leader_end_at_last_fetch = end
    progress.end_offset = request.fetch_offset
    if core.voters.includes(key):
        advance_high_watermark(core, leader)


def _record_alive(core: Core, leader: Leader, key: ReplicaKey) -> Progress | None:
    """Record that this replica is alive: for DescribeQuorum and, if it votes, for check-quorum."""
    if key.node_id < 0 or key.node_id == core.node_id:
        return None
    name = replica_name(key)
    progress = leader.progress.get(name)
    if progress is None:
        progress = leader.progress[name] = Progress()
    leader.latest_progress[key.node_id] = progress
    progress.last_fetch_ms = core.now_ms
    voters = core.voters
    if voters.includes(key):
        leader.voters_with_fetch.add(key.node_id)
        needed = majority_of(len(voters.ids)) - (1 if core.is_voter else 0)
        if len(leader.voters_with_fetch) >= needed:
            leader.voters_with_fetch.clear()
            leader.check_quorum_deadline_ms = core.now_ms + core.settings.check_quorum_ms
    return progress


def _progress_of_voter(core: Core, leader: Leader, node_id: int) -> Progress | None:
    voter = core.voters.find(node_id)
    if voter is None:
        return None
    if voter.key.directory_id is not None:
        return leader.progress.get(replica_name(voter.key))
    # A voter configured without a directory id may have come back with a new disk: the directory that fetched last
    # counts.
    return leader.latest_progress.get(node_id)


def _end_offset_of_voter(core: Core, leader: Leader, node_id: int) -> int:
    progress = _progress_of_voter(core, leader, node_id)
    return -1 if progress is None else progress.end_offset


def advance_high_watermark(core: Core, leader: Leader) -> None:
    """Raise the high watermark to the offset that a majority of the latest voter set has on disk, if that includes a
    record of this epoch."""
    membership, log = core.membership, core.log
    if not membership.voters.ids:
        return
    local_id = core.node_id if membership.is_voter else None
    ends = [
        log.synced_end_offset if node_id == local_id else _end_offset_of_voter(core, leader, node_id)
        for node_id in membership.voters.ids
    ]
    offset = min(majority_offset(ends), log.end_offset)
    if offset <= leader.epoch_start_offset or offset <= (leader.high_watermark or 0):
        return
    known = core.high_watermark
    if known is not None and offset < known:
        raise InvariantError(f"high watermark of epoch {core.epoch} is {offset}, {known} was known")
    leader.high_watermark = offset
    core.raise_high_watermark(offset)
    _mark_news(core, leader)
    if not core.is_voter and core.log.voters.latest_offset < offset:
        resign(core, leader)


# time


def leader_deadline(core: Core, leader: Leader) -> int:
    membership = core.membership
    deadline = leader.begin_due_ms if membership.other_ids else NEVER
    if not membership.is_sole_voter:
        deadline = min(deadline, leader.check_quorum_deadline_ms)
    for parked in leader.parked.values():
        if parked.deadline_ms < deadline:
            deadline = parked.deadline_ms
    return deadline


def tick_leader(core: Core, leader: Leader) -> None:
    if not core.is_sole_voter and core.now_ms >= leader.check_quorum_deadline_ms:
        resign(core, leader)
        return
    answer_parked(core, leader, only_due=True)
    if core.other_voters and core.now_ms >= leader.begin_due_ms:
        announce(core, leader)
    _forget_observers(core, leader)


def _forget_observers(core: Core, leader: Leader) -> None:
    oldest = core.now_ms - core.settings.observer_session_ms
    for name, progress in list(leader.progress.items()):
        if progress.last_fetch_ms < oldest and not core.voters.includes(ReplicaKey(*name)):
            del leader.progress[name]
            if leader.latest_progress.get(name[0]) is progress:
                del leader.latest_progress[name[0]]
