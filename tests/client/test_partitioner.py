"""Where records go: keys as every Kafka client sends them, records without a key stick to one partition at a time."""

from __future__ import annotations

import pytest

from kraft.client.core.partitioner import StickyPartitioner, murmur2, partition_for_key

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Hashes that Kafka's own clients give, as signed integers."""


@pytest.mark.parametrize("key", KNOWN)
def test_murmur2_is_the_one_of_kafkas_clients(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] & 0xFFFFFFFF


@pytest.mark.parametrize("key", KNOWN)
@pytest.mark.parametrize("partitions", [1, 3, 64])
def test_a_key_goes_to_its_hash_without_the_sign_bit_modulo_the_partitions(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (KNOWN[key] & 0x7FFFFFFF) % partitions


def test_keys_of_every_length_have_a_partition() -> None:
    assert {partition_for_key(bytes(range(length)), 7) for length in range(40)} == set(range(7))


def test_records_without_a_key_stick_to_one_partition_until_its_batch_is_closed() -> None:
    sticky = StickyPartitioner(lambda bound: bound - 1)
    assert [sticky.partition("orders", [0, 1, 2]) for _ in range(3)] == [2, 2, 2]
    sticky.batch_closed("orders", 2, [0, 1, 2])
    assert sticky.partition("orders", [0, 1, 2]) == 1


def test_another_partitions_closed_batch_changes_nothing() -> None:
    sticky = StickyPartitioner(lambda bound: 0)
    assert sticky.partition("orders", [0, 1]) == 0
    sticky.batch_closed("orders", 1, [0, 1])
    assert sticky.partition("orders", [0, 1]) == 0


def test_a_partition_that_lost_its_leader_is_left() -> None:
    sticky = StickyPartitioner(lambda bound: 0)
    assert sticky.partition("orders", [0, 1]) == 0
    assert sticky.partition("orders", [1]) == 1


def test_the_only_partition_is_kept() -> None:
    sticky = StickyPartitioner(lambda bound: 0)
    assert sticky.partition("orders", [4]) == 4
    sticky.batch_closed("orders", 4, [4])
    assert sticky.partition("orders", [4]) == 4


def test_topics_stick_independently() -> None:
    draws = iter([0, 1])
    sticky = StickyPartitioner(lambda bound: next(draws))
    assert (sticky.partition("orders", [0, 1]), sticky.partition("payments", [0, 1])) == (0, 1)
