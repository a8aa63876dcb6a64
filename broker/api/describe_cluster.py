"""DescribeCluster: list the brokers as the clients of one listener see them. Source: KIP-700, KIP-919 (endpoint types),
KIP-1073 (fenced brokers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, CLUSTER, Operation
from kraft.broker.serving.request_versions import answer, kind, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


def handle_describe_cluster(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer from the newest image. A broker's listener describes brokers only; controllers describe themselves."""
    message = read(request)
    if message.endpoint_type != ENDPOINT_BROKERS:
        known = message.endpoint_type == ENDPOINT_CONTROLLERS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = (
            "this is a broker's listener: ask a controller for controller endpoints"
            if known
            else f"endpoint type {message.endpoint_type} is not known; 1 is brokers, 2 is controllers"
        )
        answer(request, respond(ApiKey.DESCRIBE_CLUSTER, error_code=error, error_message=text))
        return
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if message.include_cluster_authorized_operations:
        operations = 0
        if context.gates.authorize_cluster(session, Operation.DESCRIBE):
            operations = context.gates.authorized_operations(session, CLUSTER)
    brokers = tuple(_brokers(context, session.listener, message.include_fenced_brokers))
    alive = [entry.broker_id for entry in brokers if not entry.is_fenced]
    answer(
        request,
        respond(
            ApiKey.DESCRIBE_CLUSTER,
            endpoint_type=ENDPOINT_BROKERS,
            cluster_id=context.cluster_id,
            controller_id=context.node_id if context.node_id in alive else min(alive, default=-1),
            brokers=brokers,
            cluster_authorized_operations=operations,
        ),
    )


def _brokers(context: HandlerContext, listener: str, include_fenced: bool) -> Iterator[Any]:
    entry = kind(ApiKey.DESCRIBE_CLUSTER, "DescribeClusterBroker")
    for registration in context.image.sorted_brokers():
        endpoint = registration.endpoint(listener)
        if endpoint is not None and (include_fenced or not registration.fenced):
            yield entry(
                broker_id=registration.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=registration.rack,
                is_fenced=registration.fenced,
            )
