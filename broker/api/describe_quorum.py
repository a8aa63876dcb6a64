"""DescribeQuorum: the voters and observers of the metadata quorum, as its leader sees them. Source: KIP-595."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.api.answers import answer, read, respond
from kraft.broker.api.forwarding import forward
from kraft.broker.node.gates import Operation
from kraft.broker.node.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker


def handle_describe_quorum(broker: Broker, request: Request, session: Session) -> None:
    """Forward, if the cluster may be described."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.DESCRIBE_QUORUM, error_code=error, error_message=text)

    if not broker.gates.authorize_cluster(session, Operation.DESCRIBE):
        text = "describing the cluster is not allowed"
        answer(request, failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text))
        return
    forward(broker, request, session, message, finish=lambda response: response, failure=failure)
