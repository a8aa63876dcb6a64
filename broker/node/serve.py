"""`serve`: run one whole node, with any roles, over a seam. Production and the simulator use the same coroutine.

A node has one metadata quorum replica: its controller votes with it, its broker observes with it, and a node of both
roles shares it. `serve` returns after `Node.request_stop` (stopping in order: broker, controller, quorum, locks).
Otherwise it raises the error that ended the node: AddressInUse, DiskLocked, ForeignDirectory, RegistrationRefused,
StorageCorrupt, InvariantError. Cancelling it is equivalent to a crash: nothing more is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from kraft.broker.node.identity import NodeIdentity, open_identity
from kraft.broker.node.node_metrics import register_node_metrics
from kraft.broker.serving.gates import Gates
from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.broker.serving.metrics.rates import Rates
from kraft.config import NodeConfig
from kraft.controller.controller import Controller
from kraft.controller.controller_node import ControllerListeners, run_controller
from kraft.node.peers import Peers
from kraft.quorum.publisher import MetadataPublisher
from kraft.quorum.quorum import Quorum
from kraft.seam import InvariantError, Seam
from kraft.wire.budget import MemoryBudget
from kraft.wire.request_meter import RequestMeter

if TYPE_CHECKING:
    from kraft.broker.admin.listener import AdminListener
    from kraft.broker.admin.node_view import NodeView
    from kraft.broker.node.broker_node import BrokerNode
    from kraft.node.reply_faults import ReplyFaults
    from kraft.wire.reply_policy import ReplyPolicy

log = structlog.get_logger("kraft.node")

MEMORY_BUDGET_BYTES = 160 * 1024 * 1024
"""Bytes of memory for the frames, fetch buffers and decompression of one process, unless queued.max.request.bytes is
larger. The value is more than 4/3 of the largest frame, so that the limit is never exceeded."""

HOUSEKEEPING_MS = 1_000

HOSTS_LOGGED_MAX = 5


def no_version() -> str:
    """Return the version of a node that does not run as its own process, for example in the simulator."""
    return "unknown"


def log_slow_request(name: str, parts: dict[str, float]) -> None:
    """Log a slow request in one line, with the duration of each part in ms. The logger limits the number of lines with
    one message per second."""
    log.warning(
        "slow request",
        request=name,
        total_ms=round(parts["TotalTimeMs"], 1),
        queue_ms=round(parts["RequestQueueTimeMs"], 1),
        local_ms=round(parts["LocalTimeMs"], 1),
        remote_ms=round(parts["RemoteTimeMs"], 1),
        response_queue_ms=round(parts["ResponseQueueTimeMs"], 1),
        send_ms=round(parts["ResponseSendTimeMs"], 1),
        bytes=int(parts["RequestBytes"]),
    )


class Node:
    """A running node: the methods for the code that started it."""

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        identity: NodeIdentity,
        replies: ReplyPolicy | None = None,
        version: Callable[[], str] = no_version,
    ) -> None:
        self.config = config
        self.identity = identity
        self.metrics = Metrics()
        self.rates = Rates(seam.clock)
        self.requests = RequestMeter(seam.clock.monotonic_ns)
        self.gates = Gates(MemoryBudget(max(MEMORY_BUDGET_BYTES, config.integer("queued.max.request.bytes"))))
        self.peers = Peers(seam, client_id=f"node-{config.node_id}")
        self.quorum = Quorum(config, seam, identity.metadata)
        self.publisher = MetadataPublisher(config, seam, self.quorum)
        self.quorum.add_listener(self.publisher)
        slow_ms = config.integer("kraft.slow.request.ms")
        if slow_ms >= 0:
            self.requests.slow_ms, self.requests.slow = slow_ms, log_slow_request
        self.controller: Controller | None = None
        self.controller_listeners: ControllerListeners | None = None
        self.broker: BrokerNode | None = None
        self.admin: AdminListener | None = None
        self._seam = seam
        self._version = version
        self._faults = None if replies is None else _faults(replies, seam)
        self._stop = trio.Event()
        self._failure: BaseException | None = None
        self._scope = trio.CancelScope()

    def request_stop(self) -> None:
        """Request an orderly stop of the node; `serve` returns when the stop is done."""
        self._stop.set()

    def fail(self, error: BaseException) -> None:
        """Stop the node at once, with this error."""
        if self._failure is None:
            self._failure = error
        self._scope.cancel()

    async def wait_ready(self) -> None:
        """Suspend until the broker is unfenced. A node that is only a controller is ready when it knows a leader."""
        if self.broker is not None:
            await self.broker.broker.lifecycle.unfenced.wait()
            return
        known = trio.Event()
        self.publisher.subscribe_leader(lambda leader_id, epoch: known.set() if leader_id is not None else None)
        if self.publisher.leader_id is None:
            await known.wait()

    async def run(self, task_status: trio.TaskStatus[Node]) -> None:
        """Run the node from its start to its end."""
        with self._scope:
            if self.config.is_broker:
                # A controller alone needs none of the broker, and starts sooner without it.
                from kraft.broker.node.broker_node import BrokerNode, Shared

                shared = Shared(
                    self.quorum, self.publisher, self.peers, self.metrics, self.requests, self.gates, self._faults
                )
                self.broker = BrokerNode(self.config, self._seam, self.identity, shared, fail=self.fail)
                self.broker.bind()
                await self.broker.open_directories()
            register_node_metrics(self, self._seam)
            self._bind_admin()
            async with trio.open_nursery() as nursery:
                await self._start(nursery)
                task_status.started(self)
                await self._stop.wait()
                await self._shut_down()
                nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    def _bind_admin(self) -> None:
        if self.config.string("kraft.admin.listener"):
            from kraft.broker.admin.listener import AdminListener  # only nodes with an admin listener need HTTP

            self.admin = AdminListener(self._admin_view(), self._seam)

    def _admin_view(self) -> NodeView:
        from kraft.broker.admin.node_view import BrokerView, NodeView

        lifecycle = None if self.broker is None else self.broker.broker.lifecycle
        return NodeView(
            self.config,
            self.identity.cluster_id,
            self.metrics,
            self.quorum,
            self.publisher,
            is_stopping=self._stop.is_set,
            version=self._version,
            broker=None if lifecycle is None else BrokerView(lambda: int(lifecycle.state), lifecycle.not_ready),
        )

    async def _start(self, nursery: trio.Nursery) -> None:
        if self._faults is not None:
            await nursery.start(self._faults.run)
        await nursery.start(self.peers.run)
        if self.admin is not None:
            nursery.start_soon(self.admin.run)
        if self.config.is_controller:
            self.controller = controller = Controller(
                self.config,
                self._seam,
                self.quorum,
                self.publisher,
                self.peers,
                cluster_id=self.identity.cluster_id,
            )
            from kraft.broker.serving.metrics.controller import register_controller_metrics

            register_controller_metrics(controller, self.metrics)
            serve_controller = partial(
                run_controller, budget=self.gates.memory, faults=self._faults, meter=self.requests
            )
            self.controller_listeners = await nursery.start(
                serve_controller, self.config, self._seam, self.quorum, controller
            )
        await nursery.start(self.quorum.run)
        nursery.start_soon(self._housekeeping)
        if self.broker is not None:
            await nursery.start(self.broker.run)

    async def _shut_down(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
        await self.quorum.shutdown()
        if self.controller_listeners is not None:
            self.controller_listeners.close()
        if self.admin is not None:
            self.admin.close()

    async def _housekeeping(self) -> None:
        """Release memory of idle connections, end connections that hold memory which others wait for, and log the
        events that were counted."""
        memory, clock = self.gates.memory, self._seam.clock
        while True:
            await clock.sleep_ms(HOUSEKEEPING_MS)
            memory.release_idle()
            self.requests.second_over()
            self.rates.second_over()
            evicted = memory.check_progress(clock.monotonic_ms())
            if evicted:
                log.warning(
                    "closed connections whose half-received requests came too slowly while others waited for memory; if"
                    " these are your clients, lower their max.request.size or raise queued.max.request.bytes",
                    connections=len(evicted),
                    client_addresses=sorted({holder.peer_host for holder in evicted})[:HOSTS_LOGGED_MAX],
                    memory_bytes=memory.total_bytes,
                )
            self.quorum.log_limit.report()
            if self.broker is not None:
                self.broker.broker.log_limit.report()
            if self.controller_listeners is not None:
                self.controller_listeners.log_limit.report()


async def serve(
    config: NodeConfig,
    seam: Seam,
    *,
    cluster_id: str | None = None,
    replies: ReplyPolicy | None = None,
    version: Callable[[], str] = no_version,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the node that `config` describes until a stop is requested. `task_status` gets the Node.

    Unformatted log directories are rejected, unless `cluster_id` is given: then they are formatted for that cluster.
    With `replies`, requests pass this fault policy, which the caller may change while the node runs. `version` returns
    the version of this package, for the admin listener."""
    for warning in config.warnings:
        log.warning("configuration", node_id=config.node_id, warning=warning)
    identity = await seam.disk.offload(open_identity, config, seam, cluster_id)
    node = Node(config, seam, identity, replies, version)
    try:
        await node.run(task_status)
    except BaseExceptionGroup as group:
        raise _cause(group) from group
    finally:
        identity.release()


def _faults(replies: ReplyPolicy, seam: Seam) -> ReplyFaults:
    from kraft.node.reply_faults import ReplyFaults  # only nodes that inject faults need it

    return ReplyFaults(replies, seam.clock)


def _cause(group: BaseExceptionGroup) -> BaseException:
    """Return the error that ended the node, from the exception group that its tasks raised: a broken invariant if there
    is one, else the first error."""
    leaves: list[BaseException] = []
    groups: list[BaseException] = [group]
    while groups:
        error = groups.pop(0)
        if isinstance(error, BaseExceptionGroup):
            groups.extend(error.exceptions)
        else:
            leaves.append(error)
    broken = [leaf for leaf in leaves if isinstance(leaf, InvariantError)]
    own = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
    return (broken or own or leaves)[0]
