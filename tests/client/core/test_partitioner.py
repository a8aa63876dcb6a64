"""The partitioner: a key's partition equals that of other Kafka clients, and records without a key stick to one
partition at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kraft.client.core.partitioner import StickyPartitioner, murmur2, partition_for_key

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}
"""Expected hashes of keys, computed by Kafka's own clients, as signed integers."""
BATCH = 1_000


@pytest.mark.parametrize("key", KNOWN)
def test_murmur2_equals_that_of_kafkas_clients(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] & 0xFFFFFFFF


@pytest.mark.parametrize("key", KNOWN)
@pytest.mark.parametrize("partitions", [1, 3, 64])
def test_a_key_goes_to_its_hash_without_the_sign_bit_modulo_the_partitions(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (KNOWN[key] & 0x7FFFFFFF) % partitions


def test_keys_of_every_length_get_a_valid_partition() -> None:
    assert {partition_for_key(bytes(range(length)), 7) for length in range(40)} == set(range(7))


def sticky(draw: Callable[[int], int], waiting: dict[int, int] | None = None) -> StickyPartitioner:
    queues = waiting or {}
    return StickyPartitioner(draw, lambda _topic, partition: queues.get(partition, 0), BATCH)


def drawn(made: StickyPartitioner, topic: str = "orders", partitions: tuple[int, ...] = (0, 1, 2)) -> int:
    chosen = made.current(topic)
    return made.draw(topic, partitions) if chosen is None else chosen


def test_records_without_a_key_stick_to_a_partition_for_batch_size_bytes() -> None:
    draws = iter([2, 0])
    made = sticky(lambda bound: next(draws))
    assert drawn(made) == 2
    made.sent("orders", 2, BATCH - 1, completes_batch=True)
    assert drawn(made) == 2
    made.sent("orders", 2, 1, completes_batch=True)
    assert drawn(made) == 0


def test_the_sticky_partition_changes_after_a_complete_batch_or_twice_batch_size() -> None:
    draws = iter([2, 0])
    made = sticky(lambda bound: next(draws))
    drawn(made)
    made.sent("orders", 2, 2 * BATCH - 1, completes_batch=False)
    assert drawn(made) == 2
    made.sent("orders", 2, 1, completes_batch=False)
    assert drawn(made) == 0


def test_records_for_other_partitions_do_not_change_the_sticky_partition() -> None:
    made = sticky(lambda bound: 0)
    assert drawn(made) == 0
    made.sent("orders", 1, 10 * BATCH, completes_batch=True)
    made.forget("orders", 1)
    made.sent("payments", 0, 10 * BATCH, completes_batch=True)
    assert made.current("orders") == 0


def test_partitions_with_fewer_waiting_bytes_are_drawn_more_often() -> None:
    waiting = {0: 3 * BATCH, 1: 0, 2: BATCH}
    counts = Counter(drawn(sticky(lambda bound, at=at: at, waiting)) for at in range(1 + 4 + 3))
    assert counts == {0: 1, 1: 4, 2: 3}


def test_the_sticky_partition_is_dropped_when_it_loses_its_leader() -> None:
    made = sticky(lambda bound: 0)
    assert drawn(made) == 0
    made.forget("orders", 0)
    assert drawn(made, partitions=(1, 2)) == 1


def test_each_topic_has_its_own_sticky_partition() -> None:
    draws = iter([0, 1])
    made = sticky(lambda bound: next(draws))
    assert (drawn(made), drawn(made, "payments"), drawn(made)) == (0, 1, 0)
