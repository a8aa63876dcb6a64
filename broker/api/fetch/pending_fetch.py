"""A pending fetch: read its partitions, answer, or park until there is enough to return.

Invariants: each fetch is answered once. A parked fetch is checked only at the end of a pass in which one of its
partitions changed, and then all its partitions are read again. Records are sent as file ranges. Reading and parking are
one step, so no change can come between them. A long fetch takes that step in the queue of long requests, also when it
is woken.
Source: Kafka's DelayedFetch, FetchSession, KIP-227.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from kraft.broker.api.fetch.metadata_topic import is_metadata_topic
from kraft.broker.api.fetch.partition_reading import FetchParams, NotInMemory, read_partition
from kraft.broker.api.fetch.sessions import (
    INITIAL_EPOCH,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
    TopicKey,
)
from kraft.broker.partition.partition import REMOVED
from kraft.broker.serving.gates import CLUSTER, Operation, QuotaKind, topic_resource
from kraft.broker.serving.leader_hints import current_leader, endpoints_of
from kraft.broker.serving.purgatory import Parked
from kraft.broker.serving.throttling import mute
from kraft.broker.serving.turns import Steps
from kraft.seam import DiskError, FileRange
from kraft.storage.handles import ColdRead
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchResult
from kraft.wire.messages.fetch_response import FIRST_VERSION_WITH_ENDPOINTS, encode_fetch_response
from kraft.wire.messages.tagged import CurrentLeader
from kraft.wire.request_meter import FETCH

if TYPE_CHECKING:
    from kraft.broker.api.fetch.metadata_topic import MetadataTopic
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.partition_host import WokenRequest
    from kraft.broker.partition.replication_quota import ReplicationQuota
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.loop import Loop
    from kraft.broker.serving.session import Session
    from kraft.image.image import MetadataImage
    from kraft.wire.server import Request

log = structlog.get_logger("kraft.broker.fetch")

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
FIRST_WITH_STORAGE_ERROR = 6
WARM_PIECE_BYTES = 1024 * 1024
WARMS_PER_PARTITION_MAX = 20
"""Maximum number of reads into memory per partition of a fetch: its indexes, its records, and a few reads whose bytes
were evicted again."""
LOG_WAIT_MS_MIN = 500
"""Minimum milliseconds that a fetch waits for a log that is being opened or truncated. Opening usually takes only
milliseconds, while after an error the client would wait longer."""
ANSWER_PARTITIONS_MAX = 250
"""Maximum number of changed partitions of a session in one response, which limits the work of broker and fetcher. The
remaining partitions come first in the next response."""
NO_TOPIC_ID = UUID(int=0)

Read = tuple[CachedPartition, FetchResult, int]
"""(partition of the session, its result, number of record bytes in the result)."""


@dataclass(frozen=True, slots=True)
class FetchPorts:
    """The parts of a broker that Fetch uses. `find` and `locate` are those of `ReplicaIndex`. Fetches in `woken` are
    checked at the end of the pass. `await_role` is `FetchesAwaitingRoles.wait`, `disk_failed_at` is that of
    `DiskFailures`, `records_read` is `RepeatedReadChecks.bytes_sent`.

    A request continues later in one of three ways; in each, an error fails only this request. `finish(request,
    function, *arguments)` calls the function. `continue_in_steps(request, steps)` runs the steps, with other work
    between them. `answer_later(request, function, *arguments)` awaits the function in a task."""

    loop: Loop
    gates: Gates
    sessions: FetchSessionCache
    metadata_topic: MetadataTopic
    woken: dict[WokenRequest, None]
    leader_quota: ReplicationQuota
    find: Callable[[str | UUID | None, int], Partition | None]
    locate: Callable[[str, int], Partition | ErrorCode]
    newest_image: Callable[[], MetadataImage]
    await_role: Callable[[CachedPartition], bool]
    disk_failed_at: Callable[[DiskError], None]
    records_read: Callable[[Partition, int, int, int], None]
    finish: Callable[..., None]
    continue_in_steps: Callable[[Request, Steps], None]
    answer_later: Callable[..., None]


class FetchOperation(Parked):
    """One fetch request of a session. `kept` is the session; its id is 0 if it lasts for this request only."""

    delayed_operation = "Fetch"
    __slots__ = (
        "bytes_max",
        "counts_progress",
        "is_done",
        "is_final",
        "is_follower",
        "is_full",
        "is_long",
        "is_queued",
        "is_watching",
        "kept",
        "max_wait_ms",
        "min_bytes",
        "params",
        "ports",
        "probes",
        "request",
        "session",
        "session_epoch",
        "warms",
    )

    def __init__(
        self,
        ports: FetchPorts,
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
        self.ports = ports
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
        self.is_long = self.is_queued = False

    # from start to end

    def start(self) -> None:
        """Answer now, or park the fetch (`_park`)."""
        previous = self.kept.parked
        if previous is not None:
            previous.answer_empty()
        self._try()

    def start_long(self) -> None:
        """Answer or park a fetch of very many partitions in a new session. Its connection is not read until the fetch
        is answered, so that one connection holds the memory of at most one such fetch."""
        self.is_long = True
        self.request.connection.pause()
        self._try_or_end()

    def wake(self) -> None:
        """Record that one of the partitions changed in this pass. Continues in `check_again`, at the end of the
        pass."""
        self.ports.woken[self] = None

    def check_again(self) -> None:
        """Try again, at the end of a pass with changes, or once missing bytes are in memory."""
        if not self.is_done:
            self._go_on()

    def expire(self) -> None:
        """Answer with the records found so far, because max_wait_ms has passed."""
        if not self.is_done:
            self.bucket = -1
            self.is_final = True
            self._go_on()

    def answer_empty(self) -> None:
        """Answer with no partitions, because the session's next request has arrived. That request reads the partitions
        instead, so that its fetch offsets count as the follower's progress."""
        if not self.is_done:
            self._finish([], 0)

    def _go_on(self) -> None:
        """Try again, after the call in which the request arrived. An error ends only this fetch. A long fetch continues
        in `_try_in_turn`, behind the long requests that already wait."""
        if not self.is_long:
            self.ports.finish(self.request, self._try_or_end)
        elif not self.is_queued:
            self.is_queued = True
            self.ports.continue_in_steps(self.request, self._try_in_turn())

    def _try_in_turn(self) -> Steps:
        """Try a long fetch once, as one step that sees all changes so far."""
        self.is_queued = False
        if not self.is_done:
            self._try_or_end()
        yield

    def _try_or_end(self) -> None:
        try:
            self._try()
        except Exception:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Release everything that the fetch holds, after an exception; the exception's handler answers the client."""
        self._end()
        if not self.kept.session_id:
            self.kept.close()
        if self.is_long:
            self.request.connection.resume()

    def _try(self) -> None:
        """Read all partitions, then answer or park. If bytes are not in memory, continue in `_warm`."""
        try:
            reads, size, is_urgent, waits_for_log = self._read()
        except (ColdRead, NotInMemory) as cold:
            self.kept.parked = self
            self.warms += 1
            if self.warms > WARMS_PER_PARTITION_MAX * (1 + len(self.kept.partitions)):
                self._give_up(cold)
                return
            self.ports.answer_later(self.request, self._warm, cold)
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
        """Wait until a partition changes, or until `wait_ms` after the fetch first waited.

        After a change the fetch continues in `CachedPartition.partition_changed`, which `Partition.settle` calls at the
        end of the pass. That method calls `wake` if there is something to return, and `ReplicaManager` calls
        `check_again` after all partitions have settled. At the deadline the fetch continues in `expire`. The session's
        next request calls `answer_empty`."""
        self.kept.parked = self
        if not self.is_watching:
            self._watch()
        if self.bucket < 0:
            loop = self.ports.loop
            loop.deadlines.add(self, loop.clock.monotonic_ms() + wait_ms)

    async def _warm(self, cold: ColdRead | NotInMemory) -> None:
        """Read the missing bytes into memory, in a thread, then continue with `check_again`."""
        disk = self.ports.loop.disk
        try:
            if isinstance(cold, ColdRead):
                await disk.offload(cold.warm)
                cold.adopt()
            else:
                self.probes = False
                await disk.offload(read_through, cold.ranges)
        except DiskError as trouble:
            self.ports.disk_failed_at(trouble)
        except Exception:
            self._abandon()
            raise
        self.check_again()

    def _give_up(self, cold: ColdRead | NotInMemory) -> None:
        """Answer with KAFKA_STORAGE_ERROR, because the page cache does not keep the bytes: at each try they were
        missing again."""
        log.warning("fetch is given up: what it reads does not stay in memory", why=str(cold))
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        self._finish([(entry, FetchResult(entry.index, failed), 0) for entry in self.kept.partitions.values()], 0)

    # reading

    def _read(self) -> tuple[list[Read], int, bool, bool]:
        """Read the partitions that may have changed, in order: at most ANSWER_PARTITIONS_MAX of a session, and more
        only while there is nothing to return.

        Return the results, their number of record bytes, and two flags. The first flag (urgent): a result cannot wait,
        or further partitions remain for the next response. The second flag (waiting): a result is an error only because
        its log is not open yet."""
        kept, is_follower = self.kept, self.is_follower
        allowed = is_follower and self.ports.gates.authorizer.authorize(self.session, Operation.CLUSTER_ACTION, CLUSTER)
        bound = len(kept.partitions) if self.is_full else ANSWER_PARTITIONS_MAX
        answers_news = is_follower or self.is_final
        reads: list[Read] = []
        left, total, has_news, is_urgent, waits_for_log = self.bytes_max, 0, False, False, False
        for number, entry in enumerate(kept.partitions.values() if self.is_full else kept.in_turn(bound)):
            if number >= bound and (is_urgent or total >= self.min_bytes or (has_news and answers_news)):
                is_urgent = is_urgent or not waits_for_log
                if self.counts_progress:
                    self._read_named(reads, allowed=allowed)
                break
            result = self._read_entry(entry, left, at_least_one=total == 0, allowed=allowed)
            if result is None:
                continue
            size = 0
            for piece in result.records:
                size += piece.count if isinstance(piece, FileRange) else len(piece)
            left -= size
            total += size
            if not result.is_plain:
                waits = self._waits_for_log(entry, result)
                waits_for_log, is_urgent = waits_for_log or waits, is_urgent or not waits
            elif size or entry.differs(result):
                has_news = True
            reads.append((entry, result, size))
        self.counts_progress = self.counts_progress and waits_for_log
        return reads, total, is_urgent, waits_for_log

    def _read_entry(
        self, entry: CachedPartition, left: int, *, at_least_one: bool, allowed: bool
    ) -> FetchResult | None:
        """Return one partition's result, with at most `left` bytes. Return None if the partition waits until this
        broker has applied its role; then `FetchesAwaitingRoles` wakes the fetch."""
        partition = entry.partition
        if partition is None or partition.log_state is REMOVED:
            partition = self._find(entry)
        room = max(min(entry.bytes_max, left), 0)
        if partition is None:
            return None if self.ports.await_role(entry) else self._not_hosted(entry, room)
        if self.is_follower:
            if partition.leader_throttled and self._is_throttled(entry, partition):
                room, at_least_one = 0, False
        else:
            allowed = self.ports.gates.authorizer.authorize(self.session, Operation.READ, partition.resource)
        if not allowed:
            return FetchResult(entry.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition.meters.fetches.count += 1
        result = read_partition(
            partition,
            entry,
            self.params,
            room,
            at_least_one=at_least_one,
            counts_progress=self.counts_progress or entry.awaits_role,
            probes=self.probes,
        )
        entry.awaits_role = False
        return result

    def _read_named(self, reads: list[Read], *, allowed: bool) -> None:
        """Count the follower's progress on the partitions that this request names and that were not read, because
        producers wait for that progress. The records of these partitions come in a later response. Partitions whose log
        is being opened are skipped: their progress and records are handled later."""
        seen = {entry for entry, _, _ in reads}
        for entry in self.kept.named:
            if entry not in seen:
                result = self._read_entry(entry, 0, at_least_one=False, allowed=allowed)
                if result is not None and not self._waits_for_log(entry, result):
                    reads.append((entry, result, 0))

    def _is_throttled(self, entry: CachedPartition, partition: Partition) -> bool:
        """Return whether the replication quota holds back this out-of-sync follower. If it does, the other partitions
        are read first."""
        if not self.ports.leader_quota.holds_back(partition, self.params.replica_id):
            return False
        self.kept.move_behind(entry)
        return True

    def _find(self, entry: CachedPartition) -> Partition | None:
        """Find and watch the replica of an entry that has no replica yet or whose replica was removed."""
        partition = self.ports.find(entry.topic_key, entry.index)
        if self.is_watching:
            entry.watch(partition)
        return partition

    def _waits_for_log(self, entry: CachedPartition, result: FetchResult) -> bool:
        """Return whether the result is an error only because the log is not open yet."""
        if result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return False
        partition = entry.partition or self._find(entry)
        return partition is not None and partition.waits_for_log

    def _not_hosted(self, entry: CachedPartition, bytes_max: int) -> FetchResult:
        """Return the metadata topic's records, or the error of a partition that this broker does not host."""
        topic = self.ports.metadata_topic
        if is_metadata_topic(entry.topic_key) and topic.may_read(self.session):
            return topic.read(entry, bytes_max, self, read_committed=self.params.read_committed)
        return FetchResult(entry.index, self._missing(entry))

    def _missing(self, entry: CachedPartition) -> ErrorCode:
        """Return the error of a partition that this broker does not host: unknown topic id, not authorized, unknown
        partition, or hosted by another broker."""
        ports = self.ports
        key = entry.topic_key
        name = key if isinstance(key, str) else ports.newest_image().topics.name_of(key)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.is_follower:
            allowed = ports.gates.authorize(self.session, Operation.CLUSTER_ACTION, CLUSTER)
        else:
            allowed = ports.gates.authorize(self.session, Operation.READ, topic_resource(name))
        if not allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = ports.locate(name, entry.index)
        return found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # answering

    def _end(self) -> None:
        """Mark the fetch as done, and remove its deadline."""
        self.is_done = True
        if self.bucket >= 0:
            self.ports.loop.deadlines.remove(self)
            self.bucket = -1
        if self.kept.parked is self:
            self.kept.parked = None

    def _finish(self, reads: list[Read], size: int) -> None:
        ports, kept = self.ports, self.kept
        self._end()
        throttle_ms = 0
        if not self.is_follower and size:
            throttle_ms = ports.gates.quotas.record(self.session, QuotaKind.FETCH_BYTES, size)
        if throttle_ms:
            mute(ports.loop, self.request, throttle_ms)
            reads = []
        elif self.session_epoch == INITIAL_EPOCH:
            ports.sessions.keep(kept, kept.used_ms)
        if kept.session_id:
            if not self.is_watching:
                self._watch()
            reads = [read for read in reads if kept.note_reported(*read) or self.is_full]
        else:
            kept.close()
        self._answer(reads, throttle_ms)
        if self.is_long:
            self.request.connection.resume()

    def _watch(self) -> None:
        self.is_watching = True
        for entry in self.kept.partitions.values():
            entry.watch(self.ports.find(entry.topic_key, entry.index))

    def _count(self, entry: CachedPartition, result: FetchResult, size: int) -> None:
        partition = entry.partition or self.ports.find(entry.topic_key, entry.index)
        if partition is None:
            return
        meters = partition.meters
        if size and (self.is_follower or self.kept.session_id):
            reader = self.params.replica_id if self.is_follower else -self.kept.session_id
            self.ports.records_read(partition, reader, entry.fetch_offset, size)
        if result.error_code:
            meters.failed_fetches.count += 1
        elif self.is_follower:
            meters.replication_bytes_out.count += size
            if size and partition.state is not None and partition.state.adding:
                meters.reassignment_bytes_out.count += size * partition.is_being_added(self.params.replica_id)
            if partition.leader_throttled and size:
                self.ports.leader_quota.record(size)
        else:
            meters.bytes_out.count += size

    def _answer(self, reads: list[Read], throttle_ms: int) -> None:
        version, by_id = self.params.version, self.kept.uses_topic_ids
        meter, failed = self.request.connection.meter, 0
        topics: list[Any] = []
        rows: list[FetchResult] = []
        latest: TopicKey | None = None
        hinted: list[CurrentLeader] = []
        for entry, result, size in reads:
            self._count(entry, result, size)
            if result.error_code:
                result = self._encodable_error(entry, result)
                meter.errors[FETCH, int(result.error_code)] += 1
                failed += 1
                if result.current_leader is not None:
                    hinted.append(result.current_leader)
            key = entry.topic_key
            if key is not latest and key != latest:  # as in Kafka, consecutive partitions of one topic share its row
                latest, rows = key, []
                topics.append((None, key, rows) if by_id else (key, None, rows))
            rows.append(result)
        meter.fetched_partitions += len(reads) - failed
        self.request.respond(
            *encode_fetch_response(
                version,
                topics,
                throttle_time_ms=throttle_ms,
                session_id=self.kept.session_id,
                node_endpoints=endpoints_of(self.ports.newest_image(), hinted, self.session.listener) if hinted else (),
            )
        )

    def _encodable_error(self, entry: CachedPartition, result: FetchResult) -> FetchResult:
        """Return the error code that this version of the response can encode, with the current leader if the client can
        use it."""
        version = self.params.version
        if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_WITH_STORAGE_ERROR:
            return result._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if result.error_code in HINTED and version >= FIRST_VERSION_WITH_ENDPOINTS:
            return result._replace(current_leader=self._hint(entry))
        return result

    def _hint(self, entry: CachedPartition) -> CurrentLeader:
        topics = self.ports.newest_image().topics
        key = entry.topic_key
        return current_leader(topics.get(key) if isinstance(key, str) else topics.get_by_id(key), entry.index)


def read_through(ranges: tuple[FileRange, ...]) -> None:
    """Read the ranges and discard the bytes, so that the page cache holds them. *Blocking.*"""
    for piece in ranges:
        end = piece.position + piece.count
        for position in range(piece.position, end, WARM_PIECE_BYTES):
            piece.file.read(position, min(WARM_PIECE_BYTES, end - position))
