"""The walk over the records of a batch: compiled and interpreted, from one source, with the same results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import WireError
from kraft.wire import record_walk
from kraft.wire.records import Record, decode_batch, encode_batch
from kraft.wire.varints import encode_zigzag
from tests.wire.strategies import records

SOURCE = Path(__file__).resolve().parents[2] / "kraft" / "wire" / "record_walk.py"
LARGEST = 2**63 - 1
N = encode_zigzag
Result = tuple[int, int, list[int], list[tuple[int, int]]]


def interpreted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interpreted_record_walk", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INTERPRETED = interpreted()
BUILDS = [pytest.param(INTERPRETED, id="interpreted")]
if record_walk.__file__ != str(SOURCE):
    BUILDS.append(pytest.param(record_walk, id="compiled"))
every_build = pytest.mark.parametrize("build", BUILDS)


def walk(
    build: ModuleType,
    block: bytes,
    count: int,
    *,
    earliest: int = -LARGEST - 1,
    latest: int = LARGEST,
    exempt: int = -1,
    keys_required: bool = False,
) -> Result:
    found: Result = build.walk_records(block, count, earliest, latest, exempt, keys_required)
    return found


def body(*fields: bytes) -> bytes:
    content = b"\0" + b"".join(fields)
    return N(len(content)) + content


def record(offset: int = 0, timestamp: int = 0, key: bytes | None = b"k") -> bytes:
    sized_key = N(-1) if key is None else N(len(key)) + key
    return body(N(timestamp), N(offset), sized_key, N(1), b"v", N(0))


def test_compiled_record_walk_is_newer_than_its_source() -> None:
    compiled = Path(str(record_walk.__file__))
    assert compiled.stat().st_mtime >= SOURCE.stat().st_mtime, "run `make setup`: the source has changed"


@every_build
@given(items=records())
def test_record_walk_returns_the_extreme_timestamp_deltas(build: ModuleType, items: list[Record]) -> None:
    base = items[0].timestamp
    deltas = [item.timestamp - base for item in items]
    keyless = [index for index, item in enumerate(items) if item.key is None]
    found = walk(build, bytes(encode_batch(items)[61:]), len(items), keys_required=True)
    assert found == (min(deltas), max(deltas), keyless, [])


@every_build
def test_record_walk_lists_records_outside_the_time_bounds_unless_exempt_or_keyless(build: ModuleType) -> None:
    block = b"".join(record(index, delta) for index, delta in enumerate((-3, -2, 0, 5, 6, 77)))
    bounds = {"earliest": -2, "latest": 5, "exempt": 77}
    assert walk(build, block, 6, **bounds) == (-3, 77, [], [(0, -3), (4, 6)])  # type: ignore[arg-type]
    block += record(6, 9, None)
    assert walk(build, block, 7, keys_required=True, **bounds) == (-3, 77, [6], [(0, -3), (4, 6)])  # type: ignore[arg-type]
    assert walk(build, block, 7, **bounds) == (-3, 77, [], [(0, -3), (4, 6), (6, 9)])  # type: ignore[arg-type]


@every_build
def test_record_walk_lists_a_bounded_number_of_bad_records(build: ModuleType) -> None:
    count = build.RECORD_ERRORS_MAX + 5
    keyless = b"".join(record(index, 0, None) for index in range(count))
    assert len(walk(build, keyless, count, keys_required=True)[2]) == build.RECORD_ERRORS_MAX
    assert len(walk(build, keyless, count, latest=-1, exempt=1)[3]) == build.RECORD_ERRORS_MAX


@every_build
@pytest.mark.parametrize("delta", [-LARGEST - 1, -LARGEST, -1, 0, 63, 64, 2**32, LARGEST])
def test_record_walk_reads_any_64_bit_timestamp_delta(build: ModuleType, delta: int) -> None:
    assert walk(build, record(0, delta), 1) == (delta, delta, [], [])


HEADERS_GOOD = (N(0), N(0), N(-1), N(-1), N(2), N(1), b"h", N(-1), N(0), N(2), b"xy")


@every_build
def test_record_walk_reads_record_headers(build: ModuleType) -> None:
    assert walk(build, body(*HEADERS_GOOD) + record(1), 2) == (0, 0, [], [])


@every_build
def test_record_walk_ends_at_too_many_record_headers(build: ModuleType) -> None:
    full = body(N(0), N(0), N(-1), N(-1), N(build.HEADERS_MAX), b"\0\1" * build.HEADERS_MAX)
    assert walk(build, full, 1) == (0, 0, [], [])
    with pytest.raises(OverflowError, match="the 1 headers of record 1 are more than the 0 left"):
        walk(build, full + body(N(0), N(1), N(-1), N(-1), N(1), b"\0\1"), 2)
    with pytest.raises(OverflowError, match="the 1000001 headers of record 0 are more than the 1000000 left"):
        walk(build, body(N(0), N(0), N(-1), N(-1), N(build.HEADERS_MAX + 1), b"\0\1" * (build.HEADERS_MAX + 1)), 1)


@every_build
@pytest.mark.parametrize(
    ("block", "count", "why"),
    [
        (b"", 1, "runs past the end"),
        (record(0) + record(1), 1, "left over"),
        (record(0) + record(1), 3, "runs past the end"),
        (record(0) + record(1) + b"\0\0\0", 2, "left over"),
        (record(0) + record(1)[:-2], 2, "announces"),
        (N(-5) + record(0)[1:], 1, "announces -5 bytes"),
        (record(0) + record(2), 2, "offset delta 2"),
        (record(-1), 1, "offset delta -1"),
        (body(N(0), N(0), N(100), b"k", N(0), N(0)), 1, "runs past"),
        (body(N(0), N(0), N(-1), N(2**31 - 1), N(0)), 1, "runs past"),
        (body(N(0), N(0), N(0), N(0), N(0), b"?"), 1, "its fields have"),
        (body(N(0), N(0), N(0), N(1), N(0)) + record(1), 2, "announces"),
        (body(N(0), N(0), N(0), N(0), N(-1)), 1, "announces -1 headers"),
        (body(N(0), N(0), N(0), N(0), N(2**31 - 1)), 1, "headers in 0 bytes"),
        (body(N(0), N(0), N(0), N(0), N(1), N(-1), N(0)), 1, "has no name"),
        (body(N(0), N(0), N(0), N(0), N(1), N(100), b"x" * 10), 1, "runs past"),
        (body(N(0), N(0), N(0), N(0), N(1), N(0), N(9)) + record(1), 2, "its fields have"),
        (b"\xff\xff\xff\xff\x7f" + bytes(9), 1, "too long"),
        (b"\xff\xff\xff\xff\xff\x01" + bytes(9), 1, "too long"),
        (body(b"\xff" * 9 + b"\x02", N(0), N(0), N(0), N(0)), 1, "too long"),
        (body(b"\xff" * 10 + b"\x01", N(0), N(0), N(0), N(0)), 1, "too long"),
    ],
)
def test_record_walk_refuses_a_block_that_contradicts_its_header_with_the_reason(
    build: ModuleType, block: bytes, count: int, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        walk(build, block, count)


@given(records(), st.data())
def test_compiled_walk_interpreted_walk_and_decoder_agree_on_damaged_blocks(
    items: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(items)
    for _ in range(data.draw(st.integers(0, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    block = bytes(batch[61:])
    verdicts: list[Result | str] = []
    for build in (INTERPRETED, record_walk):
        try:
            verdicts.append(walk(build, block, len(items), keys_required=True))
        except ValueError as refused:
            verdicts.append(str(refused))
    assert verdicts[0] == verdicts[1]
    try:
        decoded = decode_batch(batch)
    except WireError:
        assert isinstance(verdicts[0], str)
        return
    in_order = [record.offset for record in decoded] == list(range(len(items)))
    assert isinstance(verdicts[0], str) is not in_order
