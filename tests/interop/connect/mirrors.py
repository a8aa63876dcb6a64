"""MirrorMaker 2 in dedicated mode between two clusters, and its internal topics.

Source: KIP-382; KIP-545; KIP-618; KIP-710.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kraft.sim.chaos.clusters.held_ports import hold_ports
from tests.interop.connect.committed import read_committed
from tests.interop.connect.jvm import KafkaProgram

OFFSET_LAG_MAX = 10
"""Maximum records of a partition between two synced offsets, after which MirrorMaker writes the next one."""
INTERVAL_SECONDS = 1
READ_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Flow:
    """A replication flow: the aliases of its clusters, and their addresses."""

    source: str
    target: str
    source_bootstrap: str
    target_bootstrap: str

    @property
    def internal_topics(self) -> list[str]:
        """Topics of the target cluster that MirrorMaker keeps for itself."""
        names = [f"mm2-{kind}.{self.source}.internal" for kind in ("configs", "offsets", "status")]
        return [*names, self.checkpoints, "heartbeats", f"{self.source}.heartbeats"]

    @property
    def checkpoints(self) -> str:
        return f"{self.source}.checkpoints.internal"

    @property
    def offset_syncs(self) -> str:
        """A topic of the source cluster."""
        return f"mm2-offset-syncs.{self.target}.internal"

    def remote(self, topic: str) -> str:
        """Return the name that a topic of the source has on the target."""
        return f"{self.source}.{topic}"

    def settings(self, topics: str, port: int, *, is_exactly_once: bool) -> dict[str, object]:
        replicated = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
        stored = ("offset.storage.", "status.storage.", "config.storage.")
        intervals = (
            *("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets"),
            *("emit.checkpoints", "emit.heartbeats"),
        )
        return {
            "clusters": f"{self.source},{self.target}",
            f"{self.source}.bootstrap.servers": self.source_bootstrap,
            f"{self.target}.bootstrap.servers": self.target_bootstrap,
            f"{self.source}->{self.target}.enabled": "true",
            f"{self.source}->{self.target}.topics": topics,
            "sync.group.offsets.enabled": "true",
            **{f"{kind}replication.factor": 3 for kind in replicated + stored},
            **{f"{kind}.interval.seconds": INTERVAL_SECONDS for kind in intervals},
            "offset.lag.max": OFFSET_LAG_MAX,
            f"{self.target}.exactly.once.source.support": "enabled" if is_exactly_once else "disabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{port}",
            f"{self.target}.offset.flush.interval.ms": 1_000,
            f"{self.source}.consumer.auto.offset.reset": "earliest",
            **{f"{prefix}plugin.discovery": "service_load" for prefix in ("", f"{self.source}.", f"{self.target}.")},
        }


@contextmanager
def mirror_maker(flow: Flow, topics: str, folder: Path, *, is_exactly_once: bool) -> Iterator[KafkaProgram]:
    """Start MirrorMaker for the topics of the source that match a regular expression, and kill it at the end."""
    port, held = hold_ports([0])
    properties = flow.settings(topics, port, is_exactly_once=is_exactly_once)
    try:
        with KafkaProgram("org.apache.kafka.connect.mirror.MirrorMaker", properties, folder) as program:
            program.start()
            yield program
    finally:
        held.release()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Committed offset of a group in one partition: on the source, and translated to the target."""

    group: str
    topic: str
    partition: int
    source_offset: int
    target_offset: int


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """Decode a record of the checkpoints topic. Source: Kafka's Checkpoint."""
    group, rest = _string(key)
    topic, rest = _string(rest)
    (partition,) = struct.unpack(">i", rest)
    _version, source_offset, target_offset = struct.unpack_from(">hqq", value)
    return Checkpoint(group, topic, partition, source_offset, target_offset)


def _string(data: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">h", data)
    return str(data[2 : 2 + length], "utf-8"), data[2 + length :]


def read_checkpoints(flow: Flow) -> list[Checkpoint]:
    """Return all checkpoints that are committed now, in the order of the log."""
    (records,) = read_committed(flow.target_bootstrap, flow.checkpoints, 1, READ_SECONDS_MAX).records
    return [decode_checkpoint(record.key, record.value) for record in records]
