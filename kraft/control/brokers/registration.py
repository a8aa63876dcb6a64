"""Registration and unregistration of brokers.

Invariants: there is at most one unexpired incarnation per broker id, and broker epochs rise (M7). A returning broker is
out of every ISR, and after an unclean stop out of every ELR, before it is registered (M16). It starts fenced.
Source: BrokerRegistrationRequest, KIP-631, KIP-841, KIP-966, Kafka's ClusterControlManager.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.control.commands import START, RegisterBrokerCommand, UnregisterBrokerCommand
from kraft.control.decision import Context, Decision, FollowUp
from kraft.control.features import unsupported_feature
from kraft.control.partitions.plans import leave_partitions
from kraft.control.replies import RegisterBrokerReply
from kraft.image import BrokerRegistration, MetadataImage
from kraft.image.events import RegisterBroker, UnregisterBroker
from kraft.image.registrations import RESERVED_DIRECTORIES, is_node_id
from kraft.wire.error_codes import ErrorCode


def decide_register_broker(image: MetadataImage, context: Context, command: RegisterBrokerCommand) -> Decision:
    """Check a registration, remove the old incarnation from its partitions in slices, then record the registration."""
    refusal = refuse_registration(image, context, command)
    if refusal is not None:
        return Decision(reply=refusal, depends_on=image.offset)
    old = image.brokers.get(command.broker_id)
    if old is not None and old.incarnation_id == command.incarnation_id:
        return _amend(image, command, old)
    if old is None:
        return _record(image, context, command, ())
    unclean = frozenset[int]() if is_clean(old, command) else frozenset((command.broker_id,))
    leaving = frozenset((command.broker_id,))
    part = leave_partitions(image, context, leaving, command.cursor or START, unclean_restarted=unclean)
    if part.cursor is not None:
        rest = replace(command, replaced_epoch=old.broker_epoch, cursor=part.cursor)
        return Decision(events=tuple(part.events), depends_on=image.offset, effects=(FollowUp(rest),))
    return _record(image, context, command, tuple(part.events))


def is_clean(old: BrokerRegistration, command: RegisterBrokerCommand) -> bool:
    """Return whether the last incarnation of the broker stopped cleanly: the clean-shutdown file holds that
    incarnation's broker epoch."""
    return old.broker_epoch == command.previous_broker_epoch


def _record(
    image: MetadataImage, context: Context, command: RegisterBrokerCommand, before: tuple[object, ...]
) -> Decision:
    epoch = context.next_offset + len(before)
    record = RegisterBroker(
        command.broker_id,
        command.incarnation_id,
        epoch,
        command.endpoints,
        command.rack,
        command.host_id,
        True,
        False,
        command.log_dirs,
        command.features,
    )
    events = (*before, record)
    return Decision(events=events, reply=RegisterBrokerReply(broker_epoch=epoch), depends_on=image.offset)  # type: ignore[arg-type]


def _amend(image: MetadataImage, command: RegisterBrokerCommand, old: BrokerRegistration) -> Decision:
    """Handle a repeated registration of the same incarnation: it keeps its epoch and state, and changed fields are
    recorded."""
    new = old._replace(
        endpoints=command.endpoints,
        rack=command.rack,
        host_id=command.host_id,
        log_dirs=command.log_dirs,
        features=command.features,
    )
    reply = RegisterBrokerReply(broker_epoch=old.broker_epoch)
    if new == old:
        return Decision(reply=reply, depends_on=image.offset)
    return Decision(events=(RegisterBroker(*new),), reply=reply, depends_on=image.offset)


def refuse_registration(
    image: MetadataImage, context: Context, command: RegisterBrokerCommand
) -> RegisterBrokerReply | None:
    """Return why this registration is rejected, or None."""

    def refuse(code: ErrorCode, message: str) -> RegisterBrokerReply:
        return RegisterBrokerReply(error_code=code, error_message=message)

    if command.cluster_id != context.cluster_id:
        return refuse(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {command.broker_id} belongs to cluster {command.cluster_id}; this is {context.cluster_id}",
        )
    old = image.brokers.get(command.broker_id)
    is_other = old is not None and old.incarnation_id != command.incarnation_id
    is_live = old is not None and context.is_session_live(command.broker_id, old.broker_epoch)
    is_dead = old is not None and old.broker_epoch == command.dead_broker_epoch
    is_overtaken = old is not None and old.broker_epoch != command.replaced_epoch
    if is_other and is_overtaken and command.cursor is not None:
        return refuse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process registered as broker {command.broker_id} while this registration was in progress",
        )
    if is_other and is_live and not is_dead and command.cursor is None:
        return refuse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process registered as broker {command.broker_id} and its session is live; "
            f"it ends {context.session_timeout_ms} ms after the last heartbeat",
        )
    if not is_node_id(command.broker_id):
        return refuse(ErrorCode.INVALID_REGISTRATION, f"{command.broker_id} is no broker id")
    problem = _log_dirs_problem(image, command)
    if problem is not None:
        return refuse(ErrorCode.INVALID_REGISTRATION, problem)
    if not command.endpoints:
        return refuse(ErrorCode.INVALID_REGISTRATION, f"broker {command.broker_id} registers without a listener")
    missing = unsupported_feature(image, command.features)
    if missing is not None:
        return refuse(ErrorCode.UNSUPPORTED_VERSION, f"broker {command.broker_id}: {missing}")
    return None


def _log_dirs_problem(image: MetadataImage, command: RegisterBrokerCommand) -> str | None:
    if not command.log_dirs:
        return f"broker {command.broker_id} registers without a log directory"
    if len(set(command.log_dirs)) != len(command.log_dirs):
        return f"broker {command.broker_id} names a log directory twice"
    for directory in command.log_dirs:
        if directory.int < RESERVED_DIRECTORIES:
            return f"broker {command.broker_id} registers the reserved log directory id {directory}"
    for other in image.sorted_brokers():
        shared = set(other.log_dirs).intersection(command.log_dirs)
        if other.broker_id != command.broker_id and shared:
            return f"log directory {min(shared)} of broker {command.broker_id} belongs to broker {other.broker_id}"
    return None


def decide_unregister(image: MetadataImage, context: Context, command: UnregisterBrokerCommand) -> Decision:
    """Remove the broker from every ISR and ELR in slices, then delete its registration. Replica lists keep the id."""
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        return Decision(reply=command.not_registered, depends_on=image.offset)
    leaving = frozenset((command.broker_id,))
    part = leave_partitions(image, context, leaving, command.cursor, unclean_restarted=leaving)
    if part.cursor is not None:
        rest = replace(command, cursor=part.cursor)
        return Decision(events=tuple(part.events), depends_on=image.offset, effects=(FollowUp(rest),))
    events = (*part.events, UnregisterBroker(command.broker_id, broker.broker_epoch))
    return Decision(events=events, reply=command.done, depends_on=image.offset)
