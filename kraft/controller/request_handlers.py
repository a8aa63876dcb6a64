"""Requests of the controller listener: requests are decoded to commands, and replies are encoded to responses.
`REQUESTS` has one function per API key.

A controller that is not active answers NOT_CONTROLLER and names the leader that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kraft.control import (
    AdminRequest,
    AllocateProducerIds,
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    RegisterBrokerCommand,
    RegisterControllerCommand,
    Requester,
)
from kraft.control.brokers.probing import ProbeOutcome
from kraft.control.commands import PartitionProposal, ProposedMember
from kraft.control.decide import ADMIN
from kraft.controller.command_queue import CommandWaiter
from kraft.controller.queries import READS, handle_api_versions, handle_read, not_decided, requester_of
from kraft.controller.voter_requests import VOTER_REQUESTS, submit_voter_change
from kraft.image import Endpoint, FeatureRange
from kraft.seam import WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey, RpcMessage, decode_rpc, encode_rpc
from kraft.wire.rpc import controller_messages as rpc_cluster
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.controller.controller import Controller

Handler = Callable[["Controller", Request], None]
Message = TypeVar("Message", bound=RpcMessage)


def _read(cls: type[Message], request: Request) -> Message:
    return decode_rpc(cls, request.api_version, request.body)


def _answer(request: Request, response: RpcMessage) -> None:
    if not request.is_answered:
        request.respond(encode_rpc(response, request.api_version))
        request.connection.meter.count_answer(request.api_key, response)


def _waiter(
    controller: Controller, request: Request, response: Callable[..., RpcMessage], make: Callable[[Any], RpcMessage]
) -> CommandWaiter:
    """Return a waiter that answers a request with `make(reply)`, or with NOT_CONTROLLER or another error in a response
    of class `response`."""

    def lost() -> None:
        _answer(request, response(error_code=ErrorCode.NOT_CONTROLLER, leader_id=leader_id(controller)))

    def failed(error: ErrorCode) -> None:
        _answer(request, response(error_code=error))

    return CommandWaiter(lambda reply: _answer(request, make(reply)), lost, failed)


def leader_id(controller: Controller) -> int:
    """Return the id of the active controller that this node knows; -1 if it knows none, or has itself just lost the
    role."""
    known = controller.quorum.leader_and_epoch[0]
    return -1 if known is None or known == controller.config.node_id else known


def handle_register_broker(controller: Controller, request: Request) -> None:
    """Register a broker. If another incarnation's session is live, probe its address first.

    Source: docs/decisions/05-fast-fencing.md#brokers.
    """
    asked = _read(rpc_cluster.RegisterBrokerRequest, request)
    endpoints = tuple(Endpoint(*row) for row in asked.endpoints)
    problem = controller.prober.problem_with(endpoints)
    if problem is not None:  # once the registration is in the log, every controller would have this problem
        code, text = ErrorCode.INVALID_REGISTRATION, f"broker {asked.broker_id}: {problem}"
        _answer(request, rpc_cluster.RegisterBrokerResponse(error_code=code, error_message=text))
        return
    command = RegisterBrokerCommand(
        cluster_id=asked.cluster_id,
        broker_id=asked.broker_id,
        incarnation_id=asked.incarnation_id,
        endpoints=endpoints,
        rack=asked.rack,
        host_id=asked.host_id,
        log_dirs=asked.log_dirs,
        features=tuple(FeatureRange(*row) for row in asked.features),
        previous_broker_epoch=asked.previous_broker_epoch,
    )

    def registered(reply: Any) -> RpcMessage:
        # A connection that has already ended must not be recorded: its end was reported before, and will not be again.
        if reply.error_code is ErrorCode.NONE and request.connection.closed_because is None:
            controller.record_heartbeat(asked.broker_id, reply.broker_epoch, request.connection.number)
        return rpc_cluster.RegisterBrokerResponse(
            error_code=int(reply.error_code), error_message=reply.error_message, broker_epoch=reply.broker_epoch
        )

    waiter = _waiter(controller, request, rpc_cluster.RegisterBrokerResponse, registered)
    if not _probe_previous_incarnation(controller, request, command, waiter):
        controller.queue.submit(command, waiter)


def _probe_previous_incarnation(
    controller: Controller, request: Request, command: RegisterBrokerCommand, waiter: CommandWaiter
) -> bool:
    """Probe the incarnation that this registration would replace, and decide when the outcome is known. Return False if
    that incarnation has no live session, or is being probed already. If the requester's connection has ended meanwhile,
    nothing is replaced; a live broker repeats its registration."""
    image = controller.queue.image
    old = None if image is None else image.brokers.get(command.broker_id)
    if old is None or old.incarnation_id == command.incarnation_id:
        return False
    if not controller.context().is_session_live(old.broker_id, old.broker_epoch):
        return False
    if old.broker_id in controller.registrations_probed:
        return False
    controller.registrations_probed.add(old.broker_id)

    def answered(outcome: ProbeOutcome) -> None:
        controller.registrations_probed.discard(old.broker_id)
        if request.connection.closed_because is not None:
            return
        is_dead = outcome in (ProbeOutcome.OTHER, ProbeOutcome.REFUSED, ProbeOutcome.CLOSED)
        dead_epoch = old.broker_epoch if is_dead else None
        controller.queue.submit(replace(command, dead_broker_epoch=dead_epoch), waiter)

    controller.prober.probe(old.broker_id, old.incarnation_id, controller.prober.endpoint_of(old), answered)
    return True


def handle_heartbeat(controller: Controller, request: Request) -> None:
    """Handle a heartbeat: it renews the session at once; a change of the broker's state is a command."""
    asked = _read(rpc_cluster.HeartbeatRequest, request)
    controller.record_heartbeat(
        asked.broker_id,
        asked.broker_epoch,
        request.connection.number,
        asked.metadata_offset,
        asked.log_ends,
        asked.log_epochs,
    )
    command = BrokerHeartbeat(
        broker_id=asked.broker_id,
        broker_epoch=asked.broker_epoch,
        metadata_offset=asked.metadata_offset,
        want_fence=asked.want_fence,
        want_shut_down=asked.want_shut_down,
        offline_log_dirs=asked.offline_log_dirs,
        log_ends=tuple(row[:2] for row in asked.log_ends),
    )

    def make(reply: Any) -> RpcMessage:
        return rpc_cluster.HeartbeatResponse(
            error_code=int(reply.error_code),
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.should_shut_down,
        )

    controller.queue.submit(command, _waiter(controller, request, rpc_cluster.HeartbeatResponse, make))


def handle_alter_partition(controller: Controller, request: Request) -> None:
    """Handle a leader's proposal of new ISRs."""
    asked = _read(rpc_cluster.AlterPartitionRequest, request)
    command = AlterPartition(
        broker_id=asked.broker_id,
        broker_epoch=asked.broker_epoch,
        partitions=tuple(
            PartitionProposal(
                one.topic_id,
                one.partition_id,
                one.leader_epoch,
                one.partition_epoch,
                tuple(ProposedMember(*member) for member in one.new_isr),
                one.leader_recovery_state,
            )
            for one in asked.partitions
        ),
    )

    def make(reply: Any) -> RpcMessage:
        return rpc_cluster.AlterPartitionResponse(
            error_code=int(reply.error_code),
            partitions=tuple(
                rpc_cluster.AlteredPartition(
                    topic_id=one.topic_id,
                    partition_id=one.partition_id,
                    error_code=int(one.error_code),
                    leader=one.leader,
                    leader_epoch=one.leader_epoch,
                    isr=one.isr,
                    leader_recovery_state=one.leader_recovery_state,
                    partition_epoch=one.partition_epoch,
                )
                for one in reply.partitions
            ),
        )

    controller.queue.submit(command, _waiter(controller, request, rpc_cluster.AlterPartitionResponse, make))


def handle_assign_replicas_to_dirs(controller: Controller, request: Request) -> None:
    """Handle a broker's report of the log directories of its replicas."""
    asked = _read(rpc_cluster.AssignReplicasToDirsRequest, request)
    command = AssignReplicasToDirs(
        broker_id=asked.broker_id, broker_epoch=asked.broker_epoch, assignments=asked.assignments
    )

    def make(reply: Any) -> RpcMessage:
        return rpc_cluster.AssignReplicasToDirsResponse(error_code=int(reply.error_code))

    controller.queue.submit(command, _waiter(controller, request, rpc_cluster.AssignReplicasToDirsResponse, make))


def handle_allocate_producer_ids(controller: Controller, request: Request) -> None:
    """Handle a broker's request for a block of producer ids."""
    asked = _read(rpc_cluster.AllocateProducerIdsRequest, request)

    def make(reply: Any) -> RpcMessage:
        return rpc_cluster.AllocateProducerIdsResponse(
            error_code=int(reply.error_code), first_producer_id=reply.first_producer_id, count=reply.count
        )

    command = AllocateProducerIds(broker_id=asked.broker_id, broker_epoch=asked.broker_epoch)
    controller.queue.submit(command, _waiter(controller, request, rpc_cluster.AllocateProducerIdsResponse, make))


def handle_register_controller(controller: Controller, request: Request) -> None:
    """Handle another controller's registration of its endpoints and features."""
    asked = _read(rpc_cluster.RegisterControllerRequest, request)
    command = RegisterControllerCommand(
        cluster_id=asked.cluster_id,
        controller_id=asked.controller_id,
        incarnation_id=asked.incarnation_id,
        endpoints=tuple(Endpoint(*row) for row in asked.endpoints),
        features=tuple(FeatureRange(*row) for row in asked.features),
    )

    def make(reply: Any) -> RpcMessage:
        return rpc_cluster.RegisterControllerResponse(
            error_code=int(reply.error_code), error_message=reply.error_message
        )

    controller.queue.submit(command, _waiter(controller, request, rpc_cluster.RegisterControllerResponse, make))


def handle_forward(controller: Controller, request: Request) -> None:
    """Handle a client's request that a broker forwarded with the client's identity."""
    asked = _read(rpc_cluster.ForwardRequest, request)
    key = asked.forwarded_key
    if key not in READS and key not in ADMIN and key not in VOTER_REQUESTS:
        raise WireError(f"request key {key} is not forwarded to controllers")
    version, newest = asked.forwarded_version, messages.newest_version(key)
    if version > newest:
        code = ErrorCode.UNSUPPORTED_VERSION
        _answer(request, rpc_cluster.ForwardResponse(error_code=code, newest_version=newest))
        return
    message = messages.decode_request(key, version, asked.body)

    def make(reply: Any) -> RpcMessage:
        return rpc_cluster.ForwardResponse(body=messages.encode_response(key, version, reply))

    waiter = _waiter(controller, request, rpc_cluster.ForwardResponse, make)
    requester = Requester(asked.principal, asked.client_address, asked.client_id)
    if key in ADMIN:
        controller.queue.submit(AdminRequest(api_key=key, request=message, requester=requester), waiter)
    elif not controller.queue.is_active:
        waiter.lost()
    elif key in VOTER_REQUESTS:
        submit_voter_change(controller, key, requester, message, waiter.reply)
    else:
        waiter.reply(READS[key](controller, requester, message))


def handle_admin(controller: Controller, request: Request) -> None:
    """Handle a client's request that was sent to the controller listener itself."""
    key, version = request.api_key, request.api_version
    message = messages.decode_request(key, version, request.body)
    requester = requester_of(request)

    def reply(response: Any) -> None:
        if not request.is_answered:
            request.respond(messages.encode_response(key, version, response))
            request.connection.meter.count_answer(key, response)

    waiter = CommandWaiter(
        reply,
        lambda: reply(not_decided(key, ErrorCode.NOT_CONTROLLER)),
        lambda error: reply(not_decided(key, error)),
    )
    controller.queue.submit(AdminRequest(api_key=key, request=message, requester=requester), waiter)


def handle_voter_change(controller: Controller, request: Request) -> None:
    """Handle a voter change that was sent to the controller listener itself."""
    key, version = request.api_key, request.api_version
    message = messages.decode_request(key, version, request.body)

    def reply(response: Any) -> None:
        if not request.is_answered:
            request.respond(messages.encode_response(key, version, response))
            request.connection.meter.count_answer(key, response)

    submit_voter_change(controller, key, requester_of(request), message, reply)


REQUESTS: Mapping[int, Handler] = MappingProxyType(
    {
        InternalKey.REGISTER_BROKER: handle_register_broker,
        InternalKey.HEARTBEAT: handle_heartbeat,
        InternalKey.ALTER_PARTITION: handle_alter_partition,
        InternalKey.ASSIGN_REPLICAS_TO_DIRS: handle_assign_replicas_to_dirs,
        InternalKey.ALLOCATE_PRODUCER_IDS: handle_allocate_producer_ids,
        InternalKey.REGISTER_CONTROLLER: handle_register_controller,
        InternalKey.FORWARD: handle_forward,
        ApiKey.API_VERSIONS: handle_api_versions,
        ApiKey.DESCRIBE_QUORUM: partial(handle_read, ApiKey.DESCRIBE_QUORUM),
        ApiKey.DESCRIBE_CLUSTER: partial(handle_read, ApiKey.DESCRIBE_CLUSTER),
        ApiKey.DESCRIBE_CONFIGS: partial(handle_read, ApiKey.DESCRIBE_CONFIGS),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(handle_read, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        ApiKey.UPDATE_FEATURES: handle_admin,
        ApiKey.UNREGISTER_BROKER: handle_admin,
        ApiKey.ADD_RAFT_VOTER: handle_voter_change,
        ApiKey.REMOVE_RAFT_VOTER: handle_voter_change,
        ApiKey.UPDATE_RAFT_VOTER: handle_voter_change,
    }
)
"""API key → handler, for the controller listener; without the quorum's messages."""
