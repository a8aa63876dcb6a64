"""Identify: return the incarnation id of the process that listens on this address.

The active controller sends this request after a connection of this broker ended. Only the inter-broker listener serves
it, even before the broker is registered. The response has no other content.
Source: docs/decisions/05-fast-fencing.md#brokers.
"""

from __future__ import annotations

from kraft.broker.serving.session import Session
from kraft.wire.rpc import decode_rpc, encode_rpc, version_refusal
from kraft.wire.rpc.controller_messages import IdentifyRequest, IdentifyResponse
from kraft.wire.server import Request


def handle_identify(identity: IdentifyResponse, request: Request, session: Session) -> None:
    """Answer with the cluster id, the node id and the incarnation."""
    refusal = version_refusal(request.api_key, request.api_version)
    if refusal is not None:
        request.respond(refusal)
        return
    decode_rpc(IdentifyRequest, request.api_version, request.body)
    request.respond(encode_rpc(identity, request.api_version))
    request.connection.meter.count_answer(request.api_key, identity)
