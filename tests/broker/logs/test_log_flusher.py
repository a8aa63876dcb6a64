"""LogFlusher by itself: which logs it asks to sync, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.flushing import LogFlusher
from tests.stages.part_stage import PartStage, play, replica

INTERVAL_MS = 100


def unsynced(flush_ms: int) -> Any:
    return replica(SimpleNamespace(unsynced=True), config=SimpleNamespace(flush_ms=flush_ms))  # type: ignore[arg-type]


def test_a_log_is_synced_once_its_bytes_are_older_than_its_flush_ms() -> None:
    async def test(stage: PartStage) -> None:
        soon, late, clean = unsynced(0), unsynced(250), unsynced(0)
        clean.log.unsynced = False
        wanted: list[Any] = []
        flusher = LogFlusher(stage.loop, INTERVAL_MS, lambda: [soon, late, clean], wanted.append)
        stage.loop.start_task(flusher.run)
        await stage.world.sleep_ms(1.5 * INTERVAL_MS)
        assert wanted == [soon]
        await stage.world.sleep_ms(INTERVAL_MS)
        assert wanted == [soon, soon]
        await stage.world.sleep_ms(INTERVAL_MS)
        assert wanted[2:] == [soon, late]
        assert stage.passes == 3

    play(test)


def test_without_an_interval_there_is_no_scheduler() -> None:
    async def test(stage: PartStage) -> None:
        await LogFlusher(stage.loop, 2**63 - 1, list, lambda _: None).run()

    play(test)
