"""Begin and delete the states of a share group's partitions at the share coordinators, as the group coordinator says.

A state that could not be begun is begun again by a later heartbeat. A group is deleted only when all its states are.
Source: KIP-932, Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.group.step import DeleteShareStates, InitializeShareStates, ShareStateWork
from kraft.broker.share_coordinator.records import NO_OFFSET, ShareKey
from kraft.broker.share_coordinator.requests import (
    DeleteStateRequest,
    InitializeStateRequest,
    ReadSummaryRequest,
    Request,
    StateReply,
    Ticket,
)
from kraft.broker.share_group.requests import RaiseEpochRequest, ShareInitializedRequest, ShareMembershipSettings
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.coordinator.shard_driver import CoordinatorShard
    from kraft.broker.group.coordinator import GroupCoordinator

AskShareCoordinator = Callable[[Request, Ticket], None]
ShareSettingsOf = Callable[[str], ShareMembershipSettings]
Place = tuple[UUID, int]


def carry_out_share_state_work(
    shard: CoordinatorShard[GroupCoordinator], work: ShareStateWork, ask: AskShareCoordinator
) -> None:
    """Ask the share coordinators, and report to the group coordinator when all have answered."""
    if isinstance(work, InitializeShareStates):
        _initialize(shard, work, ask)
    else:
        _delete(shard, work, ask)


def _initialize(
    shard: CoordinatorShard[GroupCoordinator], work: InitializeShareStates, ask: AskShareCoordinator
) -> None:
    group, state_epoch, places, _ = work.initialization

    def initialized(errors: dict[Place, ErrorCode]) -> None:
        done = tuple(place for place in places if errors[place] is ErrorCode.NONE)
        if done:
            shard.submit(ShareInitializedRequest(group, done, state_epoch), _no_reply)
        for place in (place for place in places if errors[place] is ErrorCode.FENCED_STATE_EPOCH):
            ask(ReadSummaryRequest(ShareKey(group, *place)), partial(_raise_epoch, shard, group))

    requests: dict[Place, Request] = {
        place: InitializeStateRequest(ShareKey(group, *place), state_epoch, NO_OFFSET) for place in places
    }
    ask_all(requests, ask, initialized)


def _delete(shard: CoordinatorShard[GroupCoordinator], work: DeleteShareStates, ask: AskShareCoordinator) -> None:
    ticket, request, state_epoch, places = work

    def deleted(errors: dict[Place, ErrorCode]) -> None:
        error = next((error for error in errors.values() if error is not ErrorCode.NONE), None)
        if error is None:
            shard.submit(request._replace(states_deleted=True), ticket)
        else:
            ticket(request.refused(error))

    requests: dict[Place, Request] = {
        place: DeleteStateRequest(ShareKey(request.group, *place), state_epoch) for place in places
    }
    ask_all(requests, ask, deleted)


def _raise_epoch(shard: CoordinatorShard[GroupCoordinator], group: str, reply: StateReply) -> None:
    """Let the group continue in a newer epoch than that of a state which fences it."""
    if reply.state is not None:
        shard.submit(RaiseEpochRequest(group, reply.state.state_epoch), _no_reply)


def ask_all(
    requests: dict[Place, Request], ask: AskShareCoordinator, then: Callable[[dict[Place, ErrorCode]], None]
) -> None:
    """Send all requests, and call `then` with the error of each when all are answered."""
    errors: dict[Place, ErrorCode] = {}

    def answered(place: Place, reply: StateReply) -> None:
        errors[place] = reply.error
        if len(errors) == len(requests):
            then(errors)

    for place, request in list(requests.items()):
        ask(request, partial(answered, place))


def _no_reply(reply: object) -> None:
    """Ignore the reply, because no client waits for it."""
