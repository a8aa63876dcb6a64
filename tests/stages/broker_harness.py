"""A broker without a cluster: its real handlers get real frames and a given metadata image. Requests that need a
controller are not covered.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kraft.broker.api.context import HandlerContext
from kraft.broker.api.forwarding import Forwarder
from kraft.broker.api.table import HandlerParts, make_handlers
from kraft.broker.coordinator.producer_id_blocks import ProducerIds
from kraft.broker.node.broker import Broker
from kraft.broker.node.continuations import Continuations
from kraft.broker.node.dispatch import Dispatcher
from kraft.broker.serving.connection_limits import ConnectionLimits
from kraft.broker.serving.dynamic_configs import DynamicConfigs
from kraft.broker.serving.gates import Authorizer, Gates, Operation, Resource, ResourceType
from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.broker.serving.metrics.requests import register_request_metrics
from kraft.broker.serving.session import Session
from kraft.config import NodeConfig
from kraft.control.features import SUPPORTED_FEATURES
from kraft.image import ImageDelta, MetadataImage
from kraft.image.image import EMPTY_IMAGE
from kraft.seam import CloseReason, Seam
from kraft.sim.world.chance import NamedRandom
from kraft.wire import messages
from kraft.wire.api_keys import is_flexible, response_header_version
from kraft.wire.budget import MemoryBudget
from kraft.wire.error_codes import ErrorCode
from kraft.wire.request_meter import RequestMeter
from kraft.wire.server import Request, ServerConnection, ServerLimits

CLUSTER_ID = "Some-cluster-id-1234AB"
INCARNATION = UUID(int=0xABCDEF)

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@localhost:9192",
    "listeners": "PLAINTEXT://localhost:9092,OUTSIDE://localhost:9094",
    "advertised.listeners": "PLAINTEXT://broker-1:9092,OUTSIDE://example.org:19094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/data",
}


class StillTransport:
    """Implementation of kraft.seam.Transport without a peer, which records its calls."""

    def __init__(self, listener: str = "PLAINTEXT") -> None:
        self.listener = listener
        self.peer_host = "192.0.2.7"
        self.peer_principal: str | None = None
        self.heard_ns = 0
        self.closed_for: CloseReason | None = None
        self.wakes = 0
        self.turns = 0

    def wake(self) -> None:
        self.wakes += 1

    def wait_turn(self) -> None:
        self.turns += 1

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        self.closed_for = reason


class Denying(Authorizer):
    """Authorizer that allows everything except the given pairs (operation, name)."""

    def __init__(self, *denied: tuple[Operation, str]) -> None:
        self.denied = set(denied)

    def authorize(self, session: Session, operation: Operation, resource: Resource) -> bool:
        return (operation, resource.name) not in self.denied

    def authorize_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        return (operation, "*") not in self.denied


class ImageHolder:
    """Stands in for the metadata publisher: has an image that tests set."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image


class StillClock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms


class SecretTopic:
    """Stands in for the cluster's metadata log: no session may read it."""

    def may_read(self, session: object) -> bool:
        return False


class StillCheck:
    """Stands in for LeaderCheck: reports at once which processes have ended."""

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost

    def check(self, broker_ids: frozenset[int], then: Callable[[frozenset[int]], None]) -> None:
        then(broker_ids & self.lost)


class StillLifecycle:
    """Stands in for BrokerLifecycle: broker 1 is registered, as in the images of the tests."""

    broker_epoch = 11


class RecordingTopics:
    """Stands in for AutoTopicCreation: records the names of the requested topics."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def create(self, session: Session, names: list[str]) -> None:
        self.asked += names


class NotServed:
    """Stands in for the handlers of Produce and Fetch, which need a data plane."""

    def handle(self, request: Request, session: Session) -> None:
        raise AssertionError("this broker has no data plane")


class NoTransactions:
    """Stands in for TransactionCoordinators on a broker that coordinates no transactional id."""

    def submit(self, request: Any, ticket: Any) -> None:
        ticket(request.refused(ErrorCode.NOT_COORDINATOR))


class BrokerHarness:
    """A broker without a cluster, its dispatcher, and clients that exchange frames with it."""

    def __init__(
        self,
        image: MetadataImage = EMPTY_IMAGE,
        *,
        authorizer: Authorizer | None = None,
        properties: dict[str, str] | None = None,
        held: bool = False,
        nursery: Any = None,
        transactions: Any = None,
        marker_writer: Any = None,
        groups: Any = None,
    ) -> None:
        """`transactions`, `marker_writer` and `groups` stand in for TransactionCoordinators, MarkerWriter and
        GroupCoordinators. Without `transactions`, the broker coordinates no transactional id. With a `nursery`, the
        broker's tasks run in it. Without one, each task runs to its end at once."""
        config = NodeConfig.parse({**PROPERTIES, **(properties or {})})
        self.failures: list[BaseException] = []
        self.transactions, self.marker_writer = transactions or NoTransactions(), marker_writer
        self.groups = groups
        self.clock = StillClock()
        self.holder = ImageHolder(image)
        self.broker = broker = Broker(
            config,
            Seam(clock=self.clock, random=None, network=None, disk=None),  # type: ignore[arg-type]
            cluster_id=CLUSTER_ID,
            incarnation_id=INCARNATION,
            requests=RequestMeter(self.clock.monotonic_ns),
            gates=Gates(MemoryBudget(1 << 28), authorizer=authorizer),
            dynamic_configs=DynamicConfigs(config),
            start_task=self._start_task if nursery is None else nursery.start_soon,
            fail=self.failures.append,
        )
        broker.lifecycle = StillLifecycle()  # type: ignore[assignment]
        self.lost: set[int] = set()
        broker.metadata_topic = SecretTopic()  # type: ignore[assignment]
        broker.producer_ids = ProducerIds(
            1,
            lambda: broker.lifecycle.broker_epoch,
            lambda message: broker.controller.request(message),
            broker.start_task,
        )
        self.auto_topics = RecordingTopics()
        broker.dynamic_configs.apply(image, ImageDelta.between(EMPTY_IMAGE, image))
        self.metrics = Metrics()
        register_request_metrics(broker.requests, self.metrics)
        self.continuations = Continuations(self.clock, broker.start_task, broker.requests)  # type: ignore[arg-type]
        broker.dispatcher = self.dispatcher(make_handlers(self._parts()))
        if not held:
            broker.dispatcher.release_requests()

    def dispatcher(self, handlers: Any, *, limits: ServerLimits | None = None) -> Dispatcher:
        """Return a dispatcher to these handlers, which have the parts of this broker."""
        broker = self.broker
        return Dispatcher(
            broker.config,
            handlers,
            self.continuations,
            ConnectionLimits(broker.config, self.clock, broker.log_limit, broker.start_task),  # type: ignore[arg-type]
            memory=broker.gates.memory,
            requests=broker.requests,
            log_limit=broker.log_limit,
            limits=limits or ServerLimits(),
        )

    def _parts(self) -> HandlerParts:
        """Return the parts that handlers need, without a data plane and a coordinator."""
        broker, absent, continuations = self.broker, cast("Any", None), self.continuations
        context = HandlerContext(
            node_id=broker.node_id,
            cluster_id=CLUSTER_ID,
            config=broker.config,
            loop=cast("Any", SimpleNamespace(clock=self.clock, random=NamedRandom(1, "harness"))),
            gates=broker.gates,
            log_limit=broker.log_limit,
            dynamic_configs=broker.dynamic_configs,
            newest_image=lambda: self.holder.image,
            departed=broker.departed,
            find=absent,
            locate=absent,
            directories=absent,
            failures=absent,
            damaged_logs=absent,
            moves=absent,
            write_log_starts_of=absent,
            groups=self.groups,
            transactions=self.transactions,
            share_coordinators=absent,
            shares=absent,
            ask_share_coordinator=absent,
            end_offsets=absent,
            marker_writer=self.marker_writer,
            transactional_commits=absent,
            metadata_topic=broker.metadata_topic,
            producer_ids=broker.producer_ids,
            create_topics=lambda session, names: self.auto_topics.create(session, names),
            check_leaders=StillCheck(self.lost).check,
            finish=continuations.finish,
            continue_in_steps=continuations.continue_in_steps,
            answer_later=continuations.answer_later,
        )

        def forward(*arguments: Any, **options: Any) -> Any:
            return broker.controller.forward(*arguments, **options)

        return HandlerParts(
            context,
            NotServed(),  # type: ignore[arg-type]
            NotServed(),  # type: ignore[arg-type]
            Forwarder(broker.gates, context.newest_image, forward, continuations.answer_later),
            INCARNATION,
            SUPPORTED_FEATURES,
        )

    def _start_task(self, function: Any, *arguments: Any) -> None:
        """Run a task to its end at once; nothing that it awaits suspends here."""
        task = function(*arguments)
        try:
            task.send(None)
        except StopIteration:
            return
        raise AssertionError(f"{function} suspends")

    def use_controller(self, controller: Any) -> None:
        """Send forwarded requests, and the broker's own requests, to this controller."""
        self.broker.controller = controller

    def connect(self, listener: str = "PLAINTEXT") -> WireClient:
        return WireClient(self.broker.dispatcher.accept, listener)

    def ask(self, key: int, version: int, *, listener: str = "PLAINTEXT", **fields: Any) -> Any:
        """Send one request on a new connection; return the decoded response (newest class)."""
        return self.connect(listener).ask(key, version, **fields)


class WireClient:
    """One connection of a client. The test moves its bytes, as a driver would."""

    def __init__(self, accept: Any, listener: str) -> None:
        self.transport = StillTransport(listener)
        self.connection: ServerConnection = accept(self.transport)
        self._correlation = 0
        self._pending: deque[tuple[int, int, int]] = deque()

    def send_bytes(self, data: bytes) -> None:
        """Pass bytes to the connection, as if they had arrived."""
        while data:
            space = self.connection.space()
            if not len(space):
                return
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self.connection.received(count)
            self.take_turns()
            data = data[count:]

    def take_turns(self) -> None:
        """Let the connection process all requests that it has."""
        while self.transport.turns:
            self.transport.turns -= 1
            self.connection.take_turn()

    def send(self, key: int, version: int, body: bytes, *, client_id: str = "test") -> None:
        self._correlation += 1
        self._pending.append((key, version, self._correlation))
        name = client_id.encode()
        header = struct.pack(">hhih", key, version, self._correlation, len(name)) + name
        if is_flexible(key, version):
            header += b"\0"
        self.send_bytes(struct.pack(">i", len(header) + len(body)) + header + body)

    def received(self) -> bytes:
        """Return and remove all bytes that are queued to be sent."""
        data = b"".join(bytes(chunk) for chunk in self.connection.output())  # type: ignore[arg-type]
        self.connection.sent(len(data))
        return data

    def answers(self) -> list[bytes]:
        """Return the bodies of the queued responses, in order, after checking the correlation ids."""
        data, bodies = self.received(), []
        while data:
            (size,) = struct.unpack_from(">i", data)
            frame, data = data[4 : 4 + size], data[4 + size :]
            key, version, correlation = self._pending.popleft()
            assert struct.unpack_from(">i", frame)[0] == correlation
            bodies.append(frame[4 + response_header_version(key, version) :])
        return bodies

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        request = messages.build(messages.request_class(key), **fields)
        self.send(key, version, messages.encode_request(key, version, request))
        (body,) = self.answers()
        return messages.decode_response(key, version, body)
