"""The controller's listeners, and the dispatch of requests to the quorum or to the controller.

`run_controller` binds every controller listener of the node and serves until cancelled. A broker may run in the same
process, on the same quorum, with separate listeners.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from kraft.config import NodeConfig
from kraft.controller.controller import Controller
from kraft.controller.queries import requester_of
from kraft.image import Endpoint
from kraft.node.log_limit import LogLimit
from kraft.quorum.quorum import Quorum
from kraft.seam import Address, Binding, BoundListener, CloseReason, Seam, Transport, WireError
from kraft.wire.budget import MemoryBudget
from kraft.wire.rpc import FIRST_INTERNAL_KEY, version_refusal
from kraft.wire.server import CONTROLLER_TABLE, Request, ServerConnection, ServerLimits

if TYPE_CHECKING:
    from kraft.node.reply_faults import ReplyFaults
    from kraft.wire.request_meter import RequestMeter

log = structlog.get_logger("kraft.controller")

MEMORY_BUDGET_BYTES = 256 * 1024 * 1024
"""Size of the memory budget for the frames of a controller's connections, if the controller is not given a shared
budget."""


class ControllerListeners:
    """The bound controller listeners of one node."""

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        quorum: Quorum,
        controller: Controller,
        budget: MemoryBudget | None = None,
        faults: ReplyFaults | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self._config = config
        self._seam = seam
        self._quorum = quorum
        self._controller = controller
        self._budget = budget or MemoryBudget(MEMORY_BUDGET_BYTES)
        self._meter = meter
        self._limits = ServerLimits(frame_bytes_max=config.integer("socket.request.max.bytes"))
        self._connections: set[ServerConnection] = set()
        self._entry = self._handle if faults is None else faults.wrap(self._handle)
        self.log_limit = LogLimit(seam.clock)
        self.bound: dict[str, BoundListener] = {}

    def bind(self) -> None:
        """Start listening. Raises AddressInUse, which names the port that is taken."""
        for listener in self._config.listeners:
            if listener.name in self._config.controller_listener_names:
                binding = Binding(listener.name, Address(listener.host, listener.port), self._config.tls(listener.name))
                self.bound[listener.name] = self._seam.network.serve(binding, self._accept)
        self._controller.registration.listening(self.advertised())

    def advertised(self) -> tuple[Endpoint, ...]:
        """The endpoints that this controller advertises."""
        endpoints: list[Endpoint] = []
        for listener in self._config.advertised_listeners:
            bound = self.bound.get(listener.name)
            if bound is not None:
                host = listener.host or bound.address.host or "localhost"
                port = listener.port or bound.address.port
                endpoints.append(Endpoint(listener.name, host, port, listener.security_protocol.name))
        return tuple(endpoints)

    def close(self) -> None:
        """Stop accepting, and end every connection once its responses are sent."""
        for bound in self.bound.values():
            bound.close()
        for connection in list(self._connections):
            connection.close(CloseReason.SHUTDOWN.value, CloseReason.SHUTDOWN, flush=True)

    def _accept(self, transport: Transport) -> ServerConnection:
        connection = ServerConnection(
            transport,
            self._entry,
            limits=self._limits,
            budget=self._budget,
            on_closed=partial(self._closed, transport.peer_host),
            table=CONTROLLER_TABLE,
            meter=self._meter,
        )
        self._connections.add(connection)
        return connection

    def _closed(self, client_address: str, connection: ServerConnection, reason: CloseReason) -> None:
        self._connections.discard(connection)
        if reason is CloseReason.BAD_BYTES:
            why = connection.closed_because
            self.log_limit.warning(
                log, "connection closed", client=client_address, why=why, client_address=client_address
            )
        self._controller.connection_closed(connection, reason)

    def _handle(self, request: Request) -> None:
        refusal = version_refusal(request.api_key, request.api_version)
        if request.api_key >= FIRST_INTERNAL_KEY and not self._may_act(request):
            request.fail("needs CLUSTER_ACTION on the cluster", CloseReason.LOCAL)
        elif refusal is not None:
            request.respond(refusal)
        elif not self._quorum.handle(request) and not self._controller.handle(request):
            raise WireError(f"request key {request.api_key} is not served by controllers")

    def _may_act(self, request: Request) -> bool:
        """Return whether the sender may send internal requests: only nodes of the cluster may."""
        return self._controller.authorize(requester_of(request), "CLUSTER_ACTION", "CLUSTER", "kafka-cluster")


async def run_controller(
    config: NodeConfig,
    seam: Seam,
    quorum: Quorum,
    controller: Controller,
    *,
    budget: MemoryBudget | None = None,
    faults: ReplyFaults | None = None,
    meter: RequestMeter | None = None,
    task_status: trio.TaskStatus[ControllerListeners] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Bind the controller listeners, and serve until cancelled. Raises AddressInUse if a port is taken."""
    listeners = ControllerListeners(config, seam, quorum, controller, budget, faults, meter)
    listeners.bind()
    task_status.started(listeners)
    await controller.run()
