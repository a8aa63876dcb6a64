"""The follower's side of a partition: write the leader's bytes unchanged, and apply the leader's high watermark and log
start offset.

Invariants: offsets, epochs and bytes are the same as the leader's. The high watermark is the leader's, limited to the
range of the local log. The log start offset is applied after the high watermark. No function is a coroutine.
Source: Kafka's ReplicaFetcherThread, AbstractFetcherThread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.partition.partition import EVERY_APPEND
from kraft.broker.replica.follower import follower_high_watermark

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.seam import Buffer
    from kraft.storage.append import AppendInfo


def append_from_leader(partition: Partition, data: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
    """Write records received from the leader of `leader_epoch`. Raises AppendRefused if the records are damaged or do
    not continue at the log's end. Raises ColdRead and DiskError under the same conditions as a leader's append.
    `now_ms` is wall clock."""
    log = partition.log
    assert log is not None
    info = log.append_as_follower(data, now_ms=now_ms, leader_epoch=leader_epoch)
    if partition.flush_records == EVERY_APPEND or log.active is not partition.active_segment:
        partition.sync_later(log)
    partition.host.changed[partition] = None
    return info


def take_leader_marks(partition: Partition, high_watermark: int, log_start_offset: int) -> None:
    """Apply the leader's high watermark, limited to the range of the local log, then the leader's log start offset."""
    log = partition.log
    assert log is not None
    mark = follower_high_watermark(high_watermark, log.log_start_offset, log.log_end_offset)
    if mark != partition.high_watermark:
        partition.set_high_watermark(mark)
    if log.log_start_offset < log_start_offset <= partition.high_watermark:
        log.advance_log_start(log_start_offset)
        partition.host.changed[partition] = None


def note_truncated(partition: Partition) -> None:
    """Move the high watermark back into the range of the log after a truncation."""
    log = partition.log
    assert log is not None
    mark = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
    if mark != partition.high_watermark:
        partition.set_high_watermark(mark)
    partition.host.changed[partition] = None
