"""Keys of this project that Kafka does not have; all begin with `kraft.`."""

from __future__ import annotations

from kraft.config.key import ConfigKey
from kraft.config.tables.row import STRING, key

KEYS: tuple[ConfigKey, ...] = (
    key(
        "kraft.host.id",
        STRING,
        None,
        "The machine whose fate this node shares; its own id if not set. Replicas are spread over racks, then hosts.",
    ),
)
