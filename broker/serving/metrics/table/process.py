"""Metrics of the process of a node."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import COUNTER, GAUGE, PROCESS, rows

USAGE = (
    *rows("process", "cpu", COUNTER, PROCESS, {"seconds": "CPU time, user and system."}),
    *rows("process", "virtual", GAUGE, PROCESS, {"memory_bytes": "Virtual memory."}),
    *rows("process", "resident", GAUGE, PROCESS, {"memory_bytes": "Resident memory."}),
    *rows("process", "start", GAUGE, PROCESS, {"time_seconds": "When it started; seconds since 1970."}),
    *rows("process", "open", GAUGE, PROCESS, {"fds": "Open descriptors."}),
    *rows("process", "max", GAUGE, PROCESS, {"fds": "Most descriptors that may be open."}),
    *rows(
        "kafka.server",
        "KafkaServer",
        GAUGE,
        PROCESS,
        {
            "linux-disk-read-bytes": "Bytes that the process had read from disks.",
            "linux-disk-write-bytes": "Bytes that the process had written to disks.",
        },
    ),
)
