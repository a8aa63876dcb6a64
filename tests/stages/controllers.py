"""Real controllers with real quorums in a simulated world, and brokers of which only registration and heartbeats
exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import trio

from kraft.config import NodeConfig
from kraft.control.features import SUPPORTED_FEATURES
from kraft.controller.controller import Controller
from kraft.controller.controller_node import run_controller
from kraft.image import MetadataImage
from kraft.node.peers import PeerRequestFailed, Peers
from kraft.quorum.publisher import MetadataPublisher
from kraft.quorum.quorum import Quorum
from kraft.seam import Address, Binding, Peer, Seam
from kraft.sim.world import World
from kraft.storage.meta_properties import MetaProperties
from kraft.wire import messages
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey, encode_rpc
from kraft.wire.rpc.controller_messages import ForwardRequest, HeartbeatRequest, IdentifyResponse, RegisterBrokerRequest
from kraft.wire.server import Request, ServerConnection, ServerLimits

CLUSTER_ID = "controller-test-cluster"
PORT = 9192
BROKER_PORT = 9092
PURPOSE = "controller"


def controller_config(node_id: int, voters: tuple[int, ...], **extra: str) -> NodeConfig:
    properties = {
        "node.id": str(node_id),
        "process.roles": "controller",
        "log.dirs": f"/data/{node_id}",
        "listeners": f"CONTROLLER://c{node_id}:{PORT}",
        "controller.quorum.voters": ",".join(f"{one}@c{one}:{PORT}" for one in voters),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    return NodeConfig.parse(properties | {key.replace("_", "."): value for key, value in extra.items()})


@dataclass
class ControllerMember:
    """One controller node across its incarnations."""

    config: NodeConfig
    controller: Controller | None = None
    quorum: Quorum | None = None
    publisher: MetadataPublisher | None = None

    async def main(self, seam: Seam, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        meta = MetaProperties(CLUSTER_ID, self.config.node_id, UUID(int=1000 + self.config.node_id))
        peers = Peers(seam, client_id=f"c{self.config.node_id}")
        quorum = Quorum(self.config, seam, meta)
        publisher = MetadataPublisher(self.config, seam, quorum)
        quorum.add_listener(publisher)
        controller = Controller(self.config, seam, quorum, publisher, peers, cluster_id=CLUSTER_ID)
        self.quorum, self.publisher, self.controller = quorum, publisher, controller
        async with trio.open_nursery() as nursery:
            await nursery.start(peers.run)
            await nursery.start(run_controller, self.config, seam, quorum, controller)
            await nursery.start(quorum.run)
            task_status.started()


@dataclass
class FakeBroker:
    """A broker without a data plane: it identifies itself, registers, and sends heartbeats to all controllers. It
    listens at the host `host`."""

    broker_id: int
    controllers: tuple[int, ...]
    heartbeat_ms: int = 500
    life: int = 0
    epoch: int = -1
    previous_epoch: int = -1
    is_fenced: bool = True
    wants_shutdown: bool = False
    recovers: bool = False
    """Whether the broker asks to stay fenced, as a broker does while it opens its logs."""
    should_shut_down: bool = False
    identifies: bool = True
    refusals: list[ErrorCode] = field(default_factory=list)
    peers: Peers | None = None
    host: str = ""

    def __post_init__(self) -> None:
        self.host = self.host or f"b{self.broker_id}"

    @property
    def incarnation_id(self) -> UUID:
        return UUID(int=(self.broker_id << 64) + self.life)

    async def main(self, seam: Seam, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.life += 1
        self.epoch = -1
        self.is_fenced = True
        self.should_shut_down = False
        self.peers = Peers(seam, client_id=self.host)
        seam.network.serve(Binding("PLAINTEXT", Address(self.host, BROKER_PORT)), self._accept)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.peers.run)
            task_status.started()
            await self._register(seam)
            for controller in self.controllers:
                nursery.start_soon(self._keep_telling, seam, controller)

    def _accept(self, transport: Any) -> ServerConnection:
        return ServerConnection(transport, self._identify, limits=ServerLimits(), budget=None)

    def _identify(self, request: Request) -> None:
        assert request.api_key == InternalKey.IDENTIFY
        if self.identifies:
            answer = IdentifyResponse(cluster_id=CLUSTER_ID, node_id=self.broker_id, incarnation_id=self.incarnation_id)
            request.respond(encode_rpc(answer))

    def peer(self, controller: int) -> Peer:
        return Peer(controller, "CONTROLLER", Address(f"c{controller}", PORT))

    async def ask(self, controller: int, message: Any, timeout_ms: int = 2_000) -> Any:
        assert self.peers is not None
        return await self.peers.request(self.peer(controller), message, timeout_ms=timeout_ms, purpose=PURPOSE)

    async def ask_active(self, seam: Seam, message: Any) -> Any:
        """Send a request to the controllers, and return the first response of an active one."""
        while True:
            for controller in self.controllers:
                try:
                    answer = await self.ask(controller, message)
                except PeerRequestFailed:
                    continue
                if answer.error_code != ErrorCode.NOT_CONTROLLER:
                    return answer
            await seam.clock.sleep_ms(20)

    async def _register(self, seam: Seam) -> None:
        while True:
            answer = await self.ask_active(
                seam,
                RegisterBrokerRequest(
                    cluster_id=CLUSTER_ID,
                    broker_id=self.broker_id,
                    incarnation_id=self.incarnation_id,
                    endpoints=(("PLAINTEXT", self.host, BROKER_PORT, "PLAINTEXT"),),
                    log_dirs=(UUID(int=(7 << 64) + self.broker_id),),
                    features=tuple(tuple(feature) for feature in SUPPORTED_FEATURES),  # type: ignore[misc]
                    previous_broker_epoch=self.previous_epoch,
                ),
            )
            if answer.error_code == ErrorCode.NONE:
                self.epoch = answer.broker_epoch
                return
            self.refusals.append(ErrorCode(answer.error_code))
            await seam.clock.sleep_ms(20)

    async def _keep_telling(self, seam: Seam, controller: int) -> None:
        while True:
            message = HeartbeatRequest(
                broker_id=self.broker_id,
                broker_epoch=self.epoch,
                metadata_offset=1 << 40,
                want_fence=self.recovers,
                want_shut_down=self.wants_shutdown,
            )
            try:
                answer = await self.ask(controller, message)
            except PeerRequestFailed:
                await seam.clock.sleep_ms(50)
                continue
            if answer.error_code == ErrorCode.NONE:
                self.is_fenced = answer.is_fenced
                self.should_shut_down = answer.should_shut_down
            pause = 20 if self.is_fenced or self.wants_shutdown else self.heartbeat_ms
            await seam.clock.sleep_ms(pause)

    async def forward(self, seam: Seam, api_key: int, **fields: Any) -> Any:
        """Send a client's request through this broker to the controller; return the response."""
        newest = messages.newest_version(api_key)
        request = messages.build(messages.request_class(api_key), **fields)
        body = messages.encode_request(api_key, newest, request)
        answer = await self.ask_active(seam, ForwardRequest(forwarded_key=api_key, forwarded_version=newest, body=body))
        return messages.decode_response(api_key, newest, answer.body)


class Cluster:
    """Controllers c1, c2, … and brokers b1, b2, … in one world."""

    def __init__(self, world: World, controllers: int = 3, brokers: int = 3, **extra: str) -> None:
        self.world = world
        voters = tuple(range(101, 101 + controllers))
        self.controllers = {one: ControllerMember(controller_config(one, voters, **extra)) for one in voters}
        self.brokers = {one: FakeBroker(one, voters) for one in range(1, 1 + brokers)}

    def start(self) -> None:
        for number, controller in self.controllers.items():
            self.world.start(f"c{number}", controller.main)
        for number, broker in self.brokers.items():
            self.world.start(f"b{number}", broker.main)

    def kill_broker(self, *numbers: int) -> None:
        for number in numbers:
            self.world.kill(f"b{number}")

    def kill_controller(self, number: int) -> None:
        self.world.kill(f"c{number}")
        member = self.controllers[number]
        member.controller = member.quorum = member.publisher = None

    @property
    def active(self) -> Controller | None:
        known = [
            (member.quorum.leader_and_epoch[1], member.controller)
            for member in self.controllers.values()
            if member.controller is not None and member.quorum is not None and member.controller.queue.is_active
        ]
        return max(known, key=lambda one: one[0])[1] if known else None

    @property
    def image(self) -> MetadataImage:
        """Return the committed image of the active controller."""
        active = self.active
        assert active is not None
        return active.publisher.image

    async def wait(self, condition: Callable[[], object], limit_ms: int = 20_000) -> int:
        """Wait until the condition is true. Return the virtual milliseconds that this took."""
        began = self.world.now_ns
        while not condition():
            assert self.world.now_ns - began < limit_ms * 1_000_000, "the condition does not come true"
            await self.world.sleep_ms(1)
        return (self.world.now_ns - began) // 1_000_000

    def unfenced(self) -> set[int]:
        if self.active is None:
            return set()
        return {broker.broker_id for broker in self.image.sorted_brokers() if not broker.fenced}

    async def ready(self) -> None:
        """Wait until all brokers are unfenced, and long enough for every controller to have their addresses."""
        await self.wait(lambda: self.unfenced() == set(self.brokers))
        await self.world.sleep_ms(300)
