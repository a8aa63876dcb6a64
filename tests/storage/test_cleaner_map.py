"""The offset map of compaction: it answers like a dictionary, and keeps within its memory limit."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kraft.storage.compaction.offset_map import OffsetMap

KEYS = st.binary(max_size=3) | st.binary(min_size=62, max_size=66)


@given(st.lists(KEYS))
def test_offset_map_of_compaction_agrees_with_a_dictionary(keys: list[bytes]) -> None:
    found, model = OffsetMap(1 << 20), {}
    for offset, key in enumerate(keys):
        found.put(key, offset)
        model[key] = offset
    assert len(found) == len(model)
    assert {key: found.get(key) for key in model} == model
    assert found.get(b"no such key") == -1


def test_offset_map_distinguishes_a_long_key_from_a_short_one_equal_to_its_digest() -> None:
    found = OffsetMap(1 << 20)
    found.put(b"x" * 100, 1)
    (digest,) = found._offsets
    assert found.get(digest) == -1
    found.put(digest, 2)
    assert found.get(b"x" * 100) == 1


def test_offset_map_uses_as_much_memory_as_it_reports() -> None:
    for key_bytes in (8, 50, 500):
        found = OffsetMap(2 << 20)
        tracemalloc.start()
        number = 0
        while not found.is_full:
            found.put(b"%d" % number + b"." * (key_bytes - len(str(number))), 1 << 40 | number)
            number += 1
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.bytes_max / 3 < peak <= found.bytes_max
