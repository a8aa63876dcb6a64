"""A fetch on its way: read what it asks for, answer, or park until there is enough to tell.

Invariants: it is answered once; a parked fetch is looked at only at the end of a pass in which one of its partitions
changed, and then everything is read afresh; records leave as file ranges. Source: broker-spec 4.1, 4.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.node.fetch_sessions import INITIAL_EPOCH, FetchedPartition, FetchSession
from kraft.broker.node.gates import CLUSTER, Operation, QuotaKind, topic_resource
from kraft.broker.node.leader_hints import current_leader, endpoints_of
from kraft.broker.node.partition_reading import FetchParams, LogNotOpen, NotInMemory, read_partition
from kraft.broker.node.purgatory import Parked
from kraft.broker.node.throttling import mute
from kraft.seam import DiskError, FileRange
from kraft.storage.handles import ColdRead
from kraft.wire.error_codes import ErrorCode
from kraft.wire.fetch import FetchResult
from kraft.wire.fetch_response import FIRST_VERSION_WITH_ENDPOINTS, encode_fetch_response
from kraft.wire.tagged import CurrentLeader

if TYPE_CHECKING:
    from kraft.broker.node.services import BrokerServices
    from kraft.broker.node.session import Session
    from kraft.wire.server import Request

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
FIRST_WITH_STORAGE_ERROR = 6
WARM_PIECE_BYTES = 1024 * 1024
NO_TOPIC_ID = UUID(int=0)

Read = tuple[FetchedPartition, FetchResult, int]
"""An entry, its answer, and how many bytes of records are in it."""


class FetchOperation(Parked):
    """One fetch request of one session (or of none: then `kept` has id 0)."""

    __slots__ = (
        "broker",
        "bytes_max",
        "counts_progress",
        "is_done",
        "is_full",
        "is_watching",
        "kept",
        "max_wait_ms",
        "min_bytes",
        "params",
        "probes",
        "request",
        "session",
        "session_epoch",
    )

    def __init__(
        self,
        broker: BrokerServices,
        request: Request,
        session: Session,
        kept: FetchSession,
        params: FetchParams,
        *,
        session_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        bytes_max: int,
    ) -> None:
        self.bucket = -1
        self.broker = broker
        self.request = request
        self.session = session
        self.kept = kept
        self.params = params
        self.session_epoch = session_epoch
        self.is_full = session_epoch <= INITIAL_EPOCH
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min(min_bytes, bytes_max)
        self.bytes_max = bytes_max
        self.counts_progress = params.is_follower
        self.probes = True
        self.is_done = False
        self.is_watching = kept.session_id != 0

    # life

    def start(self) -> None:
        """Answer now, or park."""
        previous = self.kept.parked
        if previous is not None:
            previous.give_way()
        self._try(final=self.max_wait_ms <= 0 or not self.kept.partitions)

    def wake(self) -> None:
        """One of the partitions changed in this pass."""
        self.broker.replicas.woken[self] = None

    def look_again(self) -> None:
        """The end of the pass, or what was missing is there now."""
        if not self.is_done:
            self._try(final=False)

    def expire(self) -> None:
        """max.wait is over: answer with what there is."""
        if not self.is_done:
            self.bucket = -1
            self.max_wait_ms = 0
            self._try(final=True)

    def give_way(self) -> None:
        """The session's next request is here: answer with nothing, and leave to it what it names, so that the offsets
        in it are counted as the follower's progress."""
        if not self.is_done:
            self._finish([], 0)

    def _try(self, *, final: bool) -> None:
        try:
            reads, size, is_urgent = self._read()
        except LogNotOpen as closed:
            closed.partition.when_open(self.look_again)
            return
        except (ColdRead, NotInMemory) as cold:
            self.broker.replicas.start_task(self._warm, cold)
            return
        if final or is_urgent or size >= self.min_bytes or self.max_wait_ms <= 0:
            self._finish(reads, size)
        elif self.bucket < 0:
            self._park()

    def _park(self) -> None:
        replicas = self.broker.replicas
        self.kept.parked = self
        if not self.is_watching:
            self.is_watching = True
            for entry in self.kept.partitions.values():
                entry.watch(replicas.find(entry.topic_key, entry.index))
        replicas.deadlines.add(self, replicas.clock.monotonic_ms() + self.max_wait_ms)

    async def _warm(self, cold: ColdRead | NotInMemory) -> None:
        """Bring what is missing into memory, off the loop, then look again."""
        disk = self.broker.seam.disk
        try:
            if isinstance(cold, ColdRead):
                await disk.offload(cold.warm)
                cold.adopt()
            else:
                self.probes = False
                await disk.offload(read_through, cold.ranges)
        except DiskError as trouble:
            self.broker.replicas.disk_failed_at(trouble)
        self.look_again()

    # reading

    def _read(self) -> tuple[list[Read], int, bool]:
        """Read everything that may have something to tell, in order. The answers, their bytes, and whether one of them
        is to be told at once."""
        entries: Iterable[FetchedPartition] = self.kept.partitions.values() if self.is_full else list(self.kept.dirty)
        reads: list[Read] = []
        left, total, is_urgent = self.bytes_max, 0, False
        for entry in entries:
            result = self._read_one(entry, max(min(entry.bytes_max, left), 0), at_least_one=total == 0)
            size = 0
            for piece in result.records:
                if isinstance(piece, FileRange):
                    size += piece.count
            left -= size
            total += size
            if result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
                is_urgent = True
            reads.append((entry, result, size))
        self.counts_progress = False
        return reads, total, is_urgent

    def _read_one(self, entry: FetchedPartition, bytes_max: int, *, at_least_one: bool) -> FetchResult:
        broker = self.broker
        partition = broker.replicas.find(entry.topic_key, entry.index)
        if partition is not entry.partition and self.is_watching:
            entry.watch(partition)
        params = self.params
        if partition is None:
            return FetchResult(entry.index, self._missing(entry))
        authorizer = broker.gates.authorizer
        if params.is_follower:
            allowed = authorizer.authorize(self.session, Operation.CLUSTER_ACTION, CLUSTER)
        else:
            allowed = authorizer.authorize(self.session, Operation.READ, partition.resource)
        if not allowed:
            return FetchResult(entry.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return read_partition(
            partition,
            entry,
            params,
            bytes_max,
            at_least_one=at_least_one,
            counts_progress=self.counts_progress,
            probes=self.probes,
        )

    def _missing(self, entry: FetchedPartition) -> ErrorCode:
        """Why a partition is not hosted here: unknown id, not allowed, unknown, or somebody else's."""
        broker = self.broker
        key = entry.topic_key
        name = key if isinstance(key, str) else broker.image.topics.name_of(key)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.params.is_follower:
            allowed = broker.gates.authorize(self.session, Operation.CLUSTER_ACTION, CLUSTER)
        else:
            allowed = broker.gates.authorize(self.session, Operation.READ, topic_resource(name))
        if not allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = broker.replicas.locate(name, entry.index)
        return found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # answering

    def _finish(self, reads: list[Read], size: int) -> None:
        replicas, kept = self.broker.replicas, self.kept
        self.is_done = True
        if self.bucket >= 0:
            replicas.deadlines.remove(self)
            self.bucket = -1
        if kept.parked is self:
            kept.parked = None
        throttle_ms = 0
        if not self.params.is_follower and size:
            throttle_ms = self.broker.gates.quotas.record(self.session, QuotaKind.FETCH_BYTES, size)
        if throttle_ms:
            mute(self.broker, self.request, throttle_ms)
            reads = []
        elif self.session_epoch == INITIAL_EPOCH:
            replicas.fetch_sessions.keep(kept, kept.used_ms)
        if kept.session_id:
            self._keep_watching()
            told = [read for read in reads if self._note_told(*read)]
        else:
            told = reads
            if self.is_watching:
                kept.close()
        self._count(told)
        self._answer(told, throttle_ms)

    def _keep_watching(self) -> None:
        if not self.is_watching:
            for entry in self.kept.partitions.values():
                entry.watch(self.broker.replicas.find(entry.topic_key, entry.index))

    def _note_told(self, entry: FetchedPartition, result: FetchResult, size: int) -> bool:
        """Remember what this answer tells of a session's partition. False if it need not be in it."""
        dirty = self.kept.dirty
        if result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
            entry.forget_told()
            dirty[entry] = None
            return True
        changed = (
            result.high_watermark != entry.known_high_watermark or result.log_start_offset != entry.known_log_start
        )
        entry.known_high_watermark = result.high_watermark
        entry.known_log_start = result.log_start_offset
        dirty.pop(entry, None)
        if size:
            dirty[entry] = None
            return True
        if self._has_more(entry):
            dirty[entry] = None
        return changed or self.is_full

    def _has_more(self, entry: FetchedPartition) -> bool:
        """There was no room in this answer for what the partition has."""
        partition = entry.partition
        if partition is None or partition.log is None:
            return True
        if self.params.is_follower:
            return partition.log.log_end_offset > entry.fetch_offset
        end = partition.last_stable_offset if self.params.read_committed else partition.high_watermark
        return end > entry.fetch_offset

    def _count(self, told: list[Read]) -> None:
        is_follower = self.params.is_follower
        for entry, result, size in told:
            partition = entry.partition or self.broker.replicas.find(entry.topic_key, entry.index)
            if partition is None:
                continue
            meters = partition.meters
            if result.error_code:
                meters.failed_fetches.count += 1
            elif is_follower:
                meters.replication_bytes_out.count += size
            else:
                meters.bytes_out.count += size

    def _answer(self, told: list[Read], throttle_ms: int) -> None:
        version = self.params.version
        results: dict[str | UUID, list[FetchResult]] = {}
        hinted = False
        for entry, result, _ in told:
            if result.error_code:
                if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_WITH_STORAGE_ERROR:
                    result = result._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
                elif result.error_code in HINTED and version >= FIRST_VERSION_WITH_ENDPOINTS:
                    result = result._replace(current_leader=self._hint(entry))
                    hinted = True
            rows = results.get(entry.topic_key)
            if rows is None:
                results[entry.topic_key] = [result]
            else:
                rows.append(result)
        by_id = self.kept.uses_topic_ids
        endpoints = []
        if hinted:
            leaders = [result.current_leader for rows in results.values() for result in rows]
            endpoints = endpoints_of(self.broker.image, leaders, self.session.listener)
        self.request.respond(
            *encode_fetch_response(
                version,
                [(None, key, rows) if by_id else (key, None, rows) for key, rows in results.items()],  # type: ignore[misc]
                throttle_time_ms=throttle_ms,
                session_id=self.kept.session_id,
                node_endpoints=endpoints,
            )
        )

    def _hint(self, entry: FetchedPartition) -> CurrentLeader:
        topics = self.broker.image.topics
        key = entry.topic_key
        return current_leader(topics.get(key) if isinstance(key, str) else topics.get_by_id(key), entry.index)


def read_through(ranges: tuple[FileRange, ...]) -> None:
    """Read the ranges and throw the bytes away: they are in memory then. *Blocking.*"""
    for piece in ranges:
        end = piece.position + piece.count
        for position in range(piece.position, end, WARM_PIECE_BYTES):
            piece.file.read(position, min(WARM_PIECE_BYTES, end - position))
