"""Hypothesis strategies for records."""

from __future__ import annotations

from hypothesis import strategies as st

from kraft.wire.records import Record

NULLABLE_BYTES = st.none() | st.binary(max_size=300)
TIMESTAMPS = st.just(-1) | st.integers(0, 2**45)
HEADERS = st.lists(st.tuples(st.text(max_size=12), NULLABLE_BYTES), max_size=4).map(tuple)


@st.composite
def records(draw: st.DrawFn, *, base_offset: int = 0, max_size: int = 12) -> list[Record]:
    """Return a strategy for records with consecutive offsets from `base_offset`."""
    items = draw(
        st.lists(st.tuples(TIMESTAMPS, NULLABLE_BYTES, NULLABLE_BYTES, HEADERS), min_size=1, max_size=max_size)
    )
    return [Record(base_offset + index, *item) for index, item in enumerate(items)]
