"""Start parameters of a console."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kraft.client.admin import Admin
from kraft.client.consumer import Consumer
from kraft.client.producer import Producer

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8480
POLL_MS = 2_000
LAG_SAMPLE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Start parameters of a console. `admin`, `consumer` and `producer` are functions that return a client of the
    cluster, not opened yet, with its security settings. `consumer` and `producer` accept more keyword arguments.

    `data` is the folder of a local cluster; it gives access to the nodes and their fault control. `metrics` has
    HOST:PORT, by node id, of /metrics listeners that are not found through `data`. `schema_registry` is the URL of a
    registry, for records in Avro."""

    bootstrap: str
    admin: Callable[[], Admin]
    consumer: Callable[..., Consumer]
    producer: Callable[..., Producer]
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    allow_changes: bool = False
    data: Path | None = None
    schema_registry: str | None = None
    metrics: Mapping[int, str] = field(default_factory=dict)
    poll_ms: float = POLL_MS
    lag_sample_ms: float = LAG_SAMPLE_MS
