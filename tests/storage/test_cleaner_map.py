"""The map of compaction: it answers as a dictionary would, and its memory stays within what it was given."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kraft.storage.compaction.offset_map import OffsetMap

KEYS = st.binary(max_size=3) | st.binary(min_size=62, max_size=66)


@given(st.lists(KEYS))
def test_it_answers_as_a_dictionary_does(keys: list[bytes]) -> None:
    found, twin = OffsetMap(1 << 20), {}
    for offset, key in enumerate(keys):
        found.put(key, offset)
        twin[key] = offset
    assert len(found) == len(twin)
    assert {key: found.get(key) for key in twin} == twin
    assert found.get(b"no such key") == -1


def test_a_long_key_is_not_mistaken_for_a_short_one_that_looks_like_its_digest() -> None:
    found = OffsetMap(1 << 20)
    found.put(b"x" * 100, 1)
    (digest,) = found._offsets
    assert found.get(digest) == -1
    found.put(digest, 2)
    assert found.get(b"x" * 100) == 1


def test_its_memory_is_what_it_says() -> None:
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
