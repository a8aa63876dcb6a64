"""The records of `__transaction_state`, encoded byte for byte with Kafka's schemas.

A key is a 16-bit type and the transactional id. A value is a 16-bit version and its fields: version 0, or version 1 in
flexible encoding if the finalized transaction.version is 1 or higher. Records of unknown types and versions are
skipped, so that a downgraded broker can load the log. Source: TransactionLogKey, TransactionLogValue, KIP-890, KIP-915.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kraft.broker.txn.states import TransactionState
from kraft.seam import WireError
from kraft.wire.messages.tagged import read_tagged
from kraft.wire.primitives import (
    array_count,
    compact_array_count,
    compact_string,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    string,
)
from kraft.wire.varints import encode_unsigned, skip_tagged_fields

KEY_TYPE = 0
PLAIN_VERSION = 0
FLEXIBLE_VERSION = 1

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

PREVIOUS_ID_TAG, NEXT_ID_TAG, CLIENT_VERSION_TAG = 0, 1, 2

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">qhib")
"""First fields of a value: producer id, epoch, timeout in ms, status."""
_TAIL = struct.Struct(">qq")
"""Last fields of a value: time of the last update and start of the transaction, in wall-clock ms."""

TopicPartition = tuple[str, int]


class TransactionLogRecord(NamedTuple):
    """An encoded record to append. If `value` is None, the record deletes the key."""

    key: bytes
    value: bytes | None


class TransactionValue(NamedTuple):
    """The state of one transactional id, as its last record in the log has it. Timestamps are wall-clock ms; `start_ms`
    is -1 from InitProducerId until a transaction begins. `client_version` is the transaction.version that the client of
    the last EndTxn used."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0


class TransactionLogEntry(NamedTuple):
    """One record: a transactional id and its new value. The value None removes the id."""

    transactional_id: str
    value: TransactionValue | None


def encode_entry(entry: TransactionLogEntry, *, is_flexible: bool) -> TransactionLogRecord:
    """Return the entry as a record. Raises ValueError if a string or a number is too large for its field."""
    key = _INT16.pack(KEY_TYPE) + string(entry.transactional_id)
    value = entry.value
    if value is None:
        return TransactionLogRecord(key, None)
    try:
        return TransactionLogRecord(key, _encode_flexible(value) if is_flexible else _encode_plain(value))
    except struct.error as error:
        numbers = f"producer id {value.producer_id}, epoch {value.producer_epoch}, timeout {value.timeout_ms} ms"
        raise ValueError(f"a number is too large for its field ({numbers}): {error}") from None


def _by_topic(value: TransactionValue) -> list[tuple[str, list[int]]] | None:
    """Return (topic, partitions) pairs, sorted so that equal values have equal bytes. In the state EMPTY return None,
    because Kafka writes a null array there."""
    if value.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _encode_plain(value: TransactionValue) -> bytes:
    topics = _by_topic(value)
    parts = [
        _INT16.pack(PLAIN_VERSION),
        _HEAD.pack(value.producer_id, value.producer_epoch, value.timeout_ms, value.state),
        array_count(topics),
    ]
    for topic, partitions in topics or ():
        parts += (string(topic), array_count(partitions), struct.pack(f">{len(partitions)}i", *partitions))
    parts.append(_TAIL.pack(value.update_ms, value.start_ms))
    return b"".join(parts)


def _encode_flexible(value: TransactionValue) -> bytes:
    topics = _by_topic(value)
    parts = [
        _INT16.pack(FLEXIBLE_VERSION),
        _HEAD.pack(value.producer_id, value.producer_epoch, value.timeout_ms, value.state),
        compact_array_count(topics),
    ]
    for topic, partitions in topics or ():
        packed = struct.pack(f">{len(partitions)}i", *partitions)
        parts += (compact_string(topic), compact_array_count(partitions), packed, b"\0")
    parts += (_TAIL.pack(value.update_ms, value.start_ms), _tags(value))
    return b"".join(parts)


def _tags(value: TransactionValue) -> bytes:
    fields = [
        (tag, packed.pack(number))
        for tag, packed, number, default in (
            (PREVIOUS_ID_TAG, _INT64, value.previous_producer_id, NO_PRODUCER_ID),
            (NEXT_ID_TAG, _INT64, value.next_producer_id, NO_PRODUCER_ID),
            (CLIENT_VERSION_TAG, _INT16, value.client_version, 0),
        )
        if number != default
    ]
    encoded = (encode_unsigned(tag) + encode_unsigned(len(data)) + data for tag, data in fields)
    return encode_unsigned(len(fields)) + b"".join(encoded)


def decode_entry(key: bytes | None, value: bytes | None) -> TransactionLogEntry | None:
    """Return the entry of a record, or None for an unknown type or version. Raises WireError if the bytes do not
    parse."""
    try:
        return _decode_entry(key, value)
    except struct.error:
        raise WireError("a record of the transaction log ends too early") from None
    except ValueError as error:
        raise WireError(f"a record of the transaction log is malformed: {error}") from None


def _decode_entry(key: bytes | None, value: bytes | None) -> TransactionLogEntry | None:
    if key is None:
        raise WireError("a record of the transaction log has no key")
    data = memoryview(key)
    (kind,) = _INT16.unpack_from(data)
    if kind != KEY_TYPE:
        return None
    transactional_id, end = read_string(data, 2)
    _check_end(data, end)
    if value is None:
        return TransactionLogEntry(transactional_id or "", None)
    body = memoryview(value)
    (version,) = _INT16.unpack_from(body)
    if version not in (PLAIN_VERSION, FLEXIBLE_VERSION):
        return None
    return TransactionLogEntry(transactional_id or "", _read_value(body, is_flexible=version == FLEXIBLE_VERSION))


def _read_value(data: memoryview, *, is_flexible: bool) -> TransactionValue:
    read_count = read_compact_array_count if is_flexible else read_array_count
    read_text = read_compact_string if is_flexible else read_string
    producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(data, 2)
    position = 2 + _HEAD.size
    topics, position = read_count(data, position)
    partitions: set[TopicPartition] = set()
    for _ in range(max(topics, 0)):
        topic, position = read_text(data, position)
        count, position = read_count(data, position)
        count = max(count, 0)
        partitions.update((topic or "", index) for index in struct.unpack_from(f">{count}i", data, position))
        position += 4 * count
        if is_flexible:
            position = skip_tagged_fields(data, position, len(data))
    update_ms, start_ms = _TAIL.unpack_from(data, position)
    position += _TAIL.size
    previous_id, next_id, client_version = NO_PRODUCER_ID, NO_PRODUCER_ID, 0
    if is_flexible:
        tags, position = read_tagged(data, position)
        if PREVIOUS_ID_TAG in tags:
            (previous_id,) = _INT64.unpack(tags[PREVIOUS_ID_TAG])
        if NEXT_ID_TAG in tags:
            (next_id,) = _INT64.unpack(tags[NEXT_ID_TAG])
        if CLIENT_VERSION_TAG in tags:
            (client_version,) = _INT16.unpack(tags[CLIENT_VERSION_TAG])
    _check_end(data, position)
    return TransactionValue(
        producer_id,
        epoch,
        timeout_ms,
        TransactionState(status),
        frozenset(partitions),
        update_ms,
        start_ms,
        previous_id,
        next_id,
        client_version,
    )


def _check_end(data: memoryview, position: int) -> None:
    if position != len(data):
        raise WireError(f"a record of the transaction log has {len(data) - position} bytes too many")
