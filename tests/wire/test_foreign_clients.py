"""Batches of librdkafka, kafka-python and aiokafka decode here to the same records, and these libraries decode ours to
the same records.
"""

from __future__ import annotations

import contextlib
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.wire.api_keys import ApiKey
from kraft.wire.records import (
    BatchHeader,
    Compression,
    Record,
    check_crc,
    check_records,
    decode_batch,
    encode_batch,
    first_batch,
    open_records,
    read_header,
    validate_produce_batch,
)
from tests.wire.fake_broker import TOPIC, FakeBroker
from tests.wire.foreign import aiokafka, kafka
from tests.wire.strategies import NULLABLE_BYTES, records

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

CODECS = [codec.name.lower() for codec in Compression]
KAFKA_PYTHON_CODECS = [codec for codec in CODECS if codec == "none" or getattr(kafka.codec, f"has_{codec}")()]
SECONDS = 20.0

ITEMS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("name", b"content"), ("null", None))),
    Record(1, 1_700_000_000_001, None, None),
    Record(2, 1_700_000_000_002, b"", b""),
    Record(3, 1_700_000_000_003, b"long", b"0123456789" * 3000),
    Record(4, 1_700_000_000_004, b"k", bytes(range(256)) * 20, (("ü", b"\xff"),) * 3),
]


def of_batches(batches: list[bytes]) -> list[Record]:
    """Return every record of the log; check each batch as a leader does (except the offset, which the fake broker has
    set)."""
    found = []
    for batch in batches:
        header = read_header(batch)
        assert check_crc(batch, 0, header)
        client_sent = bytearray(batch)
        client_sent[:8] = bytes(8)
        header = first_batch(client_sent)  # type: ignore[assignment]
        assert isinstance(header, BatchHeader)
        assert validate_produce_batch(client_sent, header, is_log_append_time=False, max_message_bytes=1 << 20) is None
        assert isinstance(check_records(open_records(client_sent, 0, header, output_bytes_max=1 << 24), header), int)
        found += decode_batch(batch)
    return found


def comparable(items: list[Record]) -> list[tuple[Any, ...]]:
    return [tuple(item) for item in items]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_librdkafka_are_decoded(codec: str) -> None:
    with FakeBroker(shows_groups=True) as broker:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "compression.type": codec, "linger.ms": 50, "acks": "all"}
        )
        for item in ITEMS * 3:
            producer.produce(
                TOPIC, item.value, item.key, 0, timestamp=item.timestamp, headers=[*map(tuple, item.headers)]
            )
        assert producer.flush(SECONDS) == 0
        found = of_batches(broker.batches)
    expected = [item._replace(offset=index) for index, item in enumerate(ITEMS * 3)]
    assert comparable(found) == comparable(expected)
    assert {read_header(batch).compression.name.lower() for batch in broker.batches} == {codec}
    assert (ApiKey.PRODUCE, 10) in broker.versions


def test_an_idempotent_librdkafka_producer_sends_sequence_numbers() -> None:
    with FakeBroker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
        for number in range(5):
            producer.produce(TOPIC, b"%d" % number, partition=0)
            assert producer.flush(SECONDS) == 0
    headers = [read_header(batch) for batch in broker.batches]
    assert [header.base_sequence for header in headers] == list(range(5))
    assert {header.producer_id for header in headers} == {4000}


@pytest.mark.parametrize("codec", Compression)
def test_librdkafka_reads_our_batches(codec: Compression) -> None:
    with FakeBroker() as broker:
        for _ in range(3):
            broker.append(encode_batch(ITEMS, compression=codec))
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.address, "group.id": "none", "check.crcs": True, "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found = []
        while len(found) < 15:
            message = consumer.poll(SECONDS)
            assert message is not None, "librdkafka reads nothing more"
            assert message.error() is None
            headers = tuple((name, value) for name, value in message.headers() or ())
            found.append(Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
        consumer.close()
    expected = [item._replace(offset=index) for index, item in enumerate(ITEMS * 3)]
    assert comparable(found) == comparable(expected)
    assert (ApiKey.FETCH, 16) in broker.versions


def expressible_by_kafka_python(item: Record) -> bool:
    """Return whether kafka-python can send the record: its producer refuses records without key and value, and null
    header values."""
    return item != ITEMS[1] and all(value is not None for _, value in item.headers)


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_batches_of_kafka_python_are_decoded_and_it_reads_them_back(codec: str) -> None:
    items = [item._replace(offset=index) for index, item in enumerate(filter(expressible_by_kafka_python, ITEMS))]
    with FakeBroker() as broker:
        compression = None if codec == "none" else codec
        producer = kafka.KafkaProducer(bootstrap_servers=broker.address, compression_type=compression, linger_ms=20)
        with contextlib.closing(producer):
            sent = [producer.send(TOPIC, item.value, item.key, list(item.headers), 0, item.timestamp) for item in items]
            assert [future.get(SECONDS).offset for future in sent] == [item.offset for item in items]
        found = of_batches(broker.batches)
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.address, consumer_timeout_ms=int(SECONDS * 1000))
        with contextlib.closing(consumer):
            partition = kafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            messages = [next(consumer) for _ in items]
    read = [Record(m.offset, m.timestamp, m.key, m.value, tuple(m.headers)) for m in messages]
    assert comparable(found) == comparable(items)
    assert comparable(read) == comparable(items)


Items = list[Record]
NAMED = st.lists(st.tuples(st.text(max_size=5), NULLABLE_BYTES), max_size=2).map(tuple)
KAFKA_PYTHON_NUMBERS = [int(Compression.named(codec)) for codec in KAFKA_PYTHON_CODECS]


def stamped(items: Items) -> Items:
    """Replace missing timestamps by 0, as foreign libraries would fill in the present time."""
    return [item._replace(timestamp=max(item.timestamp, 0)) for item in items]


@given(records(), st.sampled_from(KAFKA_PYTHON_NUMBERS))
def test_kafka_pythons_batch_builder_and_ours_encode_the_same_records(items: Items, codec: int) -> None:
    items = stamped(items)
    builder = kafka.record.memory_records.MemoryRecordsBuilder(2, codec, 1 << 24)
    for item in items:
        builder.append(item.timestamp, item.key, item.value, list(item.headers))
    builder.close()
    theirs = bytearray(builder.buffer())
    assert of_batches([bytes(theirs)]) == items
    ours = encode_batch(items, compression=Compression(codec))
    batch = kafka.record.memory_records.MemoryRecords(bytes(ours)).next_batch()
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == items


@given(records(), st.sampled_from(Compression))
def test_aiokafkas_batch_builder_and_ours_encode_the_same_records(items: Items, codec: Compression) -> None:
    items = stamped(items)
    builder = aiokafka.record.default_records.DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 24)
    for index, item in enumerate(items):
        builder.append(index, item.timestamp, item.key, item.value, list(item.headers))
    assert of_batches([bytes(builder.build())]) == items
    ours = encode_batch(items, compression=codec)
    batch = aiokafka.record.memory_records.MemoryRecords(bytes(ours)).next_batch()
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == items
