"""Keys of pykraft that Kafka does not have; all begin with `kraft.`."""

from __future__ import annotations

from kraft.config.key import ConfigKey
from kraft.config.tables.row import BOOLEAN, INT, LIST, PASSWORD, STRING, key
from kraft.config.validators import at_least, bearer_token, host_and_port, one_of

KEYS: tuple[ConfigKey, ...] = (
    key(
        "kraft.host.id",
        STRING,
        None,
        "The physical machine of this node; the node's own id if not set. Replicas are spread over racks, then hosts.",
    ),
    key(
        "kraft.log.open.files.max",
        INT,
        "512",
        "Maximum unused log files that are kept open, in addition to files with unsynced bytes.",
        at_least(16),
    ),
    key(
        "kraft.dial.map",
        LIST,
        "",
        "Addresses at which this node dials others instead of their advertised ones, as 2:PLAINTEXT@localhost:7001: "
        "node id, name of the listener, address. For proxies between nodes.",
    ),
    key(
        "kraft.fault.control.socket",
        STRING,
        None,
        "Unix socket for commands that inject faults into this node's links, responses and disk. Not for production.",
    ),
    key(
        "kraft.admin.listener",
        STRING,
        "",
        "Address at which this node serves its health, metrics and identity over HTTP, as 127.0.0.1:9404. Port 0: any "
        "free port. Empty: not served. Without a host: the loopback address. An address that other machines can reach "
        "needs kraft.admin.token, client certificates, or kraft.admin.anonymous.",
        host_and_port,
    ),
    key(
        "kraft.admin.security.protocol",
        STRING,
        "PLAINTEXT",
        "PLAINTEXT, or SSL for HTTPS at kraft.admin.listener, configured by ssl.… keys or those of "
        "listener.name.admin.",
        one_of("PLAINTEXT", "SSL"),
    ),
    key(
        "kraft.admin.token",
        PASSWORD,
        None,
        "Token that requests to kraft.admin.listener must have as `Authorization: Bearer TOKEN`, except the probes "
        "/live, /ready and /v1/ready.",
        bearer_token,
    ),
    key(
        "kraft.admin.anonymous",
        BOOLEAN,
        "false",
        "Permit kraft.admin.listener at an address that other machines can reach, without token and client "
        "certificates. For networks in which only monitoring can reach the port.",
    ),
    key(
        "kraft.admin.connections.max",
        INT,
        "16",
        "Maximum connections to kraft.admin.listener; further ones get 503, except for /live and /ready.",
        at_least(1),
    ),
    key(
        "kraft.admin.head.bytes.max",
        INT,
        "8192",
        "Longest request head at kraft.admin.listener; a longer one is answered with 431.",
        at_least(256),
    ),
    key(
        "kraft.admin.idle.ms",
        INT,
        "60000",
        "A connection to kraft.admin.listener without a complete request or sent data for this long is closed.",
        at_least(1000),
    ),
    key(
        "kraft.log.format",
        STRING,
        "text",
        "Format of the node's log on standard error: text, or json with one object per line.",
        one_of("text", "json"),
    ),
    key(
        "kraft.metrics.names",
        STRING,
        "reporter",
        "Metric names at /metrics without ?names=: those of the Strimzi Metrics Reporter, or of Strimzi's or "
        "Confluent's rules for jmx_exporter.",
        one_of("reporter", "strimzi", "confluent"),
    ),
    key(
        "kraft.slow.request.ms",
        INT,
        "1000",
        "A request that takes longer is logged with the times of its parts: queue, local, remote, send. The intended "
        "waits of fetches and group members do not count. All requests are timed while there are few, a sample when "
        "there are many. -1: none is logged.",
        at_least(-1),
    ),
)
