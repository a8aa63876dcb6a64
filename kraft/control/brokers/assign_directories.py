"""AssignReplicasToDirs: a broker reports in which log directories its replicas are (KIP-858).

A replica may be in no online directory (LOST): its log is damaged, or was in a directory that failed before the
controller knew of it. Such a replica leaves the ISR and the ELR, and another replica is elected, because the lost one
may lack records below the high watermark. If no other replica can lead, the partition has no leader: the lost replica's
folder may be empty, so only an unclean election may choose it.

A replica that is back in a directory joins the ISR like any other. If ISR and ELR are empty, its broker reports how far
its log reaches. The only replica of a partition leads it again at once.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from kraft.control.commands import AssignReplicasToDirs
from kraft.control.decision import PARTITION_CHANGES_PER_SLICE_MAX, Context, Decision, FollowUp
from kraft.control.partitions.partition_change import Election, PartitionTarget, change_partition
from kraft.control.partitions.plans import ElectionSettings, eligibility
from kraft.control.replies import AssignReplicasToDirsReply
from kraft.image import BrokerRegistration, MetadataImage, PartitionState
from kraft.image.events import Event, PartitionChange
from kraft.image.partitions import NO_LEADER
from kraft.image.registrations import UNASSIGNED_DIRECTORY
from kraft.image.replay import changed_partition
from kraft.wire.error_codes import ErrorCode


def decide_assign_directories(image: MetadataImage, context: Context, command: AssignReplicasToDirs) -> Decision:
    """Record the directories: the first 1,000 now, the others as a follow-up. Unknown topics, partitions and replicas
    are skipped, because they were removed and the broker will learn that from the metadata."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        return Decision(reply=AssignReplicasToDirsReply(ErrorCode.STALE_BROKER_EPOCH), depends_on=image.offset)
    now = command.assignments[:PARTITION_CHANGES_PER_SLICE_MAX]
    later = command.assignments[PARTITION_CHANGES_PER_SLICE_MAX:]
    settings = ElectionSettings(image, context)
    events: list[Event] = []
    for (topic_id, partition_id), directory in {(row[0], row[1]): row[2] for row in now}.items():
        topic = image.topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(partition_id)
        if topic is None or state is None or broker.broker_id not in state.replicas:
            continue
        enough = settings.min_insync_replicas(topic.name)
        change = _assign(image, context, broker, topic_id, partition_id, state, directory, enough)
        if change is not None:
            events.append(change)
    if later:
        effects = (FollowUp(replace(command, assignments=later)),)
        return Decision(events=tuple(events), depends_on=image.offset, effects=effects)
    return Decision(events=tuple(events), reply=AssignReplicasToDirsReply(), depends_on=image.offset)


def _assign(
    image: MetadataImage,
    context: Context,
    broker: BrokerRegistration,
    topic_id: UUID,
    partition_id: int,
    state: PartitionState,
    directory: UUID,
    min_insync_replicas: int,
) -> PartitionChange | None:
    broker_id = broker.broker_id
    if state.directory_of(broker_id) == directory:
        return None
    directories = state.directories or (UNASSIGNED_DIRECTORY,) * len(state.replicas)
    placed = zip(state.replicas, directories, strict=True)
    assigned = tuple(directory if replica == broker_id else old for replica, old in placed)
    if broker.has_directory(directory):
        may_lead = eligibility(image, context)
        is_alone = state.replicas == state.last_known_elr == (broker_id,)
        target = PartitionTarget(directories=assigned, furthest=broker_id if is_alone else NO_LEADER)
    else:
        may_lead = eligibility(image, context, without=(broker_id,))
        target = PartitionTarget(
            directories=assigned,
            isr=tuple(replica for replica in state.isr if replica != broker_id),
            unclean_restarted=frozenset((broker_id,)),
        )
    change = change_partition(
        topic_id,
        partition_id,
        state,
        election=Election.ONLINE,
        eligibility=may_lead,
        min_insync_replicas=min_insync_replicas,
        target=target,
    )
    if change is None or len(state.replicas) == 1 or broker.has_directory(directory):
        return change
    after = changed_partition(state, change)
    if not after.isr and not after.elr:
        # several candidates: none of them becomes leader without a check of its log
        return replace(change, last_known_elr=state.replicas)
    return change
