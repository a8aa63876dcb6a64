"""Metrics and telemetry."""

from __future__ import annotations

from kraft.config.key import ConfigKey
from kraft.config.tables.reasons import JAVA_REPORTERS, NO_TELEMETRY, OWN_METRICS
from kraft.config.tables.row import CLUSTER_WIDE, INT, LIST, LONG, STRING, key
from kraft.config.validators import at_least

KEYS: tuple[ConfigKey, ...] = (
    key(
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Java classes that report metrics.",
        no_effect=JAVA_REPORTERS,
        update=CLUSTER_WIDE,
    ),
    key("metrics.num.samples", INT, "2", "Samples that a metric keeps.", at_least(1), no_effect=OWN_METRICS),
    key("metrics.sample.window.ms", LONG, "30000", "Length of a sample.", at_least(1), no_effect=OWN_METRICS),
    key("metrics.recording.level", STRING, "INFO", "Which metrics are recorded.", no_effect=OWN_METRICS),
    key("kafka.metrics.reporters", LIST, "", "Java classes that report the older metrics.", no_effect=JAVA_REPORTERS),
    key(
        "kafka.metrics.polling.interval.secs",
        INT,
        "10",
        "How often those are polled.",
        at_least(1),
        no_effect=JAVA_REPORTERS,
    ),
    key(
        "telemetry.max.bytes",
        INT,
        "1048576",
        "Largest telemetry message of a client.",
        at_least(1),
        no_effect=NO_TELEMETRY,
    ),
)
