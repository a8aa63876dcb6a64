"""The garbage policy of a node's process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kraft.runtime.garbage import GarbagePolicy


class Knot:
    """Holds on to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def policy() -> Iterator[GarbagePolicy]:
    made = GarbagePolicy()
    made.start()
    yield made
    made.stop()


def test_what_survives_is_looked_at_no_more(policy: GarbagePolicy) -> None:
    kept = [[number] for number in range(1000)]
    before = gc.get_freeze_count()
    gc.collect(1)
    assert gc.get_freeze_count() >= before + len(kept)
    assert not any(one is kept for one in gc.get_objects())


def test_young_cycles_are_freed_and_old_ones_when_everything_is_looked_at(policy: GarbagePolicy) -> None:
    young = weakref.ref(Knot())
    gc.collect(1)
    assert young() is None
    knot = Knot()
    old = weakref.ref(knot)
    gc.collect(1)
    del knot
    gc.collect()
    assert old() is not None, "it is frozen"
    policy.look_at_all()
    assert old() is None
