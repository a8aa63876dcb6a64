"""Followers, in-sync replicas, replication quotas."""

from __future__ import annotations

from kraft.config.key import ConfigKey
from kraft.config.tables.reasons import JAVA_CLASS, NO_QUOTAS, ONE_FETCHER, SYSTEM_BUFFERS
from kraft.config.tables.row import BOOLEAN, CLASS, CLUSTER_WIDE, INT, LONG, STRING, key
from kraft.config.validators import at_least, one_of

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

KEYS: tuple[ConfigKey, ...] = (
    key("num.replica.fetchers", INT, "1", "Fetchers per source broker.", no_effect=ONE_FETCHER, update=CLUSTER_WIDE),
    key(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "Bytes of one partition that a follower requests; a larger first batch is still returned.",
        at_least(0),
    ),
    key(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "Bytes of one response that a follower requests.",
        at_least(0),
    ),
    key("replica.fetch.min.bytes", INT, "1", "Bytes that a follower's fetch waits for."),
    key("replica.fetch.wait.max.ms", INT, "500", "How long a follower's fetch waits for replica.fetch.min.bytes."),
    key("replica.fetch.backoff.ms", INT, "1000", "Wait after a partition's fetch failed.", at_least(0)),
    key(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "A follower that has not caught up for this long leaves the in-sync replicas.",
    ),
    key("replica.high.watermark.checkpoint.interval.ms", LONG, "5000", "How often high watermarks are written."),
    key("replica.socket.timeout.ms", INT, "30000", "How long a follower's fetch may take."),
    key(
        "replica.socket.receive.buffer.bytes",
        INT,
        "65536",
        "SO_RCVBUF of a follower's connection.",
        no_effect=SYSTEM_BUFFERS,
    ),
    key(
        "replica.selector.class",
        STRING,
        None,
        "How a client's preferred read replica is chosen: empty (the leader) or RackAwareReplicaSelector.",
        one_of("", "org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE_SELECTOR),
    ),
    key(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that is not in sync may become leader when no other can, at the price of lost records.",
        update=CLUSTER_WIDE,
    ),
    key(
        "leader.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "Bytes per second that leaders send to throttled replicas.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    key(
        "follower.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "Bytes per second that throttled followers receive.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        "9223372036854775807",
        "Bytes per second that are moved between folders.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    key(
        "replication.quota.window.num",
        INT,
        "11",
        "Windows over which replication rates are measured.",
        at_least(1),
    ),
    key(
        "replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of a window of replication rates.",
        at_least(1),
    ),
    key(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        "11",
        "Windows over which rates of moves between folders are measured.",
        at_least(1),
    ),
    key(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of a window of rates of moves between folders.",
        at_least(1),
    ),
    key(
        "quota.window.num",
        INT,
        "11",
        "Windows over which client quotas are measured.",
        at_least(1),
        no_effect=NO_QUOTAS,
    ),
    key(
        "quota.window.size.seconds", INT, "1", "Length of a window of client quotas.", at_least(1), no_effect=NO_QUOTAS
    ),
    key(
        "controller.quota.window.num",
        INT,
        "11",
        "Windows over which the quota of metadata changes is measured.",
        at_least(1),
        no_effect=NO_QUOTAS,
    ),
    key(
        "controller.quota.window.size.seconds",
        INT,
        "1",
        "Length of a window of the quota of metadata changes.",
        at_least(1),
        no_effect=NO_QUOTAS,
    ),
    key("client.quota.callback.class", CLASS, None, "Class that computes client quotas.", refused=JAVA_CLASS),
)
