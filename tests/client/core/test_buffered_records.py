"""Taking records from decoded batches, compared with the batches' records in one list."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.buffered_records import damaged_batch, take_records
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

DAMAGED = -1
"""The size of a damaged batch."""


@dataclass
class Buffer:
    """Batches of these sizes, whose records are numbered from 0 on."""

    sizes: list[int]
    records: list[int] = field(default_factory=list)
    decoded: int = 0

    def open_next(self) -> bool:
        if not self.sizes:
            return False
        if self.sizes[0] == DAMAGED:
            raise WireError("the batch fails its CRC-32C")
        end = self.decoded + self.sizes.pop(0)
        self.records = list(reversed(range(self.decoded, end)))
        self.decoded = end
        return True


@given(st.lists(st.integers(1, 6)), st.lists(st.integers(0, 9)))
def test_records_are_taken_in_order_and_none_is_lost_at_the_end_of_a_batch(sizes: list[int], counts: list[int]) -> None:
    buffer = Buffer(list(sizes))
    every = list(range(sum(sizes)))
    for count in counts:
        assert take_records(buffer, buffer.open_next, count) == every[:count]
        del every[:count]
    assert take_records(buffer, buffer.open_next, len(every) + 1) == every


def test_no_batch_is_decoded_before_its_records_are_needed() -> None:
    buffer = Buffer([2, 2])
    assert take_records(buffer, buffer.open_next, 2) == [0, 1]
    assert buffer.sizes == [2]


@given(st.lists(st.integers(1, 6)), st.integers(1, 40))
def test_records_before_a_damaged_batch_are_taken_before_the_damage_is_raised(sizes: list[int], count: int) -> None:
    buffer = Buffer([*sizes, DAMAGED, 3])
    taken: list[int] = []
    while len(taken) < sum(sizes):
        taken += take_records(buffer, buffer.open_next, count)
    assert taken == list(range(sum(sizes)))
    with pytest.raises(WireError):
        take_records(buffer, buffer.open_next, count)


def test_the_error_of_a_damaged_batch_names_its_partition_once_and_what_becomes_of_it() -> None:
    for text in ("orders-0: the batch at offset 7 fails its CRC-32C", "the batch at offset 7 fails its CRC-32C"):
        damage = WireError(text)
        error = damaged_batch(("orders", 0), damage, "It is fetched again")
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert error.message == "orders-0: the batch at offset 7 fails its CRC-32C. It is fetched again"
        assert error.__cause__ is damage
