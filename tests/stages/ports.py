"""Ports for nodes that a test starts itself. No other process gets them until the test's module has ended.

A port that is merely free could be bound by a test of another worker before the node binds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest

_HELD = ExitStack()


def hold_block(offsets: Iterable[int]) -> int:
    """Hold a port and the ports at these distances from it, and return it. Listeners may bind them."""
    from kraft.sim.chaos.clusters import held_ports  # here, because the conftest of all tests imports this module

    first, ports = held_ports.hold_ports(offsets)
    _HELD.callback(ports.release)
    return first


def hold_ports(count: int) -> range:
    """Hold this many consecutive ports."""
    first = hold_block(range(count))
    return range(first, first + count)


@pytest.fixture(scope="module", autouse=True)
def release_ports() -> Iterator[None]:
    """Release the ports that a module holds."""
    yield
    _HELD.close()
