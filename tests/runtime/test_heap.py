from __future__ import annotations

import psutil
import pytest

from kraft.runtime import RuntimeSettings, heap
from kraft.runtime.heap import CHANGES_MIN, HeapTrim
from tests.runtime.test_runtime import InFlight, Node, run

MIB = 1 << 20


def test_the_heap_is_trimmed_once_per_thousand_opened_or_closed_connections() -> None:
    trim = HeapTrim(lambda: None)
    due = [changes for changes in range(0, 3 * CHANGES_MIN, 100) if trim.is_due(changes)]
    assert due == [CHANGES_MIN, 2 * CHANGES_MIN]


def test_a_trim_returns_freed_memory_below_the_top_of_the_heap() -> None:
    blocks = [bytearray(16 * 1024) for _ in range(4_000)]
    top = bytearray(16 * 1024)
    del blocks
    before_bytes = psutil.Process().memory_info().rss
    HeapTrim().trim()
    assert before_bytes - psutil.Process().memory_info().rss > 30 * MIB
    del top


def test_the_driver_trims_the_heap_after_many_opened_and_closed_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "CHANGES_MIN", 4)
    trimmed: list[bool] = []
    monkeypatch.setattr(heap, "_malloc_trim", lambda: trimmed.append(True))

    async def body(node: Node) -> None:
        for _ in range(2):
            await node.dial(InFlight)  # both ends are in this driver
        while not trimmed:
            await node.seam.clock.sleep_ms(1)

    run(body, RuntimeSettings(connections_idle_ms=100), InFlight)
