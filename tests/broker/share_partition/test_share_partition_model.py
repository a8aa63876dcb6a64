"""SharePartition does the same as a plain model that keeps each record by itself, whatever happens in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.broker.share_partition.log_ranges import LogRange
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import AcknowledgementBatch, RecordState, ShareLimits, StateWrite
from tests.broker.share_partition.plain_model import PlainRecord, PlainSharePartition

LIMITS = ShareLimits(record_locks_max=12, lock_duration_ms=100)
MEMBERS = ("m1", "m2")
OFFSETS = st.integers(0, 12)
AHEAD = st.integers(-2, 8)
"""First offset of an acknowledgement, counted from the start offset."""
TYPES = st.integers(0, 4)


class Pair:
    """The share partition and its model, which get the same calls."""

    def __init__(self, deliveries_max: int) -> None:
        limits = LIMITS._replace(delivery_count_max=deliveries_max)
        self.real = SharePartition(state_epoch=1, leader_epoch=2, start_offset=3, limits=limits)
        self.plain = PlainSharePartition(3, limits)
        self.now_ms = 0
        self.open: list[int] = []

    def acquire(self, member: str, sizes: list[tuple[int, bool]], most: int, *, strict: bool) -> None:
        first = self.real.fetch_offset
        ranges = []
        for size, deliverable in sizes:
            ranges.append(LogRange(first, first + size, deliverable))
            first += size
        batches = self.real.acquire(member, ranges, most, self.now_ms, is_strict=strict)
        got = [(offset, one.delivery_count) for one in batches for offset in range(one[0], one[1] + 1)]
        assert got == self.plain.acquire(member, ranges, most, self.now_ms, strict=strict)

    def acknowledge(self, member: str, first: int, types: list[int], *, whole: bool) -> None:
        first = max(self.real.start_offset + first, 0)
        batch = AcknowledgementBatch(first, first + len(types) - 1, tuple(types[:1] if whole else types))
        error, write = self.real.acknowledge(member, [batch], self.now_ms)
        expected, number = self.plain.acknowledge(member, [batch], self.now_ms)
        assert error == expected
        self.check_write(write, number)
        self.open += [number] if number else []

    def release(self, member: str) -> None:
        number = self.plain.release_member(member)
        self.check_write(self.real.release_member(member), number)
        self.open += [number] if number else []

    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        due_ms = self.real.next_expiry_ms
        number = self.plain.expire(self.now_ms)
        assert bool(number) == (due_ms is not None and due_ms <= self.now_ms)
        write = self.real.expire_locks(self.now_ms)
        assert (write.number if write else 0) == number

    def settle(self, index: int, *, stored: bool) -> None:
        if not self.open:
            return
        number = self.open.pop(index % len(self.open))
        self.plain.settle(number, stored=stored)
        if stored:
            self.real.write_stored(number)
        else:
            self.real.write_failed(number)

    def move_start(self, offset: int) -> None:
        self.real.move_start(offset)
        self.plain.move_start(offset)

    def check_write(self, write: StateWrite | None, number: int) -> None:
        assert (write.number if write else 0) == number
        if write is None:
            return
        written = {
            offset: (one.state, one.delivery_count)
            for one in write.batches
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        records = self.plain.records
        changed = {offset: one.target for offset, one in records.items() if one.write == number}
        assert written == {offset: one for offset, one in changed.items() if offset >= write.start_offset}
        complete = {
            offset
            for offset, one in records.items()
            if (one.state if one.write != number else RecordState(one.target[0])).is_complete
        }
        start = self.plain.start
        while start in complete:
            start += 1
        assert write.start_offset == start
        assert write.delivery_complete_count == sum(offset >= start for offset in complete)

    def check(self) -> None:
        real, plain = self.real, self.plain
        assert (real.start_offset, real.end_offset, real.fetch_offset) == (plain.start, plain.end, plain.fetch_offset)
        shown = {offset: run.value for run in real.runs for offset in range(run.first, run.end)}
        assert shown.keys() == plain.records.keys()
        for offset, one in shown.items():
            target = (one.next_state, one.next_count) if one.write else (0, 0)
            assert PlainRecord(*one[:5], target) == plain.records[offset]
        for run, after in zip(real.runs, real.runs[1:], strict=False):
            assert run.end == after.first
            assert run.value != after.value


SIZES = st.lists(st.tuples(st.integers(1, 6), st.sampled_from((True, True, True, False))), min_size=1, max_size=4)
CALLS = st.one_of(
    st.tuples(st.just("acquire"), st.sampled_from(MEMBERS), SIZES, st.integers(1, 9), st.booleans()),
    st.tuples(
        st.just("acknowledge"),
        st.sampled_from(MEMBERS),
        AHEAD,
        st.lists(TYPES, min_size=1, max_size=4),
        st.booleans(),
    ),
    st.tuples(st.just("release"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("expire"), st.integers(0, 120)),
    st.tuples(st.just("settle"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("move_start"), OFFSETS),
)


@settings(max_examples=120, deadline=None)
@given(deliveries_max=st.sampled_from((1, 2, 3, 5)), calls=st.lists(CALLS, min_size=10, max_size=40))
def test_a_share_partition_does_what_a_model_of_single_records_does(
    deliveries_max: int, calls: list[tuple[object, ...]]
) -> None:
    pair = Pair(deliveries_max)
    for call in calls:
        match call:
            case ("acquire", str(member), list(sizes), int(most), bool(strict)):
                pair.acquire(member, sizes, most, strict=strict)
            case ("acknowledge", str(member), int(first), list(types), bool(whole)):
                pair.acknowledge(member, first, types, whole=whole)
            case ("release", str(member)):
                pair.release(member)
            case ("expire", int(passed_ms)):
                pair.expire(passed_ms)
            case ("settle", int(index), bool(stored)):
                pair.settle(index, stored=stored)
            case ("move_start", int(ahead)):
                pair.move_start(pair.real.start_offset + ahead - 8)
        pair.check()
