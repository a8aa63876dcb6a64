"""A led replica with a real log, for tests of Produce and Fetch without the rest of a broker. The handlers get its Loop
and plain functions. A client sends requests to one handler.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kraft.broker.partition.partition import Partition
from kraft.broker.partition.partition_host import PartitionHost
from kraft.broker.serving.gates import Gates
from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.broker.serving.metrics.topics import TopicMetrics
from kraft.broker.serving.session import Session
from kraft.config import NodeConfig, TopicConfig
from kraft.image.partitions import PartitionState
from kraft.wire.budget import MemoryBudget
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request, ServerConnection, ServerLimits
from tests.stages.broker_harness import PROPERTIES
from tests.stages.fake_transport import RecordingTransport, drain, frames_in
from tests.stages.part_stage import TOPIC_ID, PartStage

TOPIC = "orders"
HEADER_BYTES = 4
SESSION = Session("PLAINTEXT", "PLAINTEXT", "User:ANONYMOUS", "192.0.2.7", "test")


class LedReplica:
    """A partition of one topic that broker 1 leads, with broker 2 in sync. `finish` calls its function at once."""

    def __init__(self, stage: PartStage, *, min_isr: int = 1, isr: tuple[int, ...] = (1, 2)) -> None:
        self.loop = stage.loop
        self.gates = Gates(MemoryBudget(1 << 28))
        self.failures: list[Any] = []
        self.waits_for_budget: list[Partition] = []
        self.host = host = PartitionHost(stage.loop.clock, 1, 30_000)
        host.eligible = {1: 11, 2: 12}
        host.may_write = lambda partition: True
        host.request_sync = host.request_open = lambda partition: None
        host.request_ready = lambda partition: None
        config = TopicConfig.resolve({"min.insync.replicas": str(min_isr)}, {}, NodeConfig.parse(PROPERTIES))
        self.partition = Partition(host, TOPIC, TOPIC_ID, 0, config, TopicMetrics(Metrics()).of(TOPIC))
        directory: Any = SimpleNamespace(open_logs={})
        self.partition.placed(directory, is_unwritten=False)
        self.partition.lead(PartitionState((1, 2), isr, 1, 4, 0))
        self.partition.opened(stage.open_log(), 0)

    def make_ready(self) -> None:
        """Let the log accept appends from now on, and run the waiting appends."""
        self.partition._prepare_to_append()
        self.partition.readied(self.partition.leader_epoch)

    def find(self, topic: str | UUID | None, index: int) -> Partition | None:
        return self.partition if topic in (TOPIC, TOPIC_ID) and index == 0 else None

    def locate(self, topic: str, index: int) -> Partition | ErrorCode:
        return self.find(topic, index) or ErrorCode.NOT_LEADER_OR_FOLLOWER

    def finish(self, request: Request, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    def end_pass(self) -> None:
        """Settle the partition, as a broker does at the end of a pass."""
        self.host.changed.clear()
        self.partition.settle()


class OneConnection:
    """A client with one connection, which leads to one handler."""

    def __init__(self, handle: Callable[[Request, Session], Any]) -> None:
        self._handle = handle
        self._correlation = 0
        self.connection = ServerConnection(RecordingTransport(), lambda _: None, limits=ServerLimits(), budget=None)

    def send(self, key: int, version: int, body: bytes) -> Any:
        """Pass a request to the handler, and return the result of the call."""
        self._correlation += 1
        frame = memoryview(bytearray(body))
        request = Request(self.connection, key, version, self._correlation, "test", frame, True)
        self.connection._slots.append(request)
        return self._handle(request, SESSION)

    def answers(self, header_bytes: int = HEADER_BYTES + 1) -> list[bytes]:
        """Return the bodies of the responses that were sent since the last call."""
        return [frame[header_bytes:] for frame in frames_in(drain(self.connection))]
