"""Bytes after the end of what a parser reads: each parser treats them as its format specifies.

They are ignored, as in Kafka, in bodies of requests and responses: an older peer may receive a newer one's fields. They
belong to the next element in streams of frames and batches. They are damage where a length or a checksum defines the
end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kraft.config import parse_properties
from kraft.image.events import Topic, decode_event, encode_event
from kraft.seam import StorageCorrupt, WireError
from kraft.storage.checkpoints import BadCheckpoint, decode_offsets, encode_offsets
from kraft.storage.epochs import EpochCache
from kraft.storage.meta_properties import MetaProperties
from kraft.storage.producers.snapshot_file import SnapshotEntry
from kraft.storage.producers.snapshot_file import decode as decode_producers
from kraft.storage.producers.snapshot_file import encode as encode_producers
from kraft.storage.quorum_state import QuorumState
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, CONTROLLER_APIS, ApiKey
from kraft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    decode_fetch_request,
    encode_fetch_request,
)
from kraft.wire.messages.fetch_response import decode_fetch_response, encode_fetch_response
from kraft.wire.messages.produce import (
    ProduceResult,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)
from kraft.wire.messages.tagged import read_tagged, tagged
from kraft.wire.records import Record
from kraft.wire.records.batch_codec import decode_batch, encode_batch
from kraft.wire.records.compression import Compression, compress, decompress
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, decode_control, encode_control
from kraft.wire.records.header import iter_headers, pack_header, read_header, write_crc
from kraft.wire.rpc import decode_rpc, encode_rpc
from kraft.wire.rpc.controller_messages import HeartbeatRequest
from kraft.wire.varints import encode_unsigned, encode_zigzag, read_unsigned, read_zigzag
from tests.protocol.test_error_answers import filled

TRAILING = (b"\x00", b"\x01", b"\xff" * 7, b"trailing bytes")
ID = UUID(int=0x1234)
RECORD = Record(0, 1_000, b"key", b"value", (("name", b"content"),))


class Parser(NamedTuple):
    """A parser and bytes that it reads completely. `refusal`: its error for trailing bytes; None if it ignores them."""

    name: str
    data: bytes
    parse: Callable[[bytes], Any]
    refusal: type[Exception] | None = None


def joined(chunks: Any) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


def produce_parsers() -> list[Parser]:
    found = []
    for version in (3, 8, 9, 12, 13):
        topic = (None, ID) if version >= 13 else ("orders", None)
        request = encode_produce_request(
            version, acks=-1, timeout_ms=5, topics=[(*topic, [(0, b"batch"), (1, None)])], transactional_id="t"
        )
        answer = encode_produce_response(version, [(*topic, [ProduceResult(0, 0, 5), ProduceResult(1, 3)])])
        found += [
            Parser(
                f"Produce request v{version}",
                joined(request),
                lambda data, version=version: _produce_request(version, data),
            ),
            Parser(
                f"Produce response v{version}",
                answer,
                lambda data, version=version: decode_produce_response(version, data),
            ),
        ]
    return found


def _produce_request(version: int, data: bytes) -> Any:
    request = decode_produce_request(version, memoryview(bytearray(data)))
    rows = [
        (name, topic_id, [(index, None if batch is None else bytes(batch)) for index, batch in partitions])
        for name, topic_id, partitions in request.topics
    ]
    return request.transactional_id, request.acks, request.timeout_ms, rows


def fetch_parsers() -> list[Parser]:
    found = []
    for version in (4, 7, 11, 12, 13, 18):
        topic = (None, ID) if version >= 13 else ("orders", None)
        request = FetchRequest(5, 1, [(*topic, [FetchPartition(0, -1, 7, -1, 0, 100)])], rack_id="")
        answer = encode_fetch_response(version, [(*topic, [FetchResult(0, 0, 9, 9, 0, records=(b"batch",))])])
        found += [
            Parser(
                f"Fetch request v{version}",
                encode_fetch_request(version, request),
                lambda data, version=version: decode_fetch_request(version, data),
            ),
            Parser(
                f"Fetch response v{version}",
                joined(answer),
                lambda data, version=version: _fetch_response(version, data),
            ),
        ]
    return found


def _fetch_response(version: int, data: bytes) -> Any:
    response = decode_fetch_response(version, data)
    return [
        (name, topic_id, [row._replace(records=(joined(row.records),)) for row in rows])
        for name, topic_id, rows in response.topics
    ]


def message_parsers() -> list[Parser]:
    found = []
    for key, served in {**CONTROLLER_APIS, **BROKER_APIS}.items():
        if key in (ApiKey.PRODUCE, ApiKey.FETCH):
            continue
        for version in {served.min, served.max}:
            request = messages.encode_request(key, version, filled(messages.request_class(key)))
            answer = messages.encode_response(key, version, filled(messages.response_class(key)))
            found += [
                Parser(
                    f"{key.name} request v{version}",
                    request,
                    lambda data, key=key, version=version: messages.decode_request(key, version, data),
                ),
                Parser(
                    f"{key.name} response v{version}",
                    answer,
                    lambda data, key=key, version=version: messages.decode_response(key, version, data),
                ),
            ]
    return found


def with_block(batch: bytes, block: bytes) -> bytes:
    """Return the batch with other bytes as its records, and a matching header and CRC."""
    data = bytearray(batch[:61] + block)
    header = read_header(batch)
    pack_header(data, 0, header._replace(batch_length=len(data) - 12))
    write_crc(data, 0)
    return bytes(data)


BATCH = bytes(encode_batch([RECORD]))
MARKER = bytes(encode_control(ControlRecord(type=ControlRecordType.COMMIT, coordinator_epoch=3), timestamp_ms=5))
SNAPSHOT = encode_producers([SnapshotEntry(7, 0, 5, 9, 2, 1_000, -1, -1)])


def whole_snapshot(data: bytes) -> Any:
    entries = decode_producers(data)
    if entries is None:
        raise StorageCorrupt("no snapshot")
    return entries


OTHERS = [
    Parser("event", encode_event(Topic("orders", ID)), decode_event, WireError),
    Parser("internal message", encode_rpc(HeartbeatRequest(broker_id=1, broker_epoch=2, metadata_offset=3)),
           lambda data: decode_rpc(HeartbeatRequest, 0, data), WireError),
    Parser("batch", BATCH, decode_batch),
    Parser("records of a batch", BATCH[61:], lambda data: decode_batch(with_block(BATCH, data)), WireError),
    Parser("control batch", MARKER, decode_control),
    Parser("unsigned varint", encode_unsigned(300), lambda data: read_unsigned(data, 0)),
    Parser("signed varint", encode_zigzag(-300), lambda data: read_zigzag(data, 0)),
    Parser("tagged fields", b"\x01" + tagged(3, b"abc"), lambda data: _tags(data)),
    Parser("offset checkpoint", encode_offsets({("orders", 0): 5}), decode_offsets, BadCheckpoint),
    Parser("epoch checkpoint", EpochCache([(0, 0), (2, 9)]).encode(),
           lambda data: EpochCache.decode(data, "f").encode(), StorageCorrupt),
    Parser("producer snapshot", SNAPSHOT, whole_snapshot, StorageCorrupt),
    Parser("quorum state", QuorumState(leader_epoch=4).encode(), lambda data: QuorumState.decode(data, "f"),
           StorageCorrupt),
]  # fmt: skip

for codec in Compression:
    if codec is not Compression.NONE:
        OTHERS.append(
            Parser(
                f"{codec.name.lower()} block",
                compress(codec, b"some bytes " * 20),
                lambda data, codec=codec: decompress(codec, data, output_bytes_max=1 << 20),
                None if codec is Compression.LZ4 else WireError,  # an LZ4 frame defines its own end
            )
        )

PARSERS = [*produce_parsers(), *fetch_parsers(), *message_parsers(), *OTHERS]


def _tags(data: bytes) -> Any:
    tags, position = read_tagged(memoryview(data), 0)
    return {tag: bytes(value) for tag, value in tags.items()}, position


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_trailing_bytes_are_ignored_or_refused_as_the_format_specifies(parser: Parser) -> None:
    whole = parser.parse(parser.data)
    for trailing in TRAILING:
        if parser.refusal is None:
            assert parser.parse(parser.data + trailing) == whole
        else:
            with pytest.raises(parser.refusal):
                parser.parse(parser.data + trailing)


def test_trailing_lines_in_properties_files_have_no_effect() -> None:
    data = MetaProperties("c", 7, UUID(int=1 << 100)).encode()
    assert MetaProperties.decode(data + b"trailing bytes\n", "f") == MetaProperties.decode(data, "f")
    assert parse_properties("a=b\n\n\n# nothing more") == {"a": "b"}


def test_bytes_after_a_batch_begin_the_next_batch() -> None:
    assert [position for position, _ in iter_headers(BATCH + BATCH)] == [0, len(BATCH)]
    assert [position for position, _ in iter_headers(BATCH + BATCH[:-1])] == [0]
