"""`Raft`: one replica of the metadata quorum as a pure state machine. It takes an input and the time, and returns a
`Ready`.

The tables here map each input to its handler; the handlers are in the modules of the roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.raft import ballots, campaign, follower, leader
from kraft.raft.core import Core
from kraft.raft.fencing import adopt
from kraft.raft.identity import Identity, VoterSet
from kraft.raft.inputs import (
    AppendRequested,
    ConnectionEnded,
    Input,
    LogSynced,
    LogTrimmed,
    PassEnded,
    Redialled,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotWritten,
    Tick,
    VotersChangeRequested,
)
from kraft.raft.log_view import LogView, SnapshotId
from kraft.raft.ready import QuorumState, Ready
from kraft.raft.settings import RaftSettings
from kraft.raft.startup import resume
from kraft.raft.state import (
    Leader,
    Progress,
    Resigned,
    Role,
)
from kraft.raft.timers import next_deadline, tick
from kraft.seam import Address, InvariantError, Random
from kraft.wire.rpc.quorum_messages import (
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


class Raft:
    """One replica of the quorum. Not re-entrant: carry out one Ready (as far as its order demands) before the next
    step."""

    __slots__ = ("_core",)

    def __init__(
        self,
        identity: Identity,
        settings: RaftSettings,
        log: LogView,
        stored: QuorumState,
        bootstrap: tuple[Address, ...] = (),
    ) -> None:
        """Create a replica from its state on disk. `bootstrap` lists the addresses that an observer fetches from if its
        log names no voters."""
        self._core = Core(identity, settings, log, stored, bootstrap)

    def start(self, now_ms: int, random: Random) -> Ready:
        """Enter the role that the stored state allows. Call it once, before the first step."""
        core = self._core
        core.now_ms, core.random = now_ms, random
        resume(core)
        return self._finish()

    def step(self, event: Input, now_ms: int, random: Random) -> Ready:
        """Handle one input. `now_ms` never decreases; `random` is the source of jitter."""
        core = self._core
        core.now_ms, core.random = now_ms, random
        _HANDLERS[type(event)](core, event)
        return self._finish()

    def _finish(self) -> Ready:
        core = self._core
        follower.send_fetch_if_due(core)
        return core.take_ready(next_deadline(core), may_stop=core.is_stopping and _is_resignation_acknowledged(core))

    # queries of the driver

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_id(self) -> int | None:
        """The known leader of the epoch; None while this node is resigned."""
        return None if isinstance(self._core.role, Resigned) else self._core.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.role, Leader)

    @property
    def voted(self) -> object:
        return self._core.voted

    @property
    def high_watermark(self) -> int | None:
        return self._core.high_watermark

    @property
    def log(self) -> LogView:
        """The log view; callers must not change it."""
        return self._core.log

    @property
    def voters(self) -> VoterSet:
        return self._core.voters

    @property
    def is_voter(self) -> bool:
        return self._core.is_voter

    def may_snapshot(self, snapshot: SnapshotId) -> bool:
        """Return whether the committed state up to this point may be written as a snapshot: it is within the log and
        has its epoch."""
        log, committed = self._core.log, self._core.high_watermark
        if committed is None or not log.start_offset <= snapshot.end_offset <= committed or snapshot.end_offset == 0:
            return False
        return log.epoch_before(snapshot.end_offset) == snapshot.epoch

    def progress(self) -> dict[tuple[int, UUID | None], Progress]:
        """The leader's record of each replica's progress, by (node id, directory id); empty on other nodes."""
        role = self._core.role
        return dict(role.progress) if isinstance(role, Leader) else {}


# requests

_REQUESTS: Mapping[type[Any], Callable[[Core, int, Any], None]] = MappingProxyType(
    {
        VoteRequest: ballots.handle_vote,
        BeginQuorumEpochRequest: ballots.handle_begin,
        EndQuorumEpochRequest: ballots.handle_end,
        MetadataFetchRequest: leader.handle_fetch,
        FetchSnapshotRequest: leader.handle_fetch_snapshot,
    }
)


def _on_request(core: Core, event: RequestReceived) -> None:
    _REQUESTS[type(event.request)](core, event.token, event.request)


# responses


def _on_response(core: Core, event: ResponseReceived) -> None:
    sent = core.outstanding.pop(event.request_id, None)
    if sent is None:
        return
    response = event.response
    if type(response).api_key != sent.kind.api_key:
        raise InvariantError(f"a {sent.kind.__name__} was answered with a {type(response).__name__}")
    if isinstance(response, MetadataFetchResponse):
        follower.handle_fetch_response(core, sent.node_id, sent.generation, response, event.batches)
    elif isinstance(response, FetchSnapshotResponse):
        follower.handle_snapshot_response(core, sent.node_id, response)
    elif isinstance(response, VoteResponse):
        campaign.handle_vote_response(core, sent.node_id, response)
    elif isinstance(response, EndQuorumEpochResponse):
        _record_resignation_acknowledged(core, sent.node_id)
        adopt(core, response)
    else:
        adopt(core, response)


def _on_failure(core: Core, event: RequestFailed) -> None:
    sent = core.outstanding.pop(event.request_id, None)
    if sent is None:
        return
    if event.request_id == core.fetch.request_id:
        follower.handle_fetch_failure(core, event.failure)
    elif sent.kind is VoteRequest:
        campaign.handle_vote_failure(core, sent.node_id, event.failure)
    elif sent.kind is EndQuorumEpochRequest:
        _record_resignation_acknowledged(core, sent.node_id)


def _record_resignation_acknowledged(core: Core, node_id: int) -> None:
    """Record that this voter has acknowledged the resignation, or cannot be reached."""
    if isinstance(core.role, Resigned):
        core.role.unacked.discard(node_id)


# other inputs


def _is_resignation_acknowledged(core: Core) -> bool:
    """Return whether no acknowledgement of the resignation is awaited any more."""
    return not isinstance(core.role, Resigned) or not core.role.unacked or core.now_ms >= core.stop_by_ms


def _on_sync(core: Core, event: LogSynced) -> None:
    core.log.mark_synced(event.end_offset, event.generation)
    if isinstance(core.role, Leader):
        leader.advance_high_watermark(core, core.role)


def _on_pass_end(core: Core, event: PassEnded) -> None:
    if isinstance(core.role, Leader):
        leader.answer_parked(core, core.role, only_due=False)


def _on_trim(core: Core, event: LogTrimmed) -> None:
    core.log.trim(event.start_offset)


def _on_refused_snapshot(core: Core, event: SnapshotRefused) -> None:
    follower.abandon_download(core)


def _on_resign(core: Core, event: ResignRequested) -> None:
    if isinstance(core.role, Leader) and core.epoch == event.epoch:
        leader.resign(core, core.role)


def _on_shutdown(core: Core, event: ShutdownRequested) -> None:
    core.is_stopping = True
    core.stop_by_ms = core.now_ms + core.settings.resign_wait_ms
    if isinstance(core.role, Leader):
        leader.resign(core, core.role)


_HANDLERS: Mapping[type[Any], Callable[[Core, Any], None]] = MappingProxyType(
    {
        RequestReceived: _on_request,
        ResponseReceived: _on_response,
        RequestFailed: _on_failure,
        ConnectionEnded: lambda core, event: follower.handle_connection_end(core, event.node_id),
        Redialled: lambda core, event: follower.handle_redialled(core, event.node_id, event.failure),
        Tick: lambda core, event: tick(core),
        PassEnded: _on_pass_end,
        AppendRequested: lambda core, event: leader.append_events(core, event.payload),
        VotersChangeRequested: lambda core, event: leader.append_voters(core, event.voters),
        LogSynced: _on_sync,
        SnapshotInstalled: lambda core, event: follower.install_snapshot(core, event.snapshot, event.voters),
        SnapshotRefused: _on_refused_snapshot,
        SnapshotWritten: lambda core, event: core.log.add_snapshot(event.snapshot),
        LogTrimmed: _on_trim,
        ResignRequested: _on_resign,
        ShutdownRequested: _on_shutdown,
    }
)
