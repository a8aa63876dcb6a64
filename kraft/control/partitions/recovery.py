"""Election when no replica is known to be complete: the replica whose log reaches furthest, as the brokers report.

ISR and ELR are both empty only after all of their members have stopped uncleanly. Kafka then elects the last known
leader, whatever its disk has lost. Here the brokers report in their heartbeats how far their logs reach, and the
replica with the furthest log is elected (KIP-966, unclean recovery).

Why the furthest log: leaders are chosen among complete replicas. So of two logs, the one with the higher last epoch, or
the longer one of the same epoch, has everything committed that the other still has. There is one exception: a leader of
that epoch may have been replaced before any replica had its records. Such a log diverged from the log of the last known
leader, which was complete, and is not elected.

Invariants: no replica is elected before the last known leader is back. Only reports about the partition's present state
count. A replica without a report is waited for, for one session timeout after the report of the last known leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kraft.control.decision import Context, ReportedLogEnd
from kraft.control.partitions.partition_change import MayLead
from kraft.image import MetadataImage, PartitionState
from kraft.image.partitions import NO_LEADER


def choose_furthest(
    image: MetadataImage, context: Context, topic_id: UUID, partition_id: int, state: PartitionState, may_lead: MayLead
) -> int:
    """Return the replica that may be elected for this partition now. Return NO_LEADER if no election is needed, or no
    replica may be elected yet."""
    if state.leader != NO_LEADER or state.isr or state.elr or len(state.last_known_elr) != 1:
        return NO_LEADER
    (last,) = state.last_known_elr
    if last not in state.replicas or not may_lead(last, _directory(state, last)):
        return NO_LEADER
    if len(state.replicas) == 1:
        return last
    told = {
        replica: end
        for replica in state.replicas
        if may_lead(replica, _directory(state, replica))
        and (end := _reported_log_end(image, context, replica, (topic_id, partition_id), state.partition_epoch))
        is not None
    }
    if last not in told:
        return NO_LEADER
    if len(told) < len(state.replicas) and context.now_ms - told[last].since_ms < context.session_timeout_ms:
        return NO_LEADER
    reaching = {replica: end for replica, end in told.items() if not _has_diverged(end, told[last])}
    return max(reaching, key=lambda replica: (told[replica].last_epoch, told[replica].log_end_offset, replica == last))


def _has_diverged(end: ReportedLogEnd, last: ReportedLogEnd) -> bool:
    """Return whether the log `end` diverged from `last`, the log of the last known leader: its first epoch that is
    newer than those of `last` starts below the end of `last`. The last known leader was complete and has no record of
    that epoch there, so no record of that epoch was committed. If `last` has no records (-1), return False, because an
    emptied log may begin and end anywhere."""
    if last.last_epoch < 0 or end.last_epoch <= last.last_epoch:
        return False
    turn = next((start for epoch, start in end.epochs if epoch > last.last_epoch), end.log_end_offset)
    return turn < last.log_end_offset


def find_recoverable(
    image: MetadataImage, context: Context, partitions: Iterable[tuple[UUID, int]], may_lead: MayLead
) -> Iterator[tuple[UUID, int]]:
    """Yield, once each, those of the given partitions for which a replica can be elected now."""
    for topic_id, partition_id in dict.fromkeys(partitions):
        topic = image.topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(partition_id)
        if state is not None and choose_furthest(image, context, topic_id, partition_id, state, may_lead) != NO_LEADER:
            yield topic_id, partition_id


def _directory(state: PartitionState, replica: int) -> UUID | None:
    return state.directories[state.replicas.index(replica)] if state.directories else None


def _reported_log_end(
    image: MetadataImage, context: Context, replica: int, partition: tuple[UUID, int], partition_epoch: int
) -> ReportedLogEnd | None:
    """Return the log end that the broker's current incarnation reported for the present state of the partition."""
    session = context.sessions.get(replica)
    if session is None or session.broker_epoch != image.brokers[replica].broker_epoch:
        return None
    end = session.log_ends.get(partition)
    return end if end is not None and end.partition_epoch == partition_epoch else None
