"""Settings of a console for a cluster without security."""

from __future__ import annotations

from typing import Any

from kraft.client import Consumer, Producer
from kraft.client.admin import Admin
from kraft.deploy.console.settings import ConsoleSettings


def plain_settings(bootstrap: str, **given: Any) -> ConsoleSettings:
    """Return settings for a cluster without security."""
    return ConsoleSettings(
        bootstrap=bootstrap,
        admin=lambda: Admin(bootstrap_servers=bootstrap, client_id="kraft-console", timeout_ms=5_000, refused_ms=1_000),
        consumer=lambda **more: Consumer(bootstrap_servers=bootstrap, client_id="kraft-console", **more),
        producer=lambda **more: Producer(bootstrap_servers=bootstrap, client_id="kraft-console", **more),
        **given,
    )
