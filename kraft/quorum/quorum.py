"""The metadata quorum of one node: the raft core driven over the seam.

There is one per process: controllers vote in it, brokers observe it, combined nodes share it. A damaged log stops a
voter with a message that explains how to rejoin. An observer deletes its damaged log, keeps its epoch, and fetches
again.
Source: KIP-595, docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

import structlog
import trio

from kraft.config import NodeConfig
from kraft.node.log_limit import LogLimit
from kraft.node.peers import Peers
from kraft.node.stepping import run_steps
from kraft.quorum import node_settings as quorum_settings
from kraft.quorum.counters import QuorumMeasures
from kraft.quorum.listener_delivery import Delivery, MetadataListener
from kraft.quorum.metadata_batches import CommittedBatch
from kraft.quorum.metadata_log import MetadataLog
from kraft.quorum.own_snapshots import SnapshotKeeper
from kraft.quorum.raft_driver import QuorumDriver
from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.inputs import ShutdownRequested
from kraft.raft.log_view import LogView, SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import QuorumState
from kraft.raft.state import Progress
from kraft.seam import Address, Seam, StorageCorrupt, WireError, require
from kraft.storage.meta_properties import MetaProperties
from kraft.storage.reading import TimestampedOffset
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey, decode_rpc_request, encode_rpc
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)
from kraft.wire.server import Request

__all__ = [
    "CommittedBatch",
    "MetadataListener",
    "NotLeader",
    "Quorum",
    "QuorumDescription",
    "ReplicaDescription",
]

log = structlog.get_logger("kraft.quorum")

QUORUM_KEYS = frozenset(
    (
        InternalKey.VOTE,
        InternalKey.BEGIN_QUORUM_EPOCH,
        InternalKey.END_QUORUM_EPOCH,
        InternalKey.METADATA_FETCH,
        InternalKey.FETCH_SNAPSHOT,
    )
)
QUORUM_REQUESTS = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    MetadataFetchRequest,
    FetchSnapshotRequest,
)

_NOT_OPEN = MappingProxyType(
    {
        InternalKey.VOTE: VoteResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE),
        InternalKey.BEGIN_QUORUM_EPOCH: BeginQuorumEpochResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE),
        InternalKey.END_QUORUM_EPOCH: EndQuorumEpochResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE),
        InternalKey.METADATA_FETCH: MetadataFetchResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE),
        InternalKey.FETCH_SNAPSHOT: FetchSnapshotResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE),
    }
)
"""Response of a node that has not opened its log yet, or has closed it: it certainly does not lead."""


class NotLeader(Exception):
    """Error: this node does not lead the quorum. `leader_id` (or None) and `epoch` are the latest that the node
    knows."""

    def __init__(self, leader_id: int | None, epoch: int) -> None:
        super().__init__(f"not the quorum leader; the leader of epoch {epoch} is {leader_id}")
        self.leader_id = leader_id
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica as the leader sees it. Times are wall clock ms, -1 when unknown."""

    replica_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """Content of a DescribeQuorum response. Only the leader knows the state of voters and observers; other nodes know
    only the voters."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    endpoints: tuple[tuple[int, str, int], ...]
    """(node id, host, port) of each voter."""


class Quorum:
    def __init__(self, config: NodeConfig, seam: Seam, meta: MetaProperties) -> None:
        self._config = config
        self._seam = seam
        self._meta = meta
        self._files = trio.Lock()
        self._delivery = Delivery(self._files)
        self.log_limit = LogLimit(seam.clock)
        """Rate limit of the quorum's log lines; the node calls its `report` periodically."""
        self.measures = QuorumMeasures()
        self.peers = Peers(seam, client_id=f"quorum-{config.node_id}")
        self._driver: QuorumDriver | None = None
        self._keeper: SnapshotKeeper | None = None
        self._configured = quorum_settings.configured_voters(config)
        self._is_stopping = False
        self._is_closed = False
        self._work = trio.CancelScope()
        self._work_ended = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the log, recover, then drive raft until cancelled. Raises StorageCorrupt if a voter's log is damaged,
        and DiskError."""
        metadata, view, stored = await self._seam.disk.offload(self._open)
        config = self._config
        identity = quorum_settings.raft_identity(config, self._meta)
        raft = Raft(
            identity,
            quorum_settings.raft_settings(config),
            view,
            stored,
            quorum_settings.bootstrap_addresses(config),
        )
        driver = QuorumDriver(
            self._seam,
            raft,
            metadata,
            self.peers,
            self._delivery,
            self._files,
            listener=quorum_settings.controller_listener(config),
            tls=quorum_settings.peer_tls(config),
            may_vote=identity.may_vote,
            log_limit=self.log_limit,
            measures=self.measures,
        )
        keeper = SnapshotKeeper(
            self._seam,
            driver,
            self._delivery,
            retention_bytes=config.integer("metadata.max.retention.bytes"),
            retention_ms=config.integer("metadata.max.retention.ms"),
        )
        newest = view.latest_snapshot
        is_state = newest is not None and newest.end_offset > 0
        self._delivery.open(metadata, newest if is_state else None, view.end_offset)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.peers.run)
            self._driver, self._keeper = driver, keeper
            with self._work:
                async with trio.open_nursery() as work:
                    await work.start(driver.run)
                    work.start_soon(keeper.run)
                    task_status.started()
            self._work_ended.set()
            await trio.sleep_forever()

    def _open(self) -> tuple[MetadataLog, LogView, QuorumState]:
        config, disk = self._config, self._seam.disk
        arguments = (
            disk,
            self._seam.clock,
            config.metadata_log_dir,
            quorum_settings.controller_listener(config),
            quorum_settings.log_config(config),
            self._configured,
        )
        try:
            return MetadataLog.open(*arguments)
        except StorageCorrupt as damage:
            if config.is_controller:
                raise
            log.warning("metadata log is damaged, fetching it again", problem=str(damage))
            MetadataLog.remove(disk, config.metadata_log_dir)
            return MetadataLog.open(*arguments)

    async def shutdown(self) -> None:
        """Resign if leading (EndQuorumEpoch), finish pending disk work, and end everything that uses the log. Then sync
        and close the log. `run` continues until cancelled."""
        driver = self._driver
        if driver is None or self._is_stopping:
            return
        driver.offer(ShutdownRequested())
        await driver.may_stop.wait()
        self._is_stopping = True
        await driver.stop()
        self._work.cancel()
        await self._work_ended.wait()
        await self._seam.disk.offload(driver.metadata.close)
        self._is_closed = True

    # state

    @property
    def leader_and_epoch(self) -> tuple[int | None, int]:
        """The leader and epoch last reported to listeners."""
        leadership = self._delivery.leadership
        return (leadership.leader_id, leadership.epoch)

    @property
    def high_watermark(self) -> int:
        """First offset that is not known to be committed; 0 at start."""
        return 0 if self._driver is None else self._driver.raft.high_watermark or 0

    @property
    def log_start_offset(self) -> int:
        """First offset of the log; a snapshot holds everything below it. 0 at start."""
        return 0 if self._driver is None else self._driver.raft.log.start_offset

    @property
    def committed_epochs(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) of every epoch that starts below the high watermark, ascending. The first pair
        covers everything before the log."""
        if self._driver is None:
            return []
        high_watermark = self.high_watermark
        return [entry for entry in self._driver.raft.log.epochs if entry[1] < high_watermark]

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return whole committed batches from `offset` on (log start <= `offset` < high watermark), at least one.
        Raises ColdRead."""
        require(self._driver is not None, "the metadata log is not open")
        assert self._driver is not None
        return self._driver.metadata.read(offset, bytes_max, self.high_watermark)

    async def offset_at(self, timestamp: int) -> TimestampedOffset | None:
        """Return offset and timestamp of the first record, committed or not, whose timestamp is at or after this time.
        None if there is none."""
        if self._driver is None:
            return None
        async with self._files:
            return await run_steps(self._seam.disk, self._driver.metadata.log.offset_for_timestamp(timestamp))

    @property
    def log_end_offset(self) -> int:
        return 0 if self._driver is None else self._driver.raft.log.end_offset

    @property
    def is_closed(self) -> bool:
        """Whether `shutdown` is complete, so that nothing uses the log any more."""
        return self._is_closed

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and would accept an append."""
        driver = self._driver
        return driver is not None and driver.raft.is_leader and not driver.is_blocked and not self._is_stopping

    def describe(self) -> QuorumDescription:
        """Return voters and observers as this node knows them."""
        driver = self._driver
        voters = self._configured if driver is None else driver.raft.voters
        endpoints = tuple((v.key.node_id, v.address.host, v.address.port) for v in voters.voters)
        leader_id, epoch = self.leader_and_epoch
        known = [] if driver is None else self._describe_replicas(driver, voters)
        return QuorumDescription(
            -1 if leader_id is None else leader_id,
            epoch,
            self.high_watermark,
            tuple(replica for replica in known if _is_voter(replica, voters)),
            tuple(replica for replica in known if not _is_voter(replica, voters)),
            endpoints,
        )

    def _describe_replicas(self, driver: QuorumDriver, voters: VoterSet) -> list[ReplicaDescription]:
        clock = self._seam.clock
        wall_offset_ms = clock.wall_ms() - clock.monotonic_ms()

        def wall(monotonic_ms: int) -> int:
            return -1 if monotonic_ms < 0 else monotonic_ms + wall_offset_ms

        progress = driver.raft.progress()
        found = {key: progress[key] for key in sorted(progress, key=str)}
        replicas = [
            ReplicaDescription(
                replica_id,
                _text(directory),
                known.end_offset,
                wall(known.last_fetch_ms),
                wall(known.last_caught_up_ms),
            )
            for (replica_id, directory), known in _newest(found, voters).items()
        ]
        now_ms = clock.wall_ms() if driver.raft.is_leader else -1
        end_offset = driver.raft.log.end_offset
        own = ReplicaDescription(self._config.node_id, str(self._meta.directory_id), end_offset, now_ms, now_ms)
        described = {replica.replica_id for replica in (*replicas, own) if _is_voter(replica, voters)}
        silent = [
            ReplicaDescription(voter.key.node_id, _text(voter.key.directory_id), -1, -1, -1)
            for voter in voters.voters
            if voter.key.node_id not in described
        ]
        replicas += [*silent, own] if driver.raft.is_leader or driver.raft.is_voter else silent
        return sorted(replicas, key=lambda replica: replica.replica_id)

    @property
    def replica(self) -> Raft | None:
        """The raft core, which callers read and never change; None until the log is open."""
        return None if self._driver is None else self._driver.raft

    # actions

    def append(self, events: Sequence[bytes]) -> int:
        """Append one atomic batch of event values, as the leader. Return its end offset (exclusive). Raises
        NotLeader."""
        end_offset = None if self._driver is None else self._driver.append(tuple(events))
        if end_offset is None:
            raise NotLeader(*self.leader_and_epoch)
        return end_offset

    def change_voters(self, voters: VoterSet) -> int | str:
        """Append a Voters record, as the leader. Return its offset, or the core's reason to refuse the change. The new
        set must differ by at most one voter, and no other change may be pending. Raises NotLeader."""
        driver = self._driver
        if driver is None or not self.is_leader:
            raise NotLeader(*self.leader_and_epoch)
        return driver.change_voters(voters)

    async def wait_committed(self, offset: int, deadline_ms: int) -> bool | None:
        """Wait until the record that this leader appended at `offset` is committed. Return True once it is, False if it
        may be lost with the leadership, None on timeout."""
        require(self._driver is not None, "the metadata log is not open")
        assert self._driver is not None
        return await self._driver.wait_committed(offset, deadline_ms)

    @property
    def own_key(self) -> ReplicaKey:
        """The key under which this replica is a voter, or would be one."""
        return ReplicaKey(self._config.node_id, self._meta.directory_id)

    @property
    def own_address(self) -> Address | None:
        """The address at which other controllers reach this one; None for a broker."""
        return quorum_settings.raft_identity(self._config, self._meta).address

    @property
    def voters(self) -> VoterSet:
        """The latest voter set in this node's log, committed or not."""
        return self._configured if self._driver is None else self._driver.raft.voters

    def add_listener(self, listener: MetadataListener) -> None:
        """Add a listener of the committed log, best before `run`. The listener gets the snapshot and everything
        committed after it."""
        self._delivery.add(listener)

    def handle(self, request: Request) -> bool:
        """Serve a quorum RPC; return False if the key is not one. Raises WireError if the body does not parse."""
        if request.api_key not in QUORUM_KEYS:
            return False
        message = decode_rpc_request(request.api_key, request.api_version, request.body)
        if self._driver is None or self._is_stopping:
            request.respond(encode_rpc(_NOT_OPEN[InternalKey(request.api_key)], request.api_version))
        elif isinstance(message, QUORUM_REQUESTS):
            self._driver.receive(request, message)
        else:
            raise WireError(f"{type(message).__name__} is not a request of the quorum")
        return True

    def request_snapshot(self, offset: int, epoch: int, chunks: Iterable[Sequence[bytes]]) -> None:
        """Write a snapshot of committed state up to `offset` (exclusive); `chunks` yields its records."""
        if self._keeper is not None:
            self._keeper.request(SnapshotId(offset, epoch), chunks)


def _text(directory_id: UUID | None) -> str:
    return "" if directory_id is None else str(directory_id)


def _is_voter(replica: ReplicaDescription, voters: VoterSet) -> bool:
    """Return whether this replica is a voter. It is not if the voter set names another directory of its node."""
    directory_id = UUID(replica.directory_id) if replica.directory_id else None
    return voters.includes(ReplicaKey(replica.replica_id, directory_id))


ProgressByKey = dict[tuple[int, UUID | None], Progress]


def _newest(progress: ProgressByKey, voters: VoterSet) -> ProgressByKey:
    """Return the progress of each replica. For a configured voter that came back with another directory, only the
    replica that fetched last is included."""
    chosen: dict[object, tuple[tuple[int, UUID | None], Progress]] = {}
    for key, known in progress.items():
        voter = voters.find(key[0])
        name = key[0] if voter is not None and voter.key.directory_id is None else key
        if name not in chosen or chosen[name][1].last_fetch_ms < known.last_fetch_ms:
            chosen[name] = (key, known)
    return dict(chosen.values())
