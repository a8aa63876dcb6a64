"""LogFlusher without a broker: for which logs it requests a sync, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.flushing import LogFlusher
from tests.stages.part_stage import PartStage, play, replica

INTERVAL_MS = 100


def unsynced(flush_ms: int) -> Any:
    return replica(SimpleNamespace(unsynced=True), config=SimpleNamespace(flush_ms=flush_ms))  # type: ignore[arg-type]


def test_the_flusher_requests_a_sync_when_unsynced_bytes_are_older_than_flush_ms() -> None:
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


def test_the_flusher_requests_no_sync_without_a_scheduler_interval() -> None:
    async def test(stage: PartStage) -> None:
        await LogFlusher(stage.loop, 2**63 - 1, list, lambda _: None).run()

    play(test)
