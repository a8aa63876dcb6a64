"""Begin and delete the states of a share group's partitions at the share coordinators, as the group coordinator says.

What could not be begun or deleted is repeated by a later heartbeat. A group is deleted only when all its states are.
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
    Request,
    StateReply,
    Ticket,
)
from kraft.broker.share_group.requests import ShareInitializedRequest, ShareMembershipSettings, StatesDeletedRequest
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
    group, state_epoch, places = work.initialization

    def initialized(errors: dict[Place, ErrorCode]) -> None:
        done = tuple(place for place in places if errors[place] is ErrorCode.NONE)
        if done:
            shard.submit(ShareInitializedRequest(group, done), _no_reply)

    requests: dict[Place, Request] = {
        place: InitializeStateRequest(ShareKey(group, *place), state_epoch, NO_OFFSET) for place in places
    }
    ask_all(requests, ask, initialized)


def _delete(shard: CoordinatorShard[GroupCoordinator], work: DeleteShareStates, ask: AskShareCoordinator) -> None:
    (group, places), waiting = work

    def deleted(errors: dict[Place, ErrorCode]) -> None:
        refused = {topic_id: error for (topic_id, _), error in errors.items() if error is not ErrorCode.NONE}
        done = frozenset(topic_id for topic_id, _ in places if topic_id not in refused)
        if done:
            shard.submit(StatesDeletedRequest(group, done), _no_reply)
        if waiting is None:
            return
        ticket, request = waiting
        if refused:
            ticket(request.refused(next(iter(refused.values()))))
        else:
            shard.submit(request._replace(states_deleted=True), ticket)

    ask_all({place: DeleteStateRequest(ShareKey(group, *place)) for place in places}, ask, deleted)


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
