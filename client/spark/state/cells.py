"""Pure: values of answers as Spark's rows hold them. NULL is None; times are aware, in UTC; structs are tuples."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from kraft.client.core.records import TopicPartition
from kraft.seam.ids import encode_uuid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as a time; NULL for None, for -1, and for what no calendar holds."""
    if ms is None or ms < 0:
        return None
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


@lru_cache(maxsize=1024)
def id_text(value: UUID | None) -> str | None:
    """An id as Kafka's tools print it: 22 characters of URL-safe base64. Zeroes stand for no id."""
    return None if value is None or value.int == 0 else encode_uuid(value)


def known(value: int | None) -> int | None:
    """A number of which -1 says that it is not known."""
    return None if value is None or value < 0 else value


def partition_structs(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    """ARRAY<STRUCT<topic, partition>>."""
    return [(topic, index) for topic, index in partitions]


def whole(text: str | None) -> int | None:
    """A setting's text as a number; NULL if it is none."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
