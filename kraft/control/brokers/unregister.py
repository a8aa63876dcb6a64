"""UnregisterBroker as requested by a client (KIP-631)."""

from __future__ import annotations

from typing import Any

from kraft.control.brokers.registration import decide_unregister
from kraft.control.commands import AdminRequest, UnregisterBrokerCommand
from kraft.control.decision import Context, Decision
from kraft.image import MetadataImage
from kraft.wire.error_codes import ErrorCode


def decide_unregister_broker(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide an UnregisterBroker request of the newest version."""
    broker_id = command.request.broker_id
    if not context.authorize(command.requester, "ALTER", "CLUSTER", "kafka-cluster"):
        reply = _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        return Decision(reply=reply, depends_on=image.offset)
    plan = UnregisterBrokerCommand(
        broker_id=broker_id,
        done=_response(ErrorCode.NONE, None),
        not_registered=_response(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        ),
    )
    return decide_unregister(image, context, plan)


def _response(code: ErrorCode, message: str | None) -> Any:
    from datetime import timedelta

    from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

    return UnregisterBrokerResponse(throttle_time=timedelta(0), error_code=code, error_message=message)
