"""The five RPCs with which brokers read and change the persisted state of share partitions at their share coordinators.

A request is answered when the share coordinator has answered for each of its partitions. The client needs
CLUSTER_ACTION. Source: KIP-932, Kafka's KafkaApis and ShareCoordinatorService.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kraft.broker.coordinator.share_state_messages import DELETE, SUMMARY, requests_of, response_of
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, read
from kraft.broker.serving.session import Session
from kraft.broker.share_coordinator.requests import Request as StateRequest
from kraft.broker.share_coordinator.requests import StateReply
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

WITHOUT_TOPIC = frozenset({DELETE, SUMMARY})
"""RPCs that are answered also for a topic that does not exist any more."""


def handle_share_state(context: HandlerContext, request: Request, session: Session) -> None:
    """Pass each partition of the request to its share coordinator."""
    key, message = ApiKey(request.api_key), read(request)
    wanted = requests_of(key, message)
    is_allowed = context.gates.authorize_cluster(session, Operation.CLUSTER_ACTION)
    replies = [StateReply(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * len(wanted)
    missing = len(wanted) if is_allowed else 0

    def answered(number: int, reply: StateReply) -> None:
        nonlocal missing
        replies[number] = reply
        missing -= 1
        if not missing:
            context.finish(request, lambda: answer(request, response_of(key, message, replies)))

    if not missing:
        answer(request, response_of(key, message, replies))
        return
    for number, one in enumerate(wanted):
        error = one if isinstance(one, ErrorCode) else _refusal(context, key, one)
        if error is not ErrorCode.NONE or isinstance(one, ErrorCode):
            answered(number, StateReply(error))
        else:
            context.share_coordinators.submit(one, partial(answered, number))


def _refusal(context: HandlerContext, key: ApiKey, wanted: StateRequest) -> ErrorCode:
    topic = context.image.topics.get_by_id(wanted.key.topic_id)
    is_known = topic is not None and topic.find(wanted.key.partition) is not None
    return ErrorCode.NONE if is_known or key in WITHOUT_TOPIC else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
