"""How many records of a log batch are delivered together, when some of them have few deliveries left.

A record that crashes each of its members uses up the deliveries of all records that are delivered with it. From half of
the limit on, each further delivery of a record halves the portion, and its last delivery has no other record. So the
others are processed before their last delivery, or by it.
Source: Kafka's SharePartition (KAFKA-17541).
"""

from __future__ import annotations

from collections.abc import Iterable

WHOLE_DELIVERIES_MIN = 2
"""Deliveries of a record that are never divided, whatever the limit is."""


def portion_of(available: Iterable[tuple[int, int]], size: int, delivery_count_max: int) -> int | None:
    """Return the number of available records that a member gets of a log batch; None for all.

    `available` has the (number, delivery count) of neighbouring records with the same count, in ascending order of
    offsets, and `size` is the number of offsets in the whole log batch, so that portions do not become smaller while a
    batch is read to its end."""
    divided_from = max(WHOLE_DELIVERIES_MIN, (delivery_count_max + 1) // 2)
    taken, portion = 0, None
    for number, count in available:
        if delivery_count_max > WHOLE_DELIVERIES_MIN and count >= delivery_count_max - 1:
            return taken or 1
        if portion is None and count >= divided_from:
            portion = max(1, size >> (count - divided_from + 1))
        if portion is not None and taken + number >= portion:
            return max(taken, portion)
        taken += number
    return None if portion is None else taken
