"""A fetch on its way: read what it asks for, answer, or park until there is enough to tell.

Invariants: it is answered once; a parked fetch is looked at only at the end of a pass in which one of its partitions
changed, and then everything is read afresh; records leave as file ranges. Source: broker-spec 4.1, 4.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from kraft.broker.node.fetch_sessions import INITIAL_EPOCH, FetchedPartition, FetchSession, TopicKey
from kraft.broker.node.gates import CLUSTER, Operation, QuotaKind, topic_resource
from kraft.broker.node.leader_hints import current_leader, endpoints_of
from kraft.broker.node.metadata_topic import is_metadata_topic
from kraft.broker.node.partition_reading import FetchParams, NotInMemory, read_partition
from kraft.broker.node.purgatory import Parked
from kraft.broker.node.throttling import mute
from kraft.seam import DiskError, FileRange
from kraft.storage.handles import ColdRead
from kraft.wire.error_codes import ErrorCode
from kraft.wire.fetch import FetchResult
from kraft.wire.fetch_response import FIRST_VERSION_WITH_ENDPOINTS, encode_fetch_response
from kraft.wire.tagged import CurrentLeader

if TYPE_CHECKING:
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.services import BrokerServices
    from kraft.broker.node.session import Session
    from kraft.wire.server import Request

log = structlog.get_logger("kraft.broker.fetch")

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
FIRST_WITH_STORAGE_ERROR = 6
WARM_PIECE_BYTES = 1024 * 1024
WARMS_PER_PARTITION_MAX = 20
"""How often a fetch has something brought into memory: indexes and bytes of each partition, and some in vain."""
LOG_WAIT_MS_MIN = 500
"""A fetch waits at least so long for a log that is being opened or cut: that takes milliseconds as a rule, and an error
sets a client back by more."""
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
        "is_final",
        "is_follower",
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
        "warms",
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
        self.is_follower = self.counts_progress = params.replica_id >= 0
        self.probes = True
        self.warms = 0
        self.is_done = False
        self.is_final = not kept.partitions
        self.is_watching = kept.session_id != 0

    # life

    def start(self) -> None:
        """Answer now, or park."""
        previous = self.kept.parked
        if previous is not None:
            previous.give_way()
        self._try()

    def wake(self) -> None:
        """One of the partitions changed in this pass."""
        self.broker.replicas.woken[self] = None

    def look_again(self) -> None:
        """The end of the pass, or what was missing is there now."""
        if not self.is_done:
            self._go_on()

    def expire(self) -> None:
        """max.wait is over: answer with what there is."""
        if not self.is_done:
            self.bucket = -1
            self.is_final = True
            self._go_on()

    def give_way(self) -> None:
        """The session's next request is here: answer with nothing, and leave to it what it names, so that the offsets
        in it are counted as the follower's progress."""
        if not self.is_done:
            self._finish([], 0)

    def _go_on(self) -> None:
        """Try again, outside of the request's turn: what that raises is this fetch's trouble, and its end."""
        self.broker.finish(self.request, self._try_or_end)

    def _try_or_end(self) -> None:
        try:
            self._try()
        except Exception:
            self._end()
            if not self.kept.session_id:
                self.kept.close()
            raise

    def _try(self) -> None:
        try:
            reads, size, is_urgent, waits_for_log = self._read()
        except (ColdRead, NotInMemory) as cold:
            self.kept.parked = self
            self.warms += 1
            if self.warms > WARMS_PER_PARTITION_MAX * (1 + len(self.kept.partitions)):
                self._give_up(cold)
                return
            self.broker.replicas.start_task(self._warm, cold)
            return
        if self.is_final or is_urgent:
            self._finish(reads, size)
        elif waits_for_log:
            self._park(max(self.max_wait_ms, LOG_WAIT_MS_MIN))
        elif size >= self.min_bytes or self.max_wait_ms <= 0:
            self._finish(reads, size)
        else:
            self._park(self.max_wait_ms)

    def _park(self, wait_ms: int) -> None:
        """Wait until a partition changes, or the time is over that began with the first wait."""
        self.kept.parked = self
        if not self.is_watching:
            self._watch()
        if self.bucket < 0:
            replicas = self.broker.replicas
            replicas.deadlines.add(self, replicas.clock.monotonic_ms() + wait_ms)

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

    def _give_up(self, cold: ColdRead | NotInMemory) -> None:
        """What is brought into memory is gone again each time it is looked at: tell it instead of trying for ever."""
        log.warning("fetch is given up: what it reads does not stay in memory", why=str(cold))
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        self._finish([(entry, FetchResult(entry.index, failed), 0) for entry in self.kept.partitions.values()], 0)

    # reading

    def _read(self) -> tuple[list[Read], int, bool, bool]:
        """Read everything that may have something to tell, in order. The answers, their bytes, whether one of them is
        to be told at once, and whether one would be another if its log were open."""
        kept, params, session = self.kept, self.params, self.session
        authorize = self.broker.gates.authorizer.authorize
        is_follower = self.is_follower
        allowed = is_follower and authorize(session, Operation.CLUSTER_ACTION, CLUSTER)
        awaited_roles = self.broker.replicas.awaited_roles
        entries: Iterable[FetchedPartition] = kept.partitions.values() if self.is_full else list(kept.dirty)
        reads: list[Read] = []
        left, total, is_urgent, waits_for_log = self.bytes_max, 0, False, False
        for entry in entries:
            partition = entry.partition
            if partition is None or partition.is_removed:
                partition = self._find(entry)
            room, at_least_one = max(min(entry.bytes_max, left), 0), total == 0
            if partition is None and awaited_roles.wait(entry):
                continue
            if partition is None:
                result = self._not_hosted(entry, room)
            elif not (allowed if is_follower else authorize(session, Operation.READ, partition.resource)):
                result = FetchResult(entry.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                if is_follower and partition.leader_throttled:
                    room, at_least_one = self._throttled_room(partition, room), False
                result = read_partition(
                    partition,
                    entry,
                    params,
                    room,
                    at_least_one=at_least_one,
                    counts_progress=self.counts_progress or entry.is_awaited,
                    probes=self.probes,
                )
                entry.is_awaited = False
            size = 0
            for piece in result.records:
                size += piece.count if isinstance(piece, FileRange) else len(piece)
            left -= size
            total += size
            if result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
                if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and partition and partition.waits_for_log:
                    waits_for_log = True
                else:
                    is_urgent = True
            reads.append((entry, result, size))
        self.counts_progress = self.counts_progress and waits_for_log
        return reads, total, is_urgent, waits_for_log

    def _throttled_room(self, partition: Partition, room: int) -> int:
        """A follower that is out of sync gets nothing while the replication quota is used up."""
        is_late = partition.is_out_of_sync(self.params.replica_id)
        return 0 if is_late and self.broker.replicas.leader_quota.is_exceeded else room

    def _find(self, entry: FetchedPartition) -> Partition | None:
        """What the entry's key stands for now: it is not watched yet, or what was watched is gone."""
        partition = self.broker.replicas.find(entry.topic_key, entry.index)
        if self.is_watching:
            entry.watch(partition)
        return partition

    def _not_hosted(self, entry: FetchedPartition, bytes_max: int) -> FetchResult:
        """The metadata topic's records, or why there are none."""
        topic = self.broker.metadata_topic
        if is_metadata_topic(entry.topic_key) and topic.may_read(self.session):
            return topic.read(entry, bytes_max, self, read_committed=self.params.read_committed)
        return FetchResult(entry.index, self._missing(entry))

    def _missing(self, entry: FetchedPartition) -> ErrorCode:
        """Why a partition is not hosted here: unknown id, not allowed, unknown, or somebody else's."""
        broker = self.broker
        key = entry.topic_key
        name = key if isinstance(key, str) else broker.image.topics.name_of(key)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.is_follower:
            allowed = broker.gates.authorize(self.session, Operation.CLUSTER_ACTION, CLUSTER)
        else:
            allowed = broker.gates.authorize(self.session, Operation.READ, topic_resource(name))
        if not allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = broker.replicas.locate(name, entry.index)
        return found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # answering

    def _end(self) -> None:
        """It waits no more."""
        self.is_done = True
        if self.bucket >= 0:
            self.broker.replicas.deadlines.remove(self)
            self.bucket = -1
        if self.kept.parked is self:
            self.kept.parked = None

    def _finish(self, reads: list[Read], size: int) -> None:
        replicas, kept = self.broker.replicas, self.kept
        self._end()
        throttle_ms = 0
        if not self.is_follower and size:
            throttle_ms = self.broker.gates.quotas.record(self.session, QuotaKind.FETCH_BYTES, size)
        if throttle_ms:
            mute(self.broker, self.request, throttle_ms)
            reads = []
        elif self.session_epoch == INITIAL_EPOCH:
            replicas.fetch_sessions.keep(kept, kept.used_ms)
        if kept.session_id:
            if not self.is_watching:
                self._watch()
            reads = [read for read in reads if self._note_told(*read)]
        elif self.is_watching:
            kept.close()
        self._answer(reads, throttle_ms)

    def _watch(self) -> None:
        self.is_watching = True
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
        if size:  # behind the others: of those that had no room the first is the first to have it
            dirty.pop(entry, None)
            dirty[entry] = None
            return True
        if self._has_more(entry):
            dirty[entry] = None
        else:
            dirty.pop(entry, None)
        return changed or self.is_full

    def _has_more(self, entry: FetchedPartition) -> bool:
        """There was no room in this answer for what the partition has."""
        partition = entry.partition
        if partition is None or partition.log is None:
            return partition is None or not partition.is_blank
        if self.is_follower:
            return partition.log.log_end_offset > entry.fetch_offset
        end = partition.last_stable_offset if self.params.read_committed else partition.high_watermark
        return end > entry.fetch_offset

    def _count(self, entry: FetchedPartition, result: FetchResult, size: int) -> None:
        partition = entry.partition or self.broker.replicas.find(entry.topic_key, entry.index)
        if partition is None:
            return
        meters = partition.meters
        if size and (self.is_follower or self.kept.session_id):
            reader = self.params.replica_id if self.is_follower else -self.kept.session_id
            self.broker.replicas.refused_reads.given(partition, reader, entry.fetch_offset, size)
        if result.error_code:
            meters.failed_fetches.count += 1
        elif self.is_follower:
            meters.replication_bytes_out.count += size
            if partition.leader_throttled and size:
                self.broker.replicas.leader_quota.record(size)
        else:
            meters.bytes_out.count += size

    def _answer(self, told: list[Read], throttle_ms: int) -> None:
        version, by_id = self.params.version, self.kept.uses_topic_ids
        topics: list[Any] = []
        rows: list[FetchResult] = []
        latest: TopicKey | None = None
        hinted: list[CurrentLeader] = []
        for entry, result, size in told:
            self._count(entry, result, size)
            if result.error_code:
                result = self._told_error(entry, result)
                if result.current_leader is not None:
                    hinted.append(result.current_leader)
            key = entry.topic_key
            if key is not latest and key != latest:  # as Kafka: neighbours of one topic stand together
                latest, rows = key, []
                topics.append((None, key, rows) if by_id else (key, None, rows))
            rows.append(result)
        self.request.respond(
            *encode_fetch_response(
                version,
                topics,
                throttle_time_ms=throttle_ms,
                session_id=self.kept.session_id,
                node_endpoints=endpoints_of(self.broker.image, hinted, self.session.listener) if hinted else (),
            )
        )

    def _told_error(self, entry: FetchedPartition, result: FetchResult) -> FetchResult:
        """An error as this version tells it."""
        version = self.params.version
        if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_WITH_STORAGE_ERROR:
            return result._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if result.error_code in HINTED and version >= FIRST_VERSION_WITH_ENDPOINTS:
            return result._replace(current_leader=self._hint(entry))
        return result

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
