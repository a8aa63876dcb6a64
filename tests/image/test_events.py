"""Events as bytes: round trips, append-only fields, unknown versions, and the golden files of every release."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest

from kraft.image import Endpoint, FeatureRange, UnknownEvent, decode_event, encode_event
from kraft.image.events import (
    BY_CLASS,
    BY_NUMBER,
    EVENT_VERSIONS_BY_METADATA_VERSION,
    BrokerRegistrationChange,
    ClearElr,
    ClusterIdentity,
    Config,
    Event,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
    UnregisterBroker,
    written_version,
)
from kraft.seam import WireError
from tests.stages.tables import replace_row

GOLDEN = Path(__file__).parent / "golden"

A, B, C = UUID(int=(1 << 100) + 1), UUID(int=(1 << 100) + 2), UUID(int=(1 << 100) + 3)

EXAMPLES: list[Event] = [
    ClusterIdentity("4L6g3nShT-eMCtK--X86sw"),
    FeatureLevel("metadata.version", 27, "0.1.0"),
    RegisterController(101, A, (Endpoint("CONTROLLER", "h", 9192),), (FeatureRange("metadata.version", 25, 27),)),
    RegisterBroker(
        1,
        B,
        7,
        (Endpoint("PLAINTEXT", "localhost", 9092), Endpoint("TLS", "::1", 9093, "SSL")),
        "rack a",
        "host a",
        True,
        False,
        (C,),
        (FeatureRange("metadata.version", 25, 27),),
    ),
    BrokerRegistrationChange(1, 7, fenced=False),
    BrokerRegistrationChange(1, 7, in_controlled_shutdown=True, log_dirs=(A, B)),
    Topic("orders", A),
    Partition(A, 0, (1, 2, 3), (1, 2), (3,), (), 1, 0, 4, 9, (B, B, C), (3,), ()),
    PartitionChange(A, 0, isr=(), leader=-1, elr=(1, 2), last_known_elr=(1,)),
    PartitionChange(A, 0, (1,), 1, (1, 2), (), (2,), 1, (B, C), (), ()),
    Config(2, "orders", "retention.ms", "1000"),
    Config(2, "orders", "retention.ms", None),
    ClearElr("orders"),
    ProducerIds(1, 7, 1000),
    NoOp(),
    RemoveTopic(A),
    UnregisterBroker(1, 7),
]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_event_round_trips_through_its_bytes(event: Event) -> None:
    assert decode_event(encode_event(event)) == event
    assert decode_event(memoryview(encode_event(event))) == event


def test_every_event_type_has_an_example() -> None:
    assert {type(event) for event in EXAMPLES} == set(BY_CLASS)


def test_event_is_one_msgpack_array_of_type_version_and_fields() -> None:
    assert msgpack.unpackb(encode_event(Topic("orders", A))) == [2, 0, "orders", A.bytes]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_unknown_trailing_fields_of_an_event_are_ignored(event: Event) -> None:
    row = msgpack.unpackb(encode_event(event))
    assert decode_event(msgpack.packb([*row, "from a newer release", 17])) == event


def test_missing_trailing_fields_of_an_event_get_their_defaults() -> None:
    row = msgpack.unpackb(encode_event(PartitionChange(A, 3, isr=(1,))))
    assert decode_event(msgpack.packb(row[:5])) == PartitionChange(A, 3, isr=(1,))


def test_unknown_event_type_or_version_raises_an_error_with_the_remedy() -> None:
    with pytest.raises(UnknownEvent, match=r"type 9999 version 0.*install pykraft"):
        decode_event(msgpack.packb([9999, 0]))
    with pytest.raises(UnknownEvent, match="type 2 version 77"):
        decode_event(msgpack.packb([2, 77, "orders", A.bytes]))


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x05", msgpack.packb([]), msgpack.packb([2]), msgpack.packb([2, 0, "orders", b"short"])],
)
def test_bytes_that_are_not_an_event_raise_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_event(data)


def test_event_without_a_required_field_raises_a_wire_error() -> None:
    with pytest.raises(WireError, match="type 2"):
        decode_event(msgpack.packb([2, 0, "orders"]))


def test_event_versions_are_written_only_from_their_metadata_version_on(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_row(monkeypatch, EVENT_VERSIONS_BY_METADATA_VERSION, 30, {2: 1})
    replace_row(monkeypatch, EVENT_VERSIONS_BY_METADATA_VERSION, 40, {3: 1})
    assert [written_version(Topic, level) for level in (27, 29, 30, 35, 40)] == [0, 0, 1, 1, 1]
    assert [written_version(Partition, level) for level in (30, 40)] == [0, 1]


def test_every_written_event_version_can_be_read() -> None:
    for table in EVENT_VERSIONS_BY_METADATA_VERSION.values():
        for number, version in table.items():
            assert version <= BY_NUMBER[number].max_version


def as_json(value: Any) -> Any:
    """Return an event's field in the form of the golden files."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, tuple):
        return [as_json(one) for one in value]
    return value


def described(event: Event) -> dict[str, Any]:
    names = [field.name for field in fields(event)]  # type: ignore[arg-type]
    return {"event": type(event).__name__, **{name: as_json(getattr(event, name)) for name in names}}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_events_written_by_any_earlier_release_are_still_read(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines
    for line in lines:
        wanted = line["value"]
        found = described(decode_event(bytes.fromhex(line["bytes"])))
        assert {name: found[name] for name in wanted} == wanted


def test_newest_golden_file_contains_every_event_of_this_release() -> None:
    """A new golden file is written by `python -m tests.image.write_golden NAME` when a release is made."""
    newest = max(GOLDEN.glob("*.jsonl"), key=lambda path: [int(one) for one in path.stem.split(".")])
    written = {json.loads(line)["bytes"] for line in newest.read_text().splitlines()}
    assert {encode_event(event).hex() for event in EXAMPLES} <= written
