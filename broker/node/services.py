"""What handlers and the replica manager need of the broker that holds them, as Protocols, so that a test can give less.

`BrokerServices` is implemented by `kraft.broker.node.broker.Broker`. All of it is called on the loop; only
`ControllerChannel.request` suspends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kraft.broker.node.dynamic_configs import DynamicConfigs
    from kraft.broker.node.gates import Gates
    from kraft.broker.node.metadata_topic import MetadataTopic
    from kraft.broker.node.metrics import Metrics
    from kraft.broker.node.replica_manager import ReplicaManager
    from kraft.broker.node.turns import Steps
    from kraft.config import NodeConfig
    from kraft.image.image import MetadataImage
    from kraft.seam import Seam
    from kraft.wire.server import Request


class ControllerChannel(Protocol):
    """Requests to the active controller; finds it, follows it, retries NOT_CONTROLLER."""

    async def request(self, message: Any) -> Any:
        """Send one RpcMessage (AlterPartition, …) and wait for its response message. Raises RequestFailed when the
        answer is unknown; the caller rebuilds its message and tries again."""
        ...


class DataPlaneServices(Protocol):
    """What the replica manager needs of its node. Everything here exists before the first `apply_delta`."""

    @property
    def config(self) -> NodeConfig: ...

    @property
    def seam(self) -> Seam: ...

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def dynamic_configs(self) -> DynamicConfigs:
        """The settings in force; already those of an image when the image's delta is applied."""
        ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def gates(self) -> Gates: ...

    @property
    def image(self) -> MetadataImage:
        """The newest image that this broker has published (committed metadata only)."""
        ...

    @property
    def broker_epoch(self) -> int:
        """Epoch of this registration; -1 before it. Goes into follower fetches, AlterPartition and the clean-shutdown
        file."""
        ...

    @property
    def controller(self) -> ControllerChannel: ...

    def log_directory_failed(self, directory: str, directory_id: Any, why: str) -> None:
        """A log directory has gone offline: report it in heartbeats (and stop the node if none is left)."""
        ...

    def node_failed(self, error: BaseException) -> None:
        """A broken invariant: stop the node."""
        ...


class BrokerServices(DataPlaneServices, Protocol):
    """What a handler needs: the above, the replica manager, and the cluster's own log as a topic."""

    @property
    def metadata_topic(self) -> MetadataTopic: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    def answer_later(self, request: Request, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """The rest of a handler that must wait: runs `await function(*arguments)`, which answers the request; if it
        fails the client is told and nothing else is touched."""
        ...

    def go_on(self, request: Request, steps: Steps) -> None:
        """The rest of a handler that has much to do on the loop: steps of some milliseconds at most, behind those that
        others have begun before; if one fails the client is told and nothing else is touched."""
        ...

    def finish(self, request: Request, function: Callable[..., None], *arguments: Any) -> None:
        """The rest of a handler that waited for a callback: calls `function(*arguments)`; if it fails the client is
        told and nothing else is touched."""
        ...
