"""Keys of this project that Kafka does not have; all begin with `kraft.`."""

from __future__ import annotations

from kraft.config.key import ConfigKey
from kraft.config.tables.row import INT, LIST, STRING, key
from kraft.config.validators import at_least

KEYS: tuple[ConfigKey, ...] = (
    key(
        "kraft.host.id",
        STRING,
        None,
        "The machine whose fate this node shares; its own id if not set. Replicas are spread over racks, then hosts.",
    ),
    key(
        "kraft.log.open.files.max",
        INT,
        "512",
        "Files of logs that are kept open although nobody uses them; those with unsynced bytes come on top.",
        at_least(16),
    ),
    key(
        "kraft.dial.map",
        LIST,
        "",
        "Where this node dials others instead of at the addresses that they advertise, as 2:PLAINTEXT@localhost:7001: "
        "node id, name of the listener, address. For proxies between nodes.",
    ),
    key(
        "kraft.fault.control.socket",
        STRING,
        None,
        "Unix socket on which this node is told to break its links and answers on purpose. Not for production.",
    ),
)
