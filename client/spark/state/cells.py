"""Pure: convert values of responses to the form that they have in Spark's rows. NULL is None, times are aware in UTC,
structs are tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from kraft.client.core.records import TopicPartition
from kraft.seam.ids import encode_uuid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(ms: int | None) -> datetime | None:
    """Convert milliseconds since 1970 to a time; NULL for None, for -1, and for times beyond the calendar."""
    if ms is None or ms < 0:
        return None
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


@lru_cache(maxsize=1024)
def id_text(value: UUID | None) -> str | None:
    """Return a UUID as Kafka's tools print it: 22 characters of URL-safe base64. The zero id becomes NULL."""
    return None if value is None or value.int == 0 else encode_uuid(value)


def known(value: int | None) -> int | None:
    """Return the number; NULL instead of -1, which means unknown."""
    return None if value is None or value < 0 else value


def partition_structs(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    """Return partitions as ARRAY<STRUCT<topic, partition>>."""
    return [(topic, index) for topic, index in partitions]


def whole(text: str | None) -> int | None:
    """Convert a setting's text to a whole number; NULL if the text is not one."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
