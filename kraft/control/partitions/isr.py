"""AlterPartition: a leader proposes new ISRs.

Invariants: a proposal is accepted only if leader, leader epoch and partition epoch are current, and every proposed
member is registered, active and named with its current broker epoch (M8). Each partition succeeds or fails alone.
Source: AlterPartitionRequest, KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.control.commands import AlterPartition, PartitionProposal
from kraft.control.decision import PARTITION_CHANGES_PER_SLICE_MAX, Context, Decision, FollowUp
from kraft.control.partitions.partition_change import Election, Eligibility, PartitionTarget, change_partition
from kraft.control.partitions.plans import ElectionSettings, eligibility
from kraft.control.replies import AlteredPartitionReply, AlterPartitionReply
from kraft.image import MetadataImage, PartitionState, RecoveryState
from kraft.image.events import Event
from kraft.image.registrations import BrokerRegistration
from kraft.image.replay import changed_partition
from kraft.wire.error_codes import ErrorCode


def decide_alter_partition(image: MetadataImage, context: Context, command: AlterPartition) -> Decision:
    """Decide the proposals, with a result for each: the first 1,000 now, the others as a follow-up."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        return Decision(reply=AlterPartitionReply(error_code=ErrorCode.STALE_BROKER_EPOCH), depends_on=image.offset)
    now = command.partitions[:PARTITION_CHANGES_PER_SLICE_MAX]
    later = command.partitions[PARTITION_CHANGES_PER_SLICE_MAX:]
    settings = ElectionSettings(image, context)
    eligible = eligibility(image, context)
    events: list[Event] = []
    answers = list(command.answered)
    dealt_with: set[tuple[object, int]] = set()
    for proposal in now:
        key = (proposal.topic_id, proposal.partition_id)
        if key in dealt_with:
            answers.append(_refused(proposal, ErrorCode.INVALID_REQUEST))
            continue
        dealt_with.add(key)
        answers.append(_decide_one(image, context, command.broker_id, proposal, settings, eligible, events))
    if later:
        rest = replace(command, partitions=later, answered=tuple(answers))
        return Decision(events=tuple(events), depends_on=image.offset, effects=(FollowUp(rest),))
    reply = AlterPartitionReply(partitions=tuple(answers))
    return Decision(events=tuple(events), reply=reply, depends_on=image.offset)


def _decide_one(
    image: MetadataImage,
    context: Context,
    sender: int,
    proposal: PartitionProposal,
    settings: ElectionSettings,
    eligible: Eligibility,
    events: list[Event],
) -> AlteredPartitionReply:
    """Append the change of one partition to `events`; return its result."""
    topic = image.topics.get_by_id(proposal.topic_id)
    if topic is None:
        return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID)
    state = topic.find(proposal.partition_id)
    if state is None:
        return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refusal = refuse_proposal(image, context, sender, proposal, state)
    if refusal is not None:
        return _refused(proposal, refusal)
    change = change_partition(
        topic.topic_id,
        proposal.partition_id,
        state,
        election=Election.ONLINE,
        eligibility=eligible,
        min_insync_replicas=settings.min_insync_replicas(topic.name),
        target=PartitionTarget(
            isr=_in_assignment_order(state, proposal),
            recovery_state=RecoveryState(proposal.leader_recovery_state),
        ),
    )
    if change is None:
        return _accepted(proposal, state)
    events.append(change)
    after = changed_partition(state, change)
    if after.leader != state.leader:
        return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED)
    return _accepted(proposal, after)


def refuse_proposal(
    image: MetadataImage, context: Context, sender: int, proposal: PartitionProposal, state: PartitionState
) -> ErrorCode | None:
    """Return why this proposal is rejected, or None. The order of the checks is Kafka's."""
    members = [member.broker_id for member in proposal.new_isr]
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != state.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(set(members)) != len(members) or not set(members) <= set(state.replicas) or state.leader not in members:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state not in (RecoveryState.RECOVERED, RecoveryState.RECOVERING):
        return ErrorCode.INVALID_REQUEST
    is_recovering = proposal.leader_recovery_state == RecoveryState.RECOVERING
    if is_recovering and (len(members) > 1 or state.leader_recovery_state is RecoveryState.RECOVERED):
        return ErrorCode.INVALID_REQUEST
    for member in proposal.new_isr:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.is_active or member.broker_id in context.being_fenced:
            return ErrorCode.INELIGIBLE_REPLICA
        if member.broker_epoch not in (-1, broker.broker_epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        if member.broker_id not in state.isr and not _is_placed(broker, context, state):
            return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_placed(broker: BrokerRegistration, context: Context, state: PartitionState) -> bool:
    """Return whether this broker's replica is in a log directory that is online and not going offline. Members that
    join the ISR must be; a member that is in the ISR already is removed by the plan for its offline directory."""
    directory = state.directory_of(broker.broker_id)
    return directory is None or (directory not in context.directories_going_offline and broker.has_directory(directory))


def _in_assignment_order(state: PartitionState, proposal: PartitionProposal) -> tuple[int, ...]:
    members = {member.broker_id for member in proposal.new_isr}
    if members == set(state.isr):
        return state.isr
    return tuple(replica for replica in state.replicas if replica in members)


def _refused(proposal: PartitionProposal, code: ErrorCode) -> AlteredPartitionReply:
    return AlteredPartitionReply(topic_id=proposal.topic_id, partition_id=proposal.partition_id, error_code=code)


def _accepted(proposal: PartitionProposal, state: PartitionState) -> AlteredPartitionReply:
    return AlteredPartitionReply(
        topic_id=proposal.topic_id,
        partition_id=proposal.partition_id,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=int(state.leader_recovery_state),
        partition_epoch=state.partition_epoch,
    )
