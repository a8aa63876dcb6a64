"""Log directories that went offline: the broker leaves the ISRs of the partitions there (KIP-858), in slices.

A broker's registration holds its online directories; a replica whose directory is not among them cannot lead.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.control.commands import HandleOfflineDirectories
from kraft.control.decision import Context, Decision, FollowUp
from kraft.control.partitions.partition_change import Election, PartitionTarget, change_partition
from kraft.control.partitions.plans import ElectionSettings, Located, Slice, eligibility, partitions_from, take_slice
from kraft.control.replies import BrokerHeartbeatReply
from kraft.image import MetadataImage
from kraft.image.events import BrokerRegistrationChange, PartitionChange
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.error_codes import ErrorCode


def decide_offline_directories(image: MetadataImage, context: Context, command: HandleOfflineDirectories) -> Decision:
    """Decide one slice of the partitions in the offline directories. The last slice records which directories remain
    online; the broker's heartbeat is decided after it."""
    heartbeat = command.heartbeat
    broker = image.brokers.get(heartbeat.broker_id)
    if broker is None or broker.broker_epoch != heartbeat.broker_epoch:
        return Decision(reply=BrokerHeartbeatReply(error_code=ErrorCode.STALE_BROKER_EPOCH), depends_on=image.offset)
    part = _leave(image, context, command)
    if part.cursor is not None:
        rest = replace(command, cursor=part.cursor)
        return Decision(events=tuple(part.events), depends_on=image.offset, effects=(FollowUp(rest),))
    online = tuple(directory for directory in broker.log_dirs if directory not in command.directories)
    change = BrokerRegistrationChange(broker.broker_id, broker.broker_epoch, log_dirs=online or (LOST_DIRECTORY,))
    return Decision(events=(*part.events, change), depends_on=image.offset, effects=(FollowUp(heartbeat),))


def _leave(image: MetadataImage, context: Context, command: HandleOfflineDirectories) -> Slice:
    broker_id = command.heartbeat.broker_id
    lost = frozenset(command.directories)
    settings = ElectionSettings(image, context)
    eligible = eligibility(image, context)

    def change(located: Located) -> PartitionChange | None:
        state = located.state
        if state.directory_of(broker_id) not in lost or (broker_id not in state.isr and state.leader != broker_id):
            return None
        everyone_else = replace(
            eligible, may_lead=lambda replica, directory: replica != broker_id and eligible.may_lead(replica, directory)
        )
        return change_partition(
            located.topic.topic_id,
            located.partition_id,
            state,
            election=Election.ONLINE,
            eligibility=everyone_else,
            min_insync_replicas=settings.min_insync_replicas(located.topic.name),
            target=PartitionTarget(isr=tuple(replica for replica in state.isr if replica != broker_id)),
        )

    return take_slice(partitions_from(image, command.cursor), change)
