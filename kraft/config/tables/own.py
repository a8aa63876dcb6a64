"""Keys of this project that Kafka does not have; all begin with `kraft.`."""

from __future__ import annotations

from kraft.config.key import ConfigKey
from kraft.config.tables.row import BOOLEAN, INT, LIST, PASSWORD, STRING, key
from kraft.config.validators import at_least, bearer_token, host_and_port, one_of

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
    key(
        "kraft.admin.listener",
        STRING,
        "",
        "Where this node serves its health, its metrics and what it is over HTTP, as 127.0.0.1:9404; port 0: a free "
        "one. Empty: nowhere. Without a host it is the loopback address. An address that other machines reach needs "
        "kraft.admin.token, client certificates, or kraft.admin.anonymous.",
        host_and_port,
    ),
    key(
        "kraft.admin.security.protocol",
        STRING,
        "PLAINTEXT",
        "PLAINTEXT, or SSL for HTTPS at kraft.admin.listener, by ssl.… keys or those of listener.name.admin.",
        one_of("PLAINTEXT", "SSL"),
    ),
    key(
        "kraft.admin.token",
        PASSWORD,
        None,
        "What requests to kraft.admin.listener must carry as `Authorization: Bearer TOKEN`, but for the probes /live, "
        "/ready and /v1/ready.",
        bearer_token,
    ),
    key(
        "kraft.admin.anonymous",
        BOOLEAN,
        "false",
        "Serve kraft.admin.listener at an address that other machines reach, although it asks for neither token nor "
        "client certificate. For networks in which only monitoring reaches the port.",
    ),
    key(
        "kraft.admin.connections.max",
        INT,
        "16",
        "Connections to kraft.admin.listener at once; one more is answered with 503, but for /live and /ready.",
        at_least(1),
    ),
    key(
        "kraft.admin.head.bytes.max",
        INT,
        "8192",
        "Longest head of a request to kraft.admin.listener; a longer one is answered with 431.",
        at_least(256),
    ),
    key(
        "kraft.admin.idle.ms",
        INT,
        "60000",
        "A connection to kraft.admin.listener ends when for so long no whole request has come and nothing was sent.",
        at_least(1000),
    ),
    key(
        "kraft.log.format",
        STRING,
        "text",
        "The form of the node's log on standard error: text, or json with one object per line.",
        one_of("text", "json"),
    ),
    key(
        "kraft.metrics.names",
        STRING,
        "reporter",
        "The names of metrics at /metrics that is asked for without ?names=: those of the Strimzi Metrics Reporter, of "
        "Strimzi's or Confluent's rules for jmx_exporter.",
        one_of("reporter", "strimzi", "confluent"),
    ),
    key(
        "kraft.slow.request.ms",
        INT,
        "1000",
        "A request that takes longer is logged with its parts: queue, local, remote, send. What a fetch or a member of "
        "a group waits for does not count. All are looked at while requests are few, a sample when there are many. "
        "-1: none is logged.",
        at_least(-1),
    ),
)
