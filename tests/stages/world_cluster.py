"""Whole nodes in a simulated world, run by `serve` as in production, and a client that sends one request at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from kraft.broker.node.serve import Node, serve
from kraft.config import NodeConfig
from kraft.seam import Address, Peer, Seam
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.client import ClientConnection
from kraft.wire.reply_policy import ReplyPolicy

CLUSTER_ID = "In-memory-cluster-0001"
BROKER_PORT, CONTROLLER_PORT = 9092, 9192
FIRST_CONTROLLER = 101


class Started:
    """A trio TaskStatus that keeps the node with which `serve` reports that it has started."""

    def __init__(self) -> None:
        self.node: Node | None = None

    def started(self, value: Any = None) -> None:
        self.node = value


class WorldCluster:
    """A cluster in a world. Controllers 101, 102, … are on hosts c101, …, and brokers 1, 2, … on hosts b1, …. With
    `combined`, nodes 1, 2, … of both roles are on hosts b1, …."""

    def __init__(
        self, world: World, *, controllers: int = 3, brokers: int = 3, combined: int = 0, **settings: str
    ) -> None:
        self.world = world
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.started: dict[str, Started] = {}
        self.replies: dict[int, ReplyPolicy] = {}
        """Node id → fault rules for its responses; set before the nodes start."""
        self.failures: list[tuple[str, BaseException]] = []
        if combined:
            self.controller_ids = self.broker_ids = list(range(1, combined + 1))
        else:
            self.controller_ids = [FIRST_CONTROLLER + number for number in range(controllers)]
            self.broker_ids = list(range(1, brokers + 1))
        self.is_combined = bool(combined)

    def name(self, node_id: int) -> str:
        """Return the node's name in the world, which is also the name of its host."""
        return f"b{node_id}" if node_id in self.broker_ids else f"c{node_id}"

    def config(self, node_id: int) -> NodeConfig:
        name = self.name(node_id)
        roles, listeners = [], []
        if node_id in self.broker_ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{name}:{BROKER_PORT}")
        if node_id in self.controller_ids:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{name}:{CONTROLLER_PORT}")
        voters = ",".join(f"{one}@{self.name(one)}:{CONTROLLER_PORT}" for one in self.controller_ids)
        properties = {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": "/data",
            "kraft.host.id": name,
        }
        return NodeConfig.parse({**properties, **self.settings})

    def start(self, *node_ids: int) -> None:
        """Start these nodes; without arguments, start all nodes."""
        for node_id in node_ids or dict.fromkeys((*self.controller_ids, *self.broker_ids)):
            self.world.start(self.name(node_id), partial(self._main, node_id), on_failure=self._failed)

    async def _main(self, node_id: int, seam: Seam) -> None:
        started = self.started[self.name(node_id)] = Started()
        config, replies = self.config(node_id), self.replies.get(node_id)
        await serve(config, seam, cluster_id=CLUSTER_ID, replies=replies, task_status=started)

    def _failed(self, name: str, error: BaseException) -> None:
        self.failures.append((name, error))

    def node(self, node_id: int) -> Node:
        """Return the running node with this id."""
        node = self.started[self.name(node_id)].node
        assert node is not None, f"node {node_id} is still starting"
        return node

    async def wait_ready(self, timeout_ms: float = 10_000) -> float:
        """Wait until every running broker is unfenced. Return the virtual milliseconds that this took."""
        started_ns = self.world.now_ns
        while (self.world.now_ns - started_ns) / 1e6 < timeout_ms:
            if self.failures:
                raise self.failures[0][1]
            if all(self._is_unfenced(broker_id) for broker_id in self.broker_ids):
                return (self.world.now_ns - started_ns) / 1e6
            await self.world.sleep_ms(1)
        raise AssertionError(f"not ready after {timeout_ms} ms")

    def _is_unfenced(self, broker_id: int) -> bool:
        name = self.name(broker_id)
        if not self.world.is_running(name):
            return True
        node = self.started[name].node if name in self.started else None
        return node is not None and node.broker is not None and node.broker.broker.lifecycle.unfenced.is_set()

    def active_controller(self) -> int | None:
        """Return the id of the running controller that leads the quorum; None if there is none."""
        for node_id in self.controller_ids:
            node = self.started[self.name(node_id)].node if self.name(node_id) in self.started else None
            if self.world.is_running(self.name(node_id)) and node is not None and node.quorum.is_leader:
                return node_id
        return None

    async def connect(self, broker_id: int, seam: Seam, *, client_id: str = "test") -> AskingClient:
        """Return a client of this broker."""
        peer = Peer(None, "PLAINTEXT", Address(self.name(broker_id), BROKER_PORT))
        connection = await seam.network.dial(
            peer, lambda transport: ClientConnection(transport, client_id=client_id), timeout_ms=1_000
        )
        return AskingClient(connection)


class AskingClient:
    """A connection to a broker. Its requests and responses are in their newest classes."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        """Send a request and return the decoded response. Raise ConnectionError if the connection ends first."""
        request = messages.build(messages.request_class(key), **fields)
        body = await self.ask_bytes(key, version, messages.encode_request(key, version, request))
        return messages.decode_response(key, version, body)

    async def ask_bytes(self, key: int, version: int, body: bytes) -> bytes:
        answers: list[bytes | None] = []
        arrived = trio.Event()

        def on_reply(reply: memoryview | None) -> None:
            answers.append(None if reply is None else bytes(reply))
            arrived.set()

        self.connection.send(key, version, [body], on_reply)
        await arrived.wait()
        answer = answers[0]
        if answer is None:
            raise ConnectionError(f"request {key} version {version} got no answer")
        return answer
