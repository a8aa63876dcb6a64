"""ControllerPort: the interface by which a part of the broker sends requests to the active controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.wire.rpc import RpcMessage


@dataclass(frozen=True, slots=True)
class ControllerPort:
    """Sends requests of one broker to the active controller. `request` raises PeerRequestFailed if no response arrived.
    `broker_epoch()` returns the epoch of the broker's current registration, or -1 before the registration."""

    node_id: int
    broker_epoch: Callable[[], int]
    request: Callable[[RpcMessage], Awaitable[Any]]
