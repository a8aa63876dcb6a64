"""What a console is started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraft.client.admin import Admin
from kraft.client.consumer import Consumer
from kraft.client.producer import Producer

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8480
POLL_MS = 2_000
LAG_SAMPLE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """`admin`, `consumer` and `producer` make clients of the cluster that are not opened yet, with its security
    settings; the latter two take more keyword arguments. `data`: the folder of a local cluster, whose nodes and fault
    control are then known. `metrics`: node id → HOST:PORT of its /metrics, beside those that `data` tells.
    `schema_registry`: the URL of one, for records in Avro."""

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


def plain_settings(bootstrap: str, **given: Any) -> ConsoleSettings:
    """Settings for a cluster that asks for no security."""
    return ConsoleSettings(
        bootstrap=bootstrap,
        admin=lambda: Admin(bootstrap_servers=bootstrap, client_id="kraft-console", timeout_ms=5_000, refused_ms=1_000),
        consumer=lambda **more: Consumer(bootstrap_servers=bootstrap, client_id="kraft-console", **more),
        producer=lambda **more: Producer(bootstrap_servers=bootstrap, client_id="kraft-console", **more),
        **given,
    )
