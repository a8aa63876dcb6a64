"""Which replica is taken when none is known to be complete: the one whose log reaches furthest, as its brokers tell.

ISR and ELR are both empty only after all who were in them have stopped uncleanly. Kafka takes the last known leader
back then, whatever its disk has lost. Here the brokers tell in their heartbeats how far their logs reach, and the
furthest is taken (KIP-966, unclean recovery): a leader is chosen among the complete, so of two logs the one with the
higher last epoch, or the longer one of the same, has all that was committed and is left in the other. Unless a leader
of that epoch was replaced before anyone had its records: such a log turned off from that of the last known leader, who
was complete, and is not taken.
Invariants: nobody is taken before the last known leader is back, and only what was told of the partition as it is now
counts; while a replica has told nothing it is waited for, for one session time-out after the last known leader told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kraft.control.decision import Context, ToldLogEnd
from kraft.control.partitions.partition_change import MayLead
from kraft.image import MetadataImage, PartitionState
from kraft.image.partitions import NO_LEADER


def choose_furthest(
    image: MetadataImage, context: Context, topic_id: UUID, partition_id: int, state: PartitionState, may_lead: MayLead
) -> int:
    """The replica to take for this partition by now; NO_LEADER if there is no need, or none may be taken yet."""
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
        and (end := _told(image, context, replica, (topic_id, partition_id), state.partition_epoch)) is not None
    }
    if last not in told:
        return NO_LEADER
    if len(told) < len(state.replicas) and context.now_ms - told[last].since_ms < context.session_timeout_ms:
        return NO_LEADER
    reaching = {replica: end for replica, end in told.items() if not _turned_off(end, told[last])}
    return max(reaching, key=lambda replica: (told[replica].last_epoch, told[replica].log_end_offset, replica == last))


def _turned_off(end: ToldLogEnd, last: ToldLogEnd) -> bool:
    """Whether this log left that of the last known leader below the end of what is left of it, for a newer epoch. The
    last known leader was complete, and its log has none of that epoch there: so nothing of it was committed. One
    without records (-1: a log that was emptied may begin and end anywhere) says nothing of the kind."""
    if last.last_epoch < 0 or end.last_epoch <= last.last_epoch:
        return False
    turn = next((start for epoch, start in end.epochs if epoch > last.last_epoch), end.log_end_offset)
    return turn < last.log_end_offset


def find_recoverable(
    image: MetadataImage, context: Context, partitions: Iterable[tuple[UUID, int]], may_lead: MayLead
) -> Iterator[tuple[UUID, int]]:
    """Those of these partitions that can be given the replica whose log reaches furthest by now, each once."""
    for topic_id, partition_id in dict.fromkeys(partitions):
        topic = image.topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(partition_id)
        if state is not None and choose_furthest(image, context, topic_id, partition_id, state, may_lead) != NO_LEADER:
            yield topic_id, partition_id


def _directory(state: PartitionState, replica: int) -> UUID | None:
    return state.directories[state.replicas.index(replica)] if state.directories else None


def _told(
    image: MetadataImage, context: Context, replica: int, partition: tuple[UUID, int], partition_epoch: int
) -> ToldLogEnd | None:
    """What the broker's incarnation that is registered now told of the partition as it is now."""
    session = context.sessions.get(replica)
    if session is None or session.broker_epoch != image.brokers[replica].broker_epoch:
        return None
    end = session.log_ends.get(partition)
    return end if end is not None and end.partition_epoch == partition_epoch else None
