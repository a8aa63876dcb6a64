"""The delete_records handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.node.services import BrokerServices
    from kraft.broker.node.session import Session
    from kraft.wire.server import Request


def handle_delete_records(broker: BrokerServices, request: Request, session: Session) -> None:
    """Answer one request of this API."""
