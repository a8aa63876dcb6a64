"""Settings of Kafka's clients that are accepted without effect, and settings that are rejected. Names are without the
prefix `kafka.`.

Source: Kafka's ConsumerConfig, ProducerConfig, CommonClientConfigs, SslConfigs, Spark's KafkaSourceProvider.
"""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType

from kraft.client.core.configs import NO_EFFECT, ConsumerConfig, ProducerConfig

REFUSED = MappingProxyType(
    {
        "auto.offset.reset": "give startingOffsets",
        "key.deserializer": "keys are read as they are: cast the column key, or decode it in the query",
        "value.deserializer": "values are read as they are: cast the column value, or decode it in the query",
        "key.serializer": "keys are STRING or BINARY: cast the column key, or encode it in the query",
        "value.serializer": "values are STRING or BINARY: cast the column value, or encode it in the query",
        "enable.auto.commit": (
            "Spark keeps the offsets in its checkpoint; option commitGroup also commits them to a group"
        ),
        "interceptor.classes": "interceptors are not supported",
        "transactional.id": "each task has its own transactional id: give transactionalIdPrefix",
        "partitioner.class": "the partitioner is fixed; choose partitions with a column partition",
        "ssl.engine.factory.class": "TLS is Python's: give PEM files, such as kafka.ssl.truststore.location",
        "metric.reporters": "they are Java classes, and there is no JVM in this client",
        "config.providers": "they are Java classes, and there is no JVM in this client",
    }
)
"""Rejected setting → what to do instead."""
SASL = "sasl."
SASL_REASON = "this client has no SASL yet: use a listener with kafka.security.protocol=PLAINTEXT or SSL"

_MORE = """
allow.auto.create.topics compression.gzip.level compression.lz4.level compression.zstd.level
enable.metrics.push group.protocol group.remote.assignor partitioner.ignore.keys retry.backoff.max.ms security.providers
ssl.cipher.suites ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm transaction.two.phase.commit.enable
"""
WITHOUT_EFFECT = frozenset(
    {field.name.replace("_", ".") for kind in (ConsumerConfig, ProducerConfig) for field in fields(kind)}
    | {name.replace("_", ".") for name in NO_EFFECT}
    | set(_MORE.split())
) - set(REFUSED)
"""Settings of Kafka's clients that are accepted and only logged. A setting that is also an option of the option list
has that option's effect."""
