"""Follower: the one fetch in flight, the effect of its response on the log, snapshots, and contact with the leader.

A fetch at offset N acknowledges everything below N as synced, so a node that may vote fetches only when its log is
synced. Truncation goes to the offset up to which both logs agree by epoch, never below the high watermark.
Source: KIP-595, KIP-630, Kafka's KafkaRaftClient, docs/decisions/05-fast-fencing.md#voters.
"""

from __future__ import annotations

from kraft.raft.core import Core
from kraft.raft.fencing import adopt
from kraft.raft.identity import VoterSet
from kraft.raft.inputs import Failure
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.raft.ready import AppendFetched, Destination, Purpose, SnapshotChunk, Truncate
from kraft.raft.state import NEVER, Download, FastCampaign, Follower, Prospective, Role, Unattached
from kraft.raft.transitions import resume_following
from kraft.seam import InvariantError, require
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
)

# sending


def send_fetch_if_due(core: Core) -> None:
    """Keep one fetch in flight: to the leader, or, for an observer that cannot reach the leader, to the voters
    in turn."""
    fetch, role, log = core.fetch, core.role, core.log
    if fetch.request_id is not None or not _may_fetch(core, role):
        return
    if core.now_ms < fetch.not_before_ms or core.is_stopping:
        return
    if core.identity.may_vote and log.synced_end_offset < log.end_offset:
        return
    destination = _destination(core)
    if destination is None:
        return
    download = role.download if isinstance(role, Follower) else None
    if download is not None and download.is_complete:
        return
    request = _fetch_request(core) if download is None else _snapshot_request(core, download)
    fetch.request_id = core.send(destination.node_id, destination.address, Purpose.FETCH, request)


def next_fetch_ms(core: Core) -> int:
    """Return the earliest time at which `send_fetch_if_due` may send; NEVER if no fetch can be sent until another input
    arrives."""
    fetch = core.fetch
    if fetch.request_id is not None or fetch.not_before_ms <= core.now_ms or core.is_stopping:
        return NEVER
    return fetch.not_before_ms if _may_fetch(core, core.role) else NEVER


def _may_fetch(core: Core, role: Role) -> bool:
    """Return whether this role fetches: a follower, or an observer that knows no leader yet."""
    return isinstance(role, Follower) or (isinstance(role, Unattached) and not core.is_voter)


def _destination(core: Core) -> Destination | None:
    leader = _leader(core) if isinstance(core.role, Follower) else None
    if leader is not None and not core.fetch.is_probing:
        return leader
    voters = [Destination(voter.key.node_id, voter.address) for voter in core.voters.voters]
    known = {choice.address for choice in voters} | {core.identity.address}
    choices = [choice for choice in voters if choice.node_id != core.node_id]
    choices += [Destination(-1, address) for address in core.bootstrap if address not in known]
    if leader is not None and leader not in choices:  # it may have become a voter in a record past the end of our log
        choices.append(leader)
    if not choices:
        return None
    first = core.random.below(len(choices)) if core.fetch.failures <= 1 else core.fetch.failures
    return choices[first % len(choices)]


def _leader(core: Core) -> Destination | None:
    address = None if core.leader_id is None else core.address_of(core.leader_id)
    return None if core.leader_id is None or address is None else Destination(core.leader_id, address)


def _fetch_request(core: Core) -> MetadataFetchRequest:
    settings = core.settings
    return MetadataFetchRequest(
        cluster_id=core.identity.cluster_id,
        replica_id=core.node_id,
        replica_directory_id=core.identity.key.directory_id,
        epoch=core.epoch,
        fetch_offset=core.log.end_offset,
        last_fetched_epoch=core.log.last_epoch,
        max_wait_ms=settings.fetch_wait_ms,
        max_bytes=settings.fetch_bytes_max,
        high_watermark=-1 if core.high_watermark is None else core.high_watermark,
    )


def _snapshot_request(core: Core, download: Download) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        cluster_id=core.identity.cluster_id,
        replica_id=core.node_id,
        replica_directory_id=core.identity.key.directory_id,
        epoch=core.epoch,
        snapshot_end_offset=download.snapshot.end_offset,
        snapshot_epoch=download.snapshot.epoch,
        position=download.position,
        max_bytes=core.settings.snapshot_chunk_bytes,
    )


# contact with the leader


def lose_contact(core: Core, follower: Follower) -> None:
    """Set leader_contact to LOST; a voter starts a pre-vote round soon, in the order of rank."""
    if follower.lost_since_ms is not None:
        return
    follower.lost_since_ms = core.now_ms
    if core.is_voter:
        core.fast_campaign = core.fast_campaign or FastCampaign()
        follower.campaign_at_ms = core.first_fast_round()


def _gain_contact(core: Core, follower: Follower) -> None:
    follower.lost_since_ms = None
    follower.campaign_at_ms = NEVER
    follower.has_fetched = True
    follower.fetch_deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
    core.fast_campaign = None
    core.rounds_lost = 0
    core.fetch.failures = 0
    core.fetch.is_probing = False
    core.fetch.not_before_ms = 0


def redial_leader(core: Core) -> None:
    """Redial the leader at once, after a pre-vote request or a closed connection, to find out whether it still
    answers."""
    role = core.role
    if not isinstance(role, Follower) or role.lost_since_ms is not None or core.leader_id is None:
        return
    if core.fetch.request_id is not None:
        return
    address = core.address_of(core.leader_id)
    if address is not None:
        core.out.redial = Destination(core.leader_id, address)


def handle_redialled(core: Core, node_id: int, failure: Failure | None) -> None:
    role = core.role
    if isinstance(role, Follower) and core.leader_id == node_id and failure is Failure.REFUSED:
        lose_contact(core, role)


def handle_fetch_failure(core: Core, failure: Failure) -> None:
    """Handle a fetch that got no response."""
    fetch, role = core.fetch, core.role
    fetch.request_id = None
    fetch.failures += 1
    is_to_leader = isinstance(role, Follower) and not fetch.is_probing
    if is_to_leader and failure is Failure.CLOSED and fetch.failures == 1:
        fetch.not_before_ms = core.now_ms
        return
    _back_off(core)
    if isinstance(role, Follower) and is_to_leader:
        if failure is Failure.REFUSED:
            lose_contact(core, role)
        _probe(core)


def _probe(core: Core) -> None:
    """Make an observer whose leader does not answer fetch from the voters at once."""
    if not core.is_voter and not core.fetch.is_probing:
        core.fetch.is_probing = True
        core.fetch.not_before_ms = core.now_ms


def _back_off(core: Core) -> None:
    settings, fetch = core.settings, core.fetch
    if core.is_voter:
        wait = settings.retry_backoff_ms << min(fetch.failures, 10)
        wait = min(wait // 2, settings.election_timeout_ms)
    else:
        turns = fetch.failures // max(1, len(core.voters) + len(core.bootstrap))
        wait = min(settings.retry_backoff_ms << min(turns, 10), settings.observer_retry_max_ms)
    fetch.not_before_ms = core.now_ms + wait


# responses


def handle_fetch_response(
    core: Core, node_id: int, generation: int, response: MetadataFetchResponse, batches: tuple[BatchSummary, ...]
) -> None:
    """Truncate, start a snapshot download, or append, as the leader's response demands; then update the high
    watermark."""
    follower = _accept(core, node_id, response)
    if follower is None:
        return
    if generation != core.log.generation:
        return
    if response.snapshot_end_offset >= 0:
        _begin_download(core, follower, SnapshotId(response.snapshot_end_offset, response.snapshot_epoch))
    elif response.diverging_epoch >= 0:
        _truncate(core, response.diverging_epoch, response.diverging_end_offset)
    else:
        _append(core, response, batches)


def _accept(core: Core, node_id: int, response: MetadataFetchResponse | FetchSnapshotResponse) -> Follower | None:
    """Return the follower role if the response is a success of the current epoch's leader, else None."""
    fetch = core.fetch
    fetch.request_id = None
    is_success = adopt(core, response) and response.error_code == ErrorCode.NONE
    if not is_success:
        if core.fetch is fetch:
            _handle_refusal(core, node_id, response)
        return None
    if isinstance(core.role, Prospective) and core.role.follower is not None:
        resume_following(core, core.role.follower)
    # Only the leader answers a fetch with success, whatever address the fetch was sent to.
    if not isinstance(core.role, Follower) or core.leader_id != response.leader_id:
        return None
    _gain_contact(core, core.role)
    return core.role


def _handle_refusal(core: Core, node_id: int, response: MetadataFetchResponse | FetchSnapshotResponse) -> None:
    """Handle an error response that brought no newer epoch or leader."""
    core.fetch.failures += 1
    _back_off(core)
    role = core.role
    follower = role.follower if isinstance(role, Prospective) else role
    if not isinstance(follower, Follower) or node_id != core.leader_id:
        return
    if response.error_code == ErrorCode.BROKER_NOT_AVAILABLE or (
        response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and response.epoch == core.epoch
    ):
        lose_contact(core, follower)
    _probe(core)


def _begin_download(core: Core, follower: Follower, snapshot: SnapshotId) -> None:
    require(
        core.high_watermark is None or snapshot.end_offset >= core.high_watermark,
        f"snapshot {snapshot} ends below the high watermark {core.high_watermark}",
    )
    if follower.download is None or follower.download.snapshot != snapshot:
        core.out.discard_download = follower.download is not None
        follower.download = Download(snapshot)


def _truncate(core: Core, epoch: int, end_offset: int) -> None:
    log = core.log
    local_epoch, local_end = log.end_offset_for(epoch)
    target = min(local_end, end_offset) if local_epoch == epoch else local_end
    floor = log.start_offset if core.high_watermark is None else core.high_watermark
    require(target >= floor, f"truncation to {target} is below the high watermark {floor}: leader diverges at {epoch}")
    if target < log.end_offset:
        log.truncate(target)
        core.out.log.append(Truncate(target))


def _append(core: Core, response: MetadataFetchResponse, batches: tuple[BatchSummary, ...]) -> None:
    log = core.log
    if not _is_in_order(core, batches):
        core.fetch.failures += 1
        _back_off(core)
        return
    if batches:
        for batch in batches:
            log.append(batch)
        core.out.log.append(AppendFetched(response.records, batches))
    if response.high_watermark >= 0:
        offset = min(response.high_watermark, log.end_offset)
        known = core.high_watermark
        if known is not None and offset < known:
            raise InvariantError(f"high watermark decreased from {known} to {offset}")
        core.raise_high_watermark(offset)


def _is_in_order(core: Core, batches: tuple[BatchSummary, ...]) -> bool:
    """Return whether the batches continue this log. Batches that do not continue it are ignored."""
    offset, epoch = core.log.end_offset, core.log.last_epoch
    for batch in batches:
        if batch.base_offset != offset or not epoch <= batch.epoch <= core.epoch or batch.next_offset <= offset:
            return False
        offset, epoch = batch.next_offset, batch.epoch
    return True


def handle_snapshot_response(core: Core, node_id: int, response: FetchSnapshotResponse) -> None:
    """Accept the next chunk of a snapshot. After the last chunk the driver installs the snapshot."""
    missing = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
    if response.error_code in missing and response.epoch == core.epoch:
        core.fetch.request_id = None
        abandon_download(core)
        return
    follower = _accept(core, node_id, response)
    if follower is None or follower.download is None:
        return
    download = follower.download
    snapshot = SnapshotId(response.snapshot_end_offset, response.snapshot_epoch)
    end = response.position + len(response.data)
    is_expected = snapshot == download.snapshot and response.position == download.position
    if not is_expected or end > response.size or not response.data:
        abandon_download(core)
        return
    download.position = end
    download.is_complete = end == response.size
    core.out.chunk = SnapshotChunk(snapshot, response.position, response.data, download.is_complete)


def abandon_download(core: Core) -> None:
    """Drop the partial download and return to Fetch, whose response names the current snapshot."""
    role = core.role
    if isinstance(role, Follower) and role.download is not None:
        role.download = None
        core.out.discard_download = True
    core.fetch.failures += 1
    _back_off(core)


def install_snapshot(core: Core, snapshot: SnapshotId, voters: VoterSet | None) -> None:
    """Record that the snapshot has replaced the log; everything in it is committed."""
    role = core.role
    require(isinstance(role, Follower), f"a {type(role).__name__} cannot load a snapshot")
    committed = core.high_watermark
    require(
        committed is None or snapshot.end_offset >= committed, f"{snapshot} ends below the high watermark {committed}"
    )
    core.log.install(snapshot, voters if voters is not None else core.log.voters.at(0))
    core.raise_high_watermark(snapshot.end_offset)
    if isinstance(role, Follower):
        role.download = None


def handle_connection_end(core: Core, node_id: int) -> None:
    if core.leader_id == node_id:
        redial_leader(core)
