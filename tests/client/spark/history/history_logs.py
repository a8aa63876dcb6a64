"""Hand-made metadata logs in folders, and functions that read tables as of the past from them, for tests
without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from kraft.client.metadata_log.entries import LogBatch
from kraft.client.spark.history.points import FilesLog, LogBounds
from kraft.client.spark.history.rows import rows_as_of
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import TableSettings
from kraft.client.spark.state import StateRequest
from kraft.client.spark.tables import table_of
from kraft.image import ConfigResourceType, Endpoint, Event, FeatureRange, events
from tests.stages.metadata_logs import batch, leader_change

Row = dict[str, Any]
SECRET = "do-not-show-this"
ORDERS, PAYMENTS = UUID(int=1 << 64), UUID(int=2 << 64)
DIRECTORY = UUID(int=7 << 64)
NOON_MS = 1_700_000_000_000


def broker(broker_id: int, *, fenced: bool = False) -> Event:
    return events.RegisterBroker(
        broker_id=broker_id,
        incarnation_id=UUID(int=(100 + broker_id) << 64),
        broker_epoch=broker_id,
        endpoints=(Endpoint("PLAINTEXT", f"host-{broker_id}", 9092), Endpoint("TLS", "public", 9093, "SSL")),
        rack=f"rack-{broker_id}",
        fenced=fenced,
        log_dirs=(DIRECTORY,),
        features=(FeatureRange("metadata.version", 1, 20 + broker_id),),
    )


def partition(topic_id: UUID, index: int, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int) -> Event:
    directories = (DIRECTORY,) * len(replicas)
    return events.Partition(topic_id, index, replicas, isr, leader=leader, directories=directories)


def config(kind: ConfigResourceType, resource: str, name: str, value: str | None) -> Event:
    return events.Config(resource_type=kind, resource_name=resource, name=name, value=value)


BATCHES: list[list[Event]] = [
    [events.ClusterIdentity("a-cluster"), events.FeatureLevel("metadata.version", 21, "1.0")],
    [broker(1), broker(2), broker(3, fenced=True)],
    [
        events.Topic("orders", ORDERS),
        partition(ORDERS, 0, (1, 2), (1, 2), 1),
        partition(ORDERS, 1, (2, 3), (2,), 2),
        config(ConfigResourceType.TOPIC, "orders", "min.insync.replicas", "2"),
    ],
    [config(ConfigResourceType.BROKER, "1", "ssl.key.password", SECRET)],
    [events.Topic("payments", PAYMENTS), partition(PAYMENTS, 0, (3, 1), (), -1)],
    [events.PartitionChange(ORDERS, 0, isr=(2,), leader=2)],
    [events.RemoveTopic(PAYMENTS)],
    [config(ConfigResourceType.BROKER, "", "log.retention.ms", "5000")],
]
"""Batches of the log. Offset 0 is a control record, and the first of these batches is at offset 1. Each batch is one
second later than the previous one."""
STARTS = [1, 3, 6, 10, 11, 13, 14, 15]
END = 16


def write_history(home: Path, batches: list[list[Event]] = BATCHES) -> Path:
    """Write the log into a node's folder, in two segments, and return the folder."""
    folder = home / "1" / "data" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    parts, offset = [leader_change(0)], 1
    for at, applied in enumerate(batches):
        parts.append(batch(applied, offset, epoch=1 + at // 4, time_ms=NOON_MS + 1000 * at))
        offset += len(applied)
    (folder / f"{0:020}.log").write_bytes(b"".join(parts[:4]))
    if parts[4:]:
        (folder / f"{STARTS[3]:020}.log").write_bytes(b"".join(parts[4:]))
    return home / "1"


def read_history(folder: Path, table: str, *columns: str, bounds: Bounds | None = None, **settings: Any) -> list[Row]:
    """Read the rows of a table with these columns (none given: all columns)."""
    wanted = columns or table_of(table).column_names
    asked = TableSettings(table=table, connection=None, folder=str(folder), **settings)
    return [dict(zip(wanted, row, strict=True)) for row in rows_as_of(_request(table, wanted, bounds, asked))]


def _request(table: str, wanted: tuple[str, ...], bounds: Bounds | None, settings: TableSettings) -> StateRequest:
    return StateRequest(table, wanted, bounds or Bounds(), settings)


class CountingLog(FilesLog):
    """The log of a folder that counts how many batches are read from it, and how often its end is requested."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.batches_read = 0
        self.ends_asked = 0

    def batches(self, start: int, end: int) -> Iterator[LogBatch]:
        for one in super().batches(start, end):
            self.batches_read += 1
            yield one

    def bounds(self) -> LogBounds:
        self.ends_asked += 1
        return super().bounds()

    def end(self) -> int:
        self.ends_asked += 1
        return super().end()
