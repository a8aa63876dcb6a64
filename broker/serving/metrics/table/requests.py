"""Metrics of requests, connections and the event loop, which every node has."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import BOTH, BROKER, COUNTER, GAUGE, HISTOGRAM, INFO, rows

REQUESTS = (
    *rows(
        "kafka.network",
        "RequestMetrics",
        COUNTER,
        BOTH,
        {
            "RequestsPerSec": "Requests received. `FetchConsumer` and `FetchFollower` divide `Fetch`.",
        },
        labels=("request", "version"),
    ),
    *rows(
        "kafka.network",
        "RequestMetrics",
        COUNTER,
        BOTH,
        {
            "ErrorsPerSec": "Error codes in answers, `NONE` included: one for each topic, partition or other element "
            "that has a code. Partitions in answers to Metadata and DescribeTopicPartitions are not counted.",
        },
        labels=("request", "error"),
    ),
    *rows(
        "kafka.network",
        "RequestMetrics",
        HISTOGRAM,
        BOTH,
        {
            "TotalTimeMs": "From the read of the request to the send of its answer.",
            "RequestQueueTimeMs": "From the read to the handler.",
            "LocalTimeMs": "In the handler.",
            "RemoteTimeMs": "From the handler's return to the answer: waiting for replicas, the disk, the controller, "
            "or for enough bytes.",
            "ResponseQueueTimeMs": "Behind answers to earlier requests of the connection.",
            "ResponseSendTimeMs": "Until the connection has sent all of its output.",
            "ThrottleTimeMs": "How long the client is held back for its quota.",
            "RequestBytes": "Size of the request.",
        },
        labels=("request",),
    ),
)


NODE = (
    *rows(
        "kafka.server",
        "KafkaServer",
        GAUGE,
        BROKER,
        {
            "BrokerState": "0 not running, 1 starting, 2 recovering, 3 running, 6 controlled shutdown, "
            "7 shutting down.",
        },
    ),
    *rows("kafka.server", "KafkaServer", INFO, BOTH, {"ClusterId": "Id of the cluster."}, labels=("cluster_id",)),
    *rows(
        "kafka.network",
        "SocketServer",
        GAUGE,
        BOTH,
        {
            "NetworkProcessorAvgIdlePercent": "Share (0 to 1) of the last half minute that the event loop waited.",
            "MemoryPoolUsed": "Bytes of the memory budget that are taken.",
            "MemoryPoolAvailable": "Bytes of the memory budget that are free.",
        },
    ),
    *rows(
        "kafka.server",
        "KafkaRequestHandlerPool",
        COUNTER,
        BOTH,
        {
            "RequestHandlerAvgIdlePercent": "Nanoseconds that the event loop waited: `rate(…) / 1e9` is the share. One "
            "loop does what Kafka's network and request threads do.",
        },
    ),
    *rows(
        "kafka.network",
        "RequestChannel",
        GAUGE,
        BOTH,
        {
            "RequestQueueSize": "Connections with requests that are received and not handled yet.",
            "ResponseQueueSize": "Requests that are handled and not answered yet.",
        },
    ),
    *rows(
        "kafka.server",
        "socket-server-metrics",
        GAUGE,
        BOTH,
        {
            "connection-count": "Open connections.",
            "connection-creation-total": "Connections accepted.",
            "connection-close-total": "Connections that ended.",
            "successful-authentication-total": "TLS handshakes that clients completed.",
            "failed-authentication-total": "TLS handshakes that failed, and requests to ADMIN without its token.",
        },
        labels=("listener",),
    ),
    *rows(
        "kafka.server",
        "socket-server-metrics",
        GAUGE,
        BOTH,
        {"connections": "Open connections, by what their ApiVersions requests say of the client."},
        labels=("listener", "clientSoftwareName", "clientSoftwareVersion"),
    ),
    *rows(
        "kafka.server",
        "socket-server-metrics",
        GAUGE,
        BOTH,
        {
            "incoming-byte-total": "Bytes received, on connections accepted and dialled.",
            "outgoing-byte-total": "Bytes sent, on connections accepted and dialled.",
            "incoming-byte-rate": "Bytes received per second.",
            "outgoing-byte-rate": "Bytes sent per second.",
            "connection-creation-rate": "Connections accepted per second.",
            "connection-close-rate": "Connections that ended, per second.",
            "successful-authentication-rate": "TLS handshakes that clients completed, per second.",
            "failed-authentication-rate": "TLS handshakes of clients that failed, per second.",
        },
    ),
    *rows(
        "kraft.network",
        "Listener",
        GAUGE,
        BOTH,
        {
            "certificate-expiry-timestamp-seconds": "When the certificate that the next client is shown, or one of its "
            "chain, expires; s since 1970. Only of listeners with TLS.",
        },
        labels=("listener",),
    ),
    *rows(
        "kraft.runtime",
        "Loop",
        GAUGE,
        BOTH,
        {
            "Passes": "Passes of the event loop.",
            "LongSteps": "Passes that took more than 20 ms.",
            "LongestStepMs": "The longest pass, with what it waited for a processor (WaitedForCpuMs).",
        },
    ),
    *rows(
        "kraft.runtime",
        "Loop",
        COUNTER,
        BOTH,
        {
            "CpuMs": "Milliseconds that the event loop's thread ran on a processor.",
            "WaitedForCpuMs": "Milliseconds that the event loop's thread had to wait for a processor, because others "
            "had them all.",
        },
    ),
)
