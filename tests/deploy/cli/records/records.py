"""Records for tests of filters and formats."""

from __future__ import annotations

from kraft.client.core.records import ConsumerRecord, Headers


def record(
    value: bytes | None = b"value", key: bytes | None = b"key", headers: Headers = (), *, offset: int = 7
) -> ConsumerRecord:
    """Return a record of topic t, partition 2."""
    return ConsumerRecord("t", 2, offset, 1_700_000_000_123, key, value, headers, 5)
