"""ElectLeaders: preferred or unclean elections on demand, decided by the active controller. Source: KIP-460."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.api.answers import answer, part, read, respond
from kraft.broker.api.forwarding import forward
from kraft.broker.node.gates import Operation
from kraft.broker.node.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker


def handle_elect_leaders(broker: Broker, request: Request, session: Session) -> None:
    """Forward, if the cluster may be altered."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(
            ApiKey.ELECT_LEADERS,
            error_code=error,
            replica_election_results=tuple(
                part(ApiKey.ELECT_LEADERS, "ReplicaElectionResult")(
                    topic=topic.topic,
                    partition_result=tuple(
                        part(ApiKey.ELECT_LEADERS, "PartitionResult")(
                            partition_id=partition, error_code=error, error_message=text
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in message.topic_partitions or ()
            ),
        )

    if not broker.gates.authorize_cluster(session, Operation.ALTER):
        text = "altering the cluster is not allowed"
        answer(request, failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text))
        return
    forward(
        broker,
        request,
        session,
        message,
        finish=lambda response: response,
        failure=failure,
        timeout_ms=milliseconds(message.timeout),
    )
