"""Read one partition for a fetch: the checks in Kafka's order, then a slice of the log.

Invariants: the offsets in a response are those captured before the read. A consumer gets no record at or beyond the
high watermark (or the last stable offset). A follower's progress is counted only for a fetch that passed every check,
and only after its read. Nothing here suspends: a read of bytes that are not in memory raises.
Source: FetchRequest 4 to 18, Kafka's Partition, ReplicaManager, KIP-320, KIP-392.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.api.fetch.sessions import CachedPartition
from kraft.broker.partition.partition_checks import leader_epoch_error
from kraft.broker.partition.unwritten_log import UnwrittenLog
from kraft.broker.replica.selector import ReplicaView, select_rack_aware
from kraft.seam import FileRange, StorageCorrupt
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FIRST_VERSION_WITH_RACK, FetchResult

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.replica.leader import LeaderState
    from kraft.storage.log import Log

HOT_TAIL_BYTES = 32 * 1024 * 1024
"""Number of bytes at the end of a log that are assumed to be in the page cache."""
PROBE_STRIDE_BYTES = 128 * 1024


class FetchParams(NamedTuple):
    """Parameters that apply to every partition of a fetch. `replica_id` is -1 for consumers. With `prefers_near`, the
    broker selects read replicas by rack."""

    version: int
    replica_id: int = -1
    replica_epoch: int = -1
    read_committed: bool = False
    rack_id: str = ""
    prefers_near: bool = False

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0


class NotInMemory(Exception):
    """Raised if sending the bytes would read them from the device. They must first be read into memory, in a thread."""

    def __init__(self, ranges: tuple[FileRange, ...]) -> None:
        super().__init__(f"{sum(piece.count for piece in ranges)} bytes")
        self.ranges = ranges


def read_partition(
    partition: Partition,
    entry: CachedPartition,
    params: FetchParams,
    bytes_max: int,
    *,
    at_least_one: bool,
    counts_progress: bool,
    probes: bool,
) -> FetchResult:
    """Return the fetch result of one hosted partition. The error is NOT_LEADER_OR_FOLLOWER also while the partition
    `waits_for_log`, and KAFKA_STORAGE_ERROR if its log is damaged. Raises ColdRead. With `probes`, also raises
    NotInMemory."""
    log = partition.log
    if log is None:
        if partition.is_offline:
            return FetchResult(entry.index, ErrorCode.KAFKA_STORAGE_ERROR)
        if partition.is_unwritten:
            return _read_unwritten(partition, entry, params, counts_progress=counts_progress)
        partition.host.request_open(partition)
        return FetchResult(entry.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    entry.seen_leader_epoch = partition.leader_epoch
    offset, high_watermark = entry.fetch_offset, partition.high_watermark
    log_start, log_end, stable = log.log_start_offset, log.log_end_offset, log.last_stable_offset
    if not _is_usual(partition, log, entry, params):
        refusal = _refusal(partition, log, entry, params)
        if refusal is not None:
            return refusal
    if params.replica_id >= 0:
        limit = log_end
    else:
        limit = stable if params.read_committed else high_watermark
        if params.prefers_near and (near := _preferred(partition, log, entry, params)) >= 0:
            return FetchResult(entry.index, 0, high_watermark, stable, log_start, preferred_read_replica=near)
    ranges: tuple[FileRange, ...] = ()
    aborted: list[tuple[int, int]] | None = [] if params.read_committed else None
    if offset < limit and (bytes_max > 0 or at_least_one):
        try:
            piece = log.read(offset, bytes_max, limit, at_least_one=at_least_one)
        except OffsetOutOfRange:
            return FetchResult(entry.index, ErrorCode.OFFSET_OUT_OF_RANGE)
        except StorageCorrupt as damage:
            partition.host.damage_found(partition, damage)
            return FetchResult(entry.index, ErrorCode.KAFKA_STORAGE_ERROR)
        ranges = piece.ranges
        if aborted is not None and piece.size_bytes:
            aborted = log.aborted_transactions(offset, log.upper_bound(piece))
        if probes and ranges:
            _probe(log, piece)
    elif not log_start <= offset <= log_end:
        return FetchResult(entry.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    if counts_progress:
        partition.follower_fetched(params.replica_id, offset, entry.log_start_offset, log_end, params.replica_epoch)
    return FetchResult(entry.index, 0, high_watermark, stable, log_start, aborted, -1, ranges)


def _read_unwritten(
    partition: Partition, entry: CachedPartition, params: FetchParams, *, counts_progress: bool
) -> FetchResult:
    """Return the fetch result of a replica that was never written, like `read_partition` but without reading a log."""
    entry.seen_leader_epoch = partition.leader_epoch
    log = partition.readable
    assert log is not None
    refusal = _refusal(partition, log, entry, params)
    if refusal is not None:
        return refusal
    if entry.fetch_offset != 0:
        return FetchResult(entry.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    if counts_progress:
        partition.follower_fetched(params.replica_id, 0, entry.log_start_offset, 0, params.replica_epoch)
    return FetchResult(entry.index, 0, 0, 0, 0, [] if params.read_committed else None)


def _is_usual(partition: Partition, log: Log, entry: CachedPartition, params: FetchParams) -> bool:
    """Return whether `_refusal` would certainly find no error: this broker leads in the epoch that the fetcher sent,
    the fetcher is a consumer or a registered follower, and its log ends in the latest epoch."""
    leader = partition.leader
    if leader is None or entry.leader_epoch not in (-1, leader.leader_epoch):
        return False
    if params.replica_id >= 0:
        progress = leader.followers.get(params.replica_id)
        if progress is None or -1 < params.replica_epoch < progress.broker_epoch:
            return False
    return entry.last_fetched_epoch < 0 or (
        entry.last_fetched_epoch == log.epochs.latest_epoch
        and log.log_start_offset <= entry.fetch_offset <= log.log_end_offset
    )


def _refusal(
    partition: Partition, log: Log | UnwrittenLog, entry: CachedPartition, params: FetchParams
) -> FetchResult | None:
    """Return the error of a fetch, if any, from the checks before the read: epoch, leadership, membership and
    divergence. A log that is being truncated has no leader on this broker. Divergence from it is not checked, because
    its contents are not valid until the truncation ends."""
    if entry.leader_epoch >= 0:
        error = leader_epoch_error(partition, entry.leader_epoch)
        if error != ErrorCode.NONE:
            return FetchResult(entry.index, error)
    leader = partition.leader
    if partition.is_truncating or (leader is None and (params.is_follower or params.version < FIRST_VERSION_WITH_RACK)):
        return FetchResult(entry.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if params.is_follower and leader is not None:
        if params.replica_id not in leader.followers:
            known = entry.leader_epoch >= 0
            return FetchResult(
                entry.index, ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if not leader.knows_incarnation(params.replica_id, params.replica_epoch):
            return FetchResult(entry.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if entry.last_fetched_epoch >= 0:
        epoch, end = log.epochs.end_offset_for(entry.last_fetched_epoch, log.log_end_offset)
        if epoch < 0 or entry.fetch_offset < log.log_start_offset:
            return FetchResult(entry.index, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch != entry.last_fetched_epoch or end < entry.fetch_offset:
            return FetchResult(
                entry.index,
                0,
                partition.high_watermark,
                log.last_stable_offset,
                log.log_start_offset,
                diverging_epoch=(epoch, end),
            )
        if params.is_follower and leader is not None and _may_differ_below(leader, log, entry, params.replica_id):
            return FetchResult(entry.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


def _may_differ_below(leader: LeaderState, log: Log | UnwrittenLog, entry: CachedPartition, replica_id: int) -> bool:
    """Return whether the follower's log may differ from records that were deleted on this leader.

    The follower's log ends where the leader's log begins, and the epochs of the follower's records were deleted with
    the leader's records. A follower in sync has every committed record, and so every deleted record. A follower that
    has deleted those records too was compared before."""
    return (
        entry.log_start_offset < log.log_start_offset == entry.fetch_offset
        and replica_id not in leader.isr.committed
        and log.epochs.floor(entry.last_fetched_epoch) is None
    )


def _preferred(partition: Partition, log: Log, entry: CachedPartition, params: FetchParams) -> int:
    """Return the id of a replica that is nearer to the consumer, or -1 if the consumer should read from this broker."""
    leader = partition.leader
    if leader is None or not params.rack_id or not log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
        return -1
    host = partition.host
    local = ReplicaView(host.node_id, host.racks.get(host.node_id), log.log_end_offset, 0)
    near = [
        ReplicaView(broker_id, host.racks.get(broker_id), progress.end_offset, progress.last_caught_up_ms)
        for broker_id, progress in leader.followers.items()
        if broker_id in leader.isr.committed
        and broker_id in host.eligible
        and 0 <= progress.log_start_offset <= entry.fetch_offset <= progress.end_offset
    ]
    chosen = select_rack_aware(params.rack_id, local, near)
    return -1 if chosen == host.node_id else chosen


def _probe(log: Log, piece: LogSlice) -> None:
    """Raise NotInMemory if sending the slice would wait for the device."""
    active = log.active
    if piece.segment_base == active.base_offset and piece.position + HOT_TAIL_BYTES >= active.size:
        return
    for found in piece.ranges:
        last = found.position + found.count - 1
        for position in (*range(found.position, last, PROBE_STRIDE_BYTES), last):
            if found.file.read_cached(position, 1) is None:
                raise NotInMemory(piece.ranges)
