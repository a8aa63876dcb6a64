"""Ports for nodes that a test starts itself. No other process gets them until the test's module has ended.

A port that is only free at the moment could be bound by another worker's test before the node binds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest

_HELD = ExitStack()


def hold_block(offsets: Iterable[int]) -> int:
    """Hold a free port and the ports at these distances from it, and return that port. Listeners may bind the held
    ports."""
    from kraft.sim.chaos.clusters import held_ports  # here, because the conftest of all tests imports this module

    first, ports = held_ports.hold_ports(offsets)
    _HELD.callback(ports.release)
    return first


def hold_ports(count: int) -> range:
    """Hold this many consecutive ports, and return their range."""
    first = hold_block(range(count))
    return range(first, first + count)


@pytest.fixture(scope="module", autouse=True)
def release_ports() -> Iterator[None]:
    """Release the ports that a module holds."""
    yield
    _HELD.close()
