"""Tests of the Arrow decoder of topic records on malformed bytes: it raises a WireError with topic, partition and
offset, or gives the same rows as the general record codec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.spark.topics.arrow_records import COLUMNS, to_arrow
from kraft.seam import Buffer, WireError
from kraft.wire.records import (
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    Compression,
    Record,
    encode_batch,
    iter_headers,
    pack_header,
    read_header,
    write_crc,
)
from kraft.wire.varints import encode_unsigned, encode_zigzag
from tests.client.spark.topics.record_logs import Log, Row, logs, plain_batch, rows_of_arrow, rows_of_log, walked

PLACE = r"topic orders, partition 3, from offset \d+ on: "


def rows_or_error(data: Buffer, *, check_crcs: bool = True) -> list[Row] | WireError:
    try:
        return rows_of_arrow(to_arrow([walked(data, 100, check_crcs=check_crcs)], COLUMNS))
    except WireError as error:
        if not re.match(PLACE, str(error)):
            raise
        return error


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def mixed_batch(base_offset: int, codec: Compression = Compression.NONE) -> bytes:
    """Return a batch of three records that together have every kind of field."""
    records = [
        Record(0, 5000, b"key", b"some value", (("name", b"content"), ("n", None))),
        Record(0, 4000, None, b"v" * 70),
        Record(0, 5100, b"", None, (("x", b""),)),
    ]
    return bytes(
        encode_batch(
            records,
            base_offset=base_offset,
            compression=codec,
            offsets=[base_offset, base_offset + 1, base_offset + 90],
        )
    )


@given(logs(), st.data())
def test_arrow_decoder_of_a_truncated_response_gives_the_rows_of_its_whole_batches(
    log: Log, data: st.DataObject
) -> None:
    cut = bytes(log.data[: data.draw(st.integers(0, len(log.data)))])
    whole = rows_of_log(cut)
    assert rows_or_error(cut) == whole
    assert whole == rows_of_log(log.data)[: len(whole)]


@pytest.mark.parametrize("codec", Compression)
def test_arrow_decoder_detects_every_flipped_bit_that_would_change_rows(codec: Compression) -> None:
    first, second = mixed_batch(100, codec), mixed_batch(191, codec)
    data = first + second
    fine = [[], rows_of_log(first), rows_of_log(data)]
    errors = 0
    for at in range(len(data)):
        for bit in range(8):
            rows = rows_or_error(flipped(data, at, bit))
            errors += isinstance(rows, WireError)
            if at % len(first) < 8 and not isinstance(rows, WireError):
                # the CRC does not cover the base offset, so offsets may be wrong, but the other columns are right
                assert {row[:4] for row in rows} <= {row[:4] for row in rows_of_log(data)}
            else:
                assert isinstance(rows, WireError) or rows in fine
    assert errors > 8 * (len(data) - 2 * BATCH_PREFIX_BYTES) - 64


"""The leader epoch alone, and lengths that cut the answer off, may pass."""


@pytest.mark.parametrize("batch_count", [1, 60], ids=["one batch", "many batches"])
def test_arrow_decoder_without_crc_check_gives_the_general_codecs_rows_for_flipped_bits_or_fails(
    batch_count: int,
) -> None:
    batches = [mixed_batch(100 + 91 * number) for number in range(batch_count)]
    wrong = batch_count // 2
    before, after = b"".join(batches[:wrong]), b"".join(batches[wrong + 1 :])
    outcomes = {True: 0, False: 0}
    for at in range(BATCH_HEADER_BYTES, len(batches[wrong])):
        for bit in range(8):
            data = before + flipped(batches[wrong], at, bit) + after
            rows = rows_or_error(data, check_crcs=False)
            outcomes[isinstance(rows, WireError)] += 1
            assert isinstance(rows, WireError) or rows == rows_of_log(data)
    assert min(outcomes.values()) > 100


@given(st.data(), st.sampled_from([1, 60]), st.integers(1, 4))
def test_arrow_decoder_gives_the_general_codecs_rows_for_overwritten_bytes_or_fails(
    data: st.DataObject, batch_count: int, changes: int
) -> None:
    log = bytearray(b"".join(mixed_batch(100 + 91 * number) for number in range(batch_count)))
    for position, header in list(iter_headers(log)):
        for _ in range(changes):
            at = data.draw(st.integers(BATCH_HEADER_BYTES, header.size_bytes - 1))
            log[position + at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
        if data.draw(st.booleans()):
            break
    rows = rows_or_error(log, check_crcs=False)
    assert isinstance(rows, WireError) or rows == rows_of_log(log)


def test_arrow_decoder_error_for_a_wrong_record_length_names_its_batch() -> None:
    good, broken = (
        plain_batch([b"v" * 50] * 600, base_offset=100),
        bytearray(plain_batch([b"v" * 50] * 600, base_offset=700)),
    )
    for bit in range(8):
        broken[BATCH_HEADER_BYTES] ^= 1 << bit
        with pytest.raises(WireError, match="from offset 700 on: "):
            to_arrow([walked(good + broken, check_crcs=False)], COLUMNS)
        broken[BATCH_HEADER_BYTES] ^= 1 << bit


def batch_of(
    *bodies: bytes, count: int | None = None, last_offset_delta: int | None = None, lengths: Sequence[int] = ()
) -> bytearray:
    """Return a batch with a correct CRC that has these bytes as its records."""
    sizes = lengths or [len(body) for body in bodies]
    block = b"".join(encode_zigzag(size) + body for size, body in zip(sizes, bodies, strict=True))
    header = read_header(encode_batch([Record(0, 1000, None, None)], base_offset=100))
    count = len(bodies) if count is None else count
    header = header._replace(
        batch_length=BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES + len(block),
        record_count=count,
        last_offset_delta=max(count - 1, 0) if last_offset_delta is None else last_offset_delta,
    )
    batch = bytearray(BATCH_HEADER_BYTES) + block
    pack_header(batch, 0, header)
    write_crc(batch, 0)
    return batch


ONE, TWO = b"\0\0\0\1\1\0", b"\0\0\2\1\1\0"
"""Records without key, value and headers, with offset deltas 0 and 1."""
NO_MORE = encode_unsigned(2**64 + 2)
WRONG = {
    "a length behind the block": batch_of(ONE, lengths=[7]),
    "a length before the body's end": batch_of(ONE, lengths=[5]),
    "a negative length": batch_of(ONE, lengths=[-6]),
    "a length of five bytes": batch_of(ONE, lengths=[2**31 - 1]),
    "a length of over five bytes": batch_of(ONE, lengths=[2**40]),
    "bytes behind the last record": batch_of(ONE, TWO, count=1),
    "fewer records than announced": batch_of(ONE, count=2),
    "far more records than bytes": batch_of(ONE, count=2**31 - 1),
    "records announced and none there": batch_of(count=1),
    "one byte of records": batch_of(b"", lengths=[0]),
    "a negative count": batch_of(ONE, count=-1, last_offset_delta=0),
    "more records than offsets": batch_of(ONE, TWO, last_offset_delta=0),
    "a negative last offset": batch_of(ONE, last_offset_delta=-1),
    "a key size below -1": batch_of(b"\0\0\0\3\1\0"),
    "a value size below -1": batch_of(b"\0\0\0\1\3\0"),
    "a key that leaves its record": batch_of(b"\0\0\0\4\1\0", TWO),
    "a value that leaves its record": batch_of(b"\0\0\0\1\4\0", TWO),
    "a value of 2 GiB": batch_of(b"\0\0\0\1" + encode_zigzag(2**31 - 1) + b"\0"),
    "a negative number of headers": batch_of(b"\0\0\0\1\1\1"),
    "more headers than bytes": batch_of(b"\0\0\0\1\1\4\0"),
    "a header without a name": batch_of(b"\0\0\0\1\1\2\1\1"),
    "a header value size below -1": batch_of(b"\0\0\0\1\1\2\0\3"),
    "a header that leaves its record": batch_of(b"\0\0\0\1\1\2\0\4", TWO),
    "a header name that is not UTF-8": batch_of(b"\0\0\0\1\1\2\2\xff\1"),
    "a size of six bytes": batch_of(b"\0\0\0\x80\x80\x80\x80\x80\0\1\0"),
    "a size of over 32 bits": batch_of(b"\0\0\0\xff\xff\xff\xff\x1f\1\0"),
    "a time of eleven bytes": batch_of(b"\0" + b"\x80" * 10 + b"\0\0\1\1\0"),
    "a time of over 64 bits": batch_of(b"\0" + b"\x80" * 9 + b"\2\0\1\1\0"),
    "deltas that leave the record": batch_of(b"\0\x80", TWO),
    "an offset twice": batch_of(ONE, ONE),
    "a falling offset": batch_of(TWO, ONE),
    "a negative offset delta": batch_of(b"\0\0\1\1\1\0"),
    "an offset behind the last one": batch_of(TWO),
}
"""Malformed records. The general record codec accepts some of these bytes, but Kafka itself never writes them."""


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("batch_count", [1, 60], ids=["one batch", "many batches"])
def test_arrow_decoder_rejects_a_batch_with_malformed_records(what: str, batch_count: int) -> None:
    fine = b"".join(plain_batch([b"v"], base_offset=number) for number in range(100 - batch_count + 1, 100))
    with pytest.raises(WireError, match=PLACE):
        to_arrow([walked(fine + WRONG[what])], COLUMNS)


def test_arrow_decoder_rejects_an_impossible_record_count_before_allocating() -> None:
    with pytest.raises(WireError, match=PLACE + "2147483647 records are announced in 7 bytes"):
        walked(batch_of(ONE, count=2**31 - 1))


@pytest.mark.parametrize("index", [0, 3, 40])
def test_arrow_decoder_detects_a_broken_record_header_even_if_headers_are_not_requested(index: int) -> None:
    bodies = [b"\0\0" + encode_zigzag(number) + b"\1\1\2\2h\2v" for number in range(50)]
    bodies[index] = bodies[index][:-4] + b"\1\4hv"
    data = batch_of(*bodies)
    with pytest.raises(WireError, match=f"from offset 100 on: record {index} of the batch is damaged"):
        to_arrow([walked(data)], ["value"])


def test_arrow_decoder_reads_varints_that_are_padded_with_unneeded_bytes() -> None:
    body = b"\0" + b"\x80" * 9 + b"\0" + b"\x80\x80\x80\x80\0" + b"\x82\x80\0k" + b"\x84\0vw" + b"\x80\0"
    data = batch_of(body)
    rows = rows_or_error(data)
    assert rows == rows_of_log(data)
    assert isinstance(rows, list)
    assert rows[0][:2] == (b"k", b"vw")


def test_arrow_decoder_rejects_an_out_of_range_timestamp_only_if_it_is_requested() -> None:
    time = (2**63 - 1) // 1000 + 1
    for items in ([time], [time, 5], [5, time], [-time], [2**62, 2**62 + 1]):
        data = encode_batch([Record(0, each, None, b"v") for each in items], base_offset=100)
        with pytest.raises(WireError, match=PLACE + r"record \d of the batch.*leave that column out"):
            to_arrow([walked(data)], COLUMNS)
        assert to_arrow([walked(data)], ["value"]).num_rows == len(items)
    data = encode_batch([Record(0, 5, None, None), Record(0, time, None, None)], base_offset=100)
    assert to_arrow([walked(data, 100, 101)], COLUMNS).num_rows == 1


def test_arrow_decoder_rejects_overlapping_batches() -> None:
    first = plain_batch([b"a", b"b"], base_offset=100)
    for base_offset in (99, 100, 101):
        with pytest.raises(WireError, match=PLACE + "a batch begins at offset"):
            walked(first + plain_batch([b"c"], base_offset=base_offset))


def test_arrow_decoder_error_for_a_wrong_crc_names_the_batch_unless_crc_checks_are_off() -> None:
    data = bytearray(plain_batch([b"a"], base_offset=100) + plain_batch([b"b"], base_offset=101))
    data[-2] ^= 1
    with pytest.raises(WireError, match="from offset 101 on: the batch at offset 101 fails its CRC-32C"):
        walked(data)
    assert walked(data, check_crcs=False).record_count == 2


def test_arrow_decoder_rejects_a_wrong_magic_codec_or_marker() -> None:
    data = bytearray(plain_batch([b"a"]))
    data[16] = 1
    with pytest.raises(WireError, match=PLACE + ".*magic 1"):
        walked(data)
    header = read_header(plain_batch([b"a"]))._replace(attributes=5)
    data = bytearray(plain_batch([b"a"]))
    pack_header(data, 0, header)
    with pytest.raises(WireError, match="from offset 100 on: compression codec 5"):
        to_arrow([walked(data, check_crcs=False)], COLUMNS)
    marker = bytearray(encode_batch([Record(0, 0, None, None)], base_offset=100, producer_id=7, control=True))
    with pytest.raises(WireError, match=PLACE + "the control record at offset 100 has no key"):
        walked(marker, aborted=[(7, 100)])


def test_arrow_decoder_rejects_a_block_that_decompresses_to_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.client.spark.topics.decoding.opening.OUTPUT_BYTES_MAX", 1000)
    data = plain_batch([b"v" * 1001], compression=Compression.GZIP)
    with pytest.raises(WireError, match=PLACE + "a compressed batch opens to more than 1000 bytes"):
        to_arrow([walked(data)], COLUMNS)


def test_arrow_decoder_reads_many_headers_of_one_record_in_order() -> None:
    headers = tuple((f"name {number}", b"%d" % number) for number in range(3000))
    data = encode_batch([Record(0, 5, b"k", b"v", headers), Record(0, 5, None, None)], base_offset=100)
    assert rows_or_error(data) == rows_of_log(data)
