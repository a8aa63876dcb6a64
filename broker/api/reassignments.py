"""AlterPartitionReassignments and ListPartitionReassignments: the active controller decides and tells (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.api.forwarding import forward
from kraft.broker.serving.request_versions import read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker


def handle_alter_reassignments(broker: Broker, request: Request, session: Session) -> None:
    """Each partition's replicas are moved, its reassignment is cancelled, or it is refused, alone."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.ALTER_PARTITION_REASSIGNMENTS, error_code=error, error_message=text, responses=())

    forward(broker, request, session, message, failure, timeout_ms=milliseconds(message.timeout))


def handle_list_reassignments(broker: Broker, request: Request, session: Session) -> None:
    """Partitions that are being reassigned."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.LIST_PARTITION_REASSIGNMENTS, error_code=error, error_message=text, topics=())

    forward(broker, request, session, message, failure, timeout_ms=milliseconds(message.timeout))
