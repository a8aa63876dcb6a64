"""The lifecycle of a broker in the cluster: registration, heartbeats, unfencing, controlled shutdown.

STARTING → RECOVERY (registered, catching up, loading logs) → RUNNING (unfenced) → PENDING_CONTROLLED_SHUTDOWN →
SHUTTING_DOWN.

Invariants: the broker requests to be unfenced only after it has published its own registration and its logs are loaded.
It never registers a second time. Every heartbeat reports the offset of the newest image whose roles are all applied, so
a broker that stops waits until the new leaders lead. A change of state is reported at once, not at the next interval.
Source: KIP-631, BrokerRegistrationRequest, BrokerHeartbeatRequest, Kafka's MetadataLoader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
import trio

from kraft.broker.node.log_ends import LogEnds
from kraft.node.peers import PeerRequestFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import HeartbeatRequest

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.config import NodeConfig
    from kraft.image import ImageDelta, MetadataImage
    from kraft.seam import Clock
    from kraft.wire.rpc import RpcMessage

log = structlog.get_logger("kraft.broker.lifecycle")

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 500
SHUTDOWN_HEARTBEAT_MS = 10
"""Milliseconds between heartbeats of a controlled shutdown, while leaderships move away."""
FENCED_HEARTBEAT_MS = 50
"""Milliseconds between heartbeats that request to be unfenced, while the controller keeps the broker fenced."""
LOG_ENDS_HEARTBEAT_MS = 100
"""Milliseconds between heartbeats that report log ends, while the remaining log ends do not fit into one heartbeat."""
SHUTDOWN_UNREACHABLE_MS = 2_000
"""Milliseconds without a response of any controller after which a controlled shutdown is abandoned."""


class BrokerState(IntEnum):
    """Kafka's broker states, with the values of its BrokerState metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationRefused(Exception):
    """Raised when the controller rejects this broker's registration and a retry would not help."""


class BrokerLifecycle:
    """The lifecycle of one broker incarnation. `run` is its only task; the event loop calls all other methods."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        *,
        newest_image: Callable[[], MetadataImage],
        find_replica: Callable[[UUID, int], Partition | None],
        ask_controller: Callable[..., Awaitable[Any]],
        registration: Callable[[], RpcMessage],
    ) -> None:
        """`ask_controller` is `ControllerChannel.request`; `registration()` is the request that registers this
        incarnation."""
        self._config = config
        self._clock = clock
        self._node_id = config.node_id
        self._newest_image = newest_image
        self._ask_controller = ask_controller
        self._registration = registration
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.registered = trio.Event()
        self.caught_up = trio.Event()
        """Whether the image includes this broker's registration and all records before it."""
        self.unfenced = trio.Event()
        self.may_shut_down = trio.Event()
        self._loaded = False
        self._applied_offset = -1
        """Offset of the newest image whose roles have all been applied."""
        self._wants_shutdown = False
        self._offline_directories: set[UUID] = set()
        self._leaving: set[int] = set()
        self._refusal: ErrorCode | None = None
        """Error code in the last heartbeat response."""
        self._dirty = trio.Event()
        self._log_ends = LogEnds(config.node_id, newest_image, find_replica, self._report_soon)
        self._heard_ms = self._clock.monotonic_ms()

    @property
    def is_unregistered(self) -> bool:
        """Whether the controller reports that this incarnation is not registered (any more)."""
        return self._refusal is ErrorCode.STALE_BROKER_EPOCH

    def not_ready(self) -> str | None:
        """Return why clients should not use the broker, or None if it is running, registered and unfenced."""
        if self.state is not BrokerState.RUNNING:
            return f"the broker's state is {self.state.name}"
        registration = self._newest_image().brokers.get(self._node_id)
        if registration is None or registration.broker_epoch != self.broker_epoch:
            return "the broker is not registered"
        return "the broker is fenced" if registration.fenced else None

    # inputs: images, applied roles, loaded logs, failed directories, shutdown

    def metadata_published(self, image: MetadataImage, delta: ImageDelta | None = None) -> None:
        """Apply a newer image, in which this broker may have become registered, fenced, unfenced or unregistered."""
        if self.broker_epoch < 0:
            return
        for broker_id in () if delta is None else delta.brokers:
            if _is_leaving(image, broker_id):
                self._leaving.add(broker_id)
            else:
                self._leaving.discard(broker_id)
        if self._leaving:
            # the controlled shutdown of another broker ends once every broker has reported that it has applied this
            # image
            self._dirty.set()
        if delta is not None:
            self._log_ends.published(image, delta)
        own = image.brokers.get(self._node_id)
        if own is None or own.broker_epoch != self.broker_epoch:
            return
        self.caught_up.set()
        if own.fenced and self.state is BrokerState.RUNNING:
            log.warning("broker was fenced", node_id=self._node_id, broker_epoch=self.broker_epoch)
            self._dirty.set()  # report that this broker is alive
        if not own.fenced and not self.unfenced.is_set():
            self.state = BrokerState.RUNNING
            self.unfenced.set()
            log.info("broker is unfenced", node_id=self._node_id, broker_epoch=self.broker_epoch)

    def roles_taken(self, image: MetadataImage) -> None:
        """Record that all roles of this image and of all earlier images are applied."""
        self._applied_offset = image.offset
        if self._leaving:
            self._dirty.set()

    async def logs_loaded(self) -> None:
        """Request to be unfenced: the first image is applied, and the logs can be used."""
        await self._log_ends.load()
        self._loaded = True
        self._dirty.set()

    def _report_soon(self) -> None:
        """Send a heartbeat before the next interval."""
        self._dirty.set()

    def directory_went_offline(self, directory: str, directory_id: UUID, why: str) -> None:
        """Report the offline directory to the controller, so that other brokers become leaders of its partitions."""
        self._offline_directories.add(directory_id)
        self._dirty.set()

    async def controlled_shutdown(self, *, timeout_ms: int) -> bool:
        """Move all leaderships to other brokers. Return True once the controller reports that nothing depends on this
        broker any more. Return False if no controller could be reached, if the controller does not know this broker, or
        if it took too long."""
        if not self.registered.is_set():
            return False
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._wants_shutdown = True
        self._heard_ms = self._clock.monotonic_ms()
        self._dirty.set()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not self.may_shut_down.is_set():
            now_ms = self._clock.monotonic_ms()
            has_not_reported = now_ms >= deadline_ms or now_ms - self._heard_ms >= SHUTDOWN_UNREACHABLE_MS
            if has_not_reported or self.is_unregistered:
                log.warning("controlled shutdown is given up", node_id=self._node_id)
                break
            await self._clock.wait_at_most(self.may_shut_down, SHUTDOWN_HEARTBEAT_MS * 5)
        self.state = BrokerState.SHUTTING_DOWN
        return self.may_shut_down.is_set()

    # the task

    async def run(self) -> None:
        """Register, then send heartbeats until cancelled. Raises RegistrationRefused if the controller will never
        accept the broker."""
        self.state = BrokerState.STARTING
        await self._register()
        self.state = BrokerState.RECOVERY
        interval_ms = self._config.integer("broker.heartbeat.interval.ms")
        failures = 0
        while True:
            self._dirty = trio.Event()
            answer = await self._heartbeat()
            if answer is None:
                failures += 1
                pause_ms: float = min(RETRY_BACKOFF_MS * 2 ** min(failures, 10), RETRY_BACKOFF_MS_MAX)
            else:
                failures = 0
                pause_ms = self._pause_after(answer, interval_ms)
            await self._clock.wait_at_most(self._dirty, pause_ms)

    def heartbeat(self) -> HeartbeatRequest:
        """Return a heartbeat request with everything that must be reported now. It is also the first request on a new
        connection to a controller."""
        log_ends, log_epochs = self._log_ends.ends_to_report()
        return HeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=self._applied_offset,
            want_fence=not self._loaded,
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=tuple(sorted(self._offline_directories)),
            log_ends=log_ends,
            log_epochs=log_epochs,
        )

    async def _heartbeat(self) -> Any:
        try:
            answer = await self._ask_controller(
                self.heartbeat(), timeout_ms=self._config.integer("broker.session.timeout.ms") // 2
            )
        except PeerRequestFailed as failure:
            log.warning("heartbeat got no answer", node_id=self._node_id, outcome=failure.outcome.value)
            return None
        self._heard_ms = self._clock.monotonic_ms()
        if answer.error_code != ErrorCode.NONE:
            self._refused(ErrorCode.of(answer.error_code))
            return None
        self._refusal = None
        if answer.should_shut_down:
            self.may_shut_down.set()
        return answer

    def _refused(self, error: ErrorCode) -> None:
        """Log that the controller rejected a heartbeat, unless the previous one was rejected for the same reason."""
        if error is self._refusal:
            return
        self._refusal = error
        where = {"node_id": self._node_id, "broker_epoch": self.broker_epoch, "error": error.name}
        if self.is_unregistered:
            log.error(
                "this broker is not registered any more, and leads nothing until it is restarted: it was unregistered, "
                "or another process has taken its id",
                **where,
            )
        else:
            log.warning("heartbeat was refused", **where)

    def _pause_after(self, answer: Any, interval_ms: int) -> float:
        if self._wants_shutdown:
            return interval_ms if self.may_shut_down.is_set() else SHUTDOWN_HEARTBEAT_MS
        if self._loaded and answer.is_fenced:
            return FENCED_HEARTBEAT_MS
        return min(interval_ms, LOG_ENDS_HEARTBEAT_MS) if self._log_ends.is_more_than_fits else interval_ms

    async def _register(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._config.integer("initial.broker.registration.timeout.ms")
        backoff_ms = RETRY_BACKOFF_MS
        while True:
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            error = await self._try_to_register(remaining_ms)
            if error is None:
                return
            if self._clock.monotonic_ms() + backoff_ms >= deadline_ms:
                raise RegistrationRefused(
                    f"broker {self._node_id} could not register within initial.broker.registration.timeout.ms"
                    f" ({self._config.integer('initial.broker.registration.timeout.ms')} ms): {error}"
                )
            await self._clock.sleep_ms(backoff_ms)
            backoff_ms = min(2 * backoff_ms, RETRY_BACKOFF_MS_MAX)

    async def _try_to_register(self, timeout_ms: int) -> str | None:
        """Try to register. Return None on success, otherwise the reason for a retry. Raises RegistrationRefused if a
        retry would not help."""
        try:
            answer = await self._ask_controller(self._registration(), timeout_ms=max(1, timeout_ms))
        except PeerRequestFailed as failure:
            return f"no controller answered ({failure.outcome.value})"
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.NONE:
            self.broker_epoch = answer.broker_epoch
            self.registered.set()
            log.info("broker is registered", node_id=self._node_id, broker_epoch=self.broker_epoch)
            self.metadata_published(self._newest_image())
            return None
        message = getattr(answer, "error_message", None) or error.name
        if error is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return f"another process runs as broker {self._node_id} ({message})"
        if error is ErrorCode.UNKNOWN_SERVER_ERROR:
            return f"the active controller failed to handle it ({message})"
        raise RegistrationRefused(f"the controller refuses broker {self._node_id}: {error.name}: {message}")


def _is_leaving(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.in_controlled_shutdown and not broker.fenced
