"""Compute which partition of an internal topic stores a key; the leader of that partition is the key's coordinator.

Every Kafka client and broker must agree, so the hash is Java's `String.hashCode`, over UTF-16 code units.
Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import struct


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: a signed 32-bit number."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition that stores `key`. The smallest 32-bit hash value, whose absolute value does not fit into 32
    bits, counts as 0."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
