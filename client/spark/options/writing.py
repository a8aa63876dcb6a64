"""Parse the options of a sink into settings."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.client.spark.options.connection import connection_of
from kraft.client.spark.options.given import OptionError, read_given
from kraft.client.spark.options.table import Kind
from kraft.client.spark.settings import SinkSettings


def parse_write(options: Mapping[str, str]) -> SinkSettings:
    """Parse the options of a batch or stream that writes to topics. Raises OptionError for unknown, invalid or
    conflicting options."""
    given = read_given(options, Kind.SINK)
    connection = connection_of(given)
    usual = SinkSettings(connection=connection)
    settings = SinkSettings(
        connection=connection,
        topic=given.get("topic"),
        mark_records=given.get("markRecords", False),
        transactional_id_prefix=given.get("transactionalIdPrefix"),
        transaction_timeout_ms=given.get("kafka.transaction.timeout.ms", usual.transaction_timeout_ms),
        progress_topic=given.get("progressTopic", usual.progress_topic),
        compression=given.get("kafka.compression.type", usual.compression),
        batch_bytes=given.get("kafka.batch.size", usual.batch_bytes),
        buffer_bytes=given.get("kafka.buffer.memory", usual.buffer_bytes),
        delivery_timeout_ms=given.get("kafka.delivery.timeout.ms", usual.delivery_timeout_ms),
    )
    if settings.buffer_bytes < settings.batch_bytes:
        raise OptionError(
            f"kafka.buffer.memory={settings.buffer_bytes} is less than kafka.batch.size={settings.batch_bytes}: "
            "no batch would fit"
        )
    if given.has("progressTopic") and settings.transactional_id_prefix is None:
        raise OptionError("progressTopic has an effect with transactionalIdPrefix only: give both, or leave it out")
    return settings


def without_effect_on_sink(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of options that were accepted without effect, for one log line."""
    return read_given(options, Kind.SINK).without_effect
