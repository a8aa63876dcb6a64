"""LogMaintenance without a broker: which segments are removed, and which logs are opened for the removal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.maintenance import LogMaintenance
from tests.stages.part_stage import PartStage, play, replica

DAY_MS = 24 * 60 * 60 * 1000


class Hosted(list[Any]):
    """A fake index of replicas."""

    def with_open_logs(self) -> list[Any]:
        return [one for one in self if one.log is not None]


class Kept:
    """Two replicas: one with an open log of three segments, and one whose log is not open yet."""

    def __init__(self, stage: PartStage) -> None:
        self.changed, self.removed, self.soon = list[str](), list[tuple[Any, ...]](), list[Any]()
        log = stage.open_log(records=3, segment_bytes=100, retention_ms=DAY_MS, retention_bytes=-1)
        log.update_high_watermark(3)
        self.partition = replica(
            log,
            config=SimpleNamespace(file_delete_delay_ms=60_000),
            segments_changed=lambda: self.changed.append("segments"),
            waits_for_log=False,
        )
        self.waiting = replica(index=1, waits_for_log=True)
        hosted: Any = Hosted([self.partition, self.waiting])
        removal: Any = SimpleNamespace(remove_later=lambda *call: self.removed.append(call))
        failures: Any = SimpleNamespace(warmed=self._warmed)
        self.maintenance = LogMaintenance(stage.loop, hosted, failures, removal, self.soon.append)

    async def _warmed(self, partition: Any, cold: Any) -> bool:
        cold.warm()
        cold.adopt()
        return True


def test_segments_past_their_retention_are_renamed_and_removed_later() -> None:
    async def test(stage: PartStage) -> None:
        kept = Kept(stage)
        segments = len(kept.partition.log.segments)
        assert segments == 3
        await kept.maintenance.apply_retention()
        assert len(kept.partition.log.segments) == segments
        stage.world.jump_clock("machine", 100_000 * DAY_MS)
        await kept.maintenance.apply_retention()
        ((delay_ms, paths, partition),) = kept.removed
        assert (delay_ms, partition, kept.changed) == (60_000, kept.partition, ["segments"])
        assert paths
        assert all(stage.disk.exists(path) for path in paths)

    play(test)


def test_retention_opens_a_log_that_was_not_opened_since_the_start() -> None:
    async def test(stage: PartStage) -> None:
        kept = Kept(stage)
        stage.loop.start_task(kept.maintenance.retention_forever, 1_000)
        await stage.world.sleep_ms(1_500)
        assert (kept.soon, stage.passes) == ([kept.waiting], 1)

    play(test)


def test_idle_producers_of_open_logs_expire_by_the_wall_clock() -> None:
    async def test(stage: PartStage) -> None:
        kept, times = Kept(stage), list[int]()
        kept.partition.log = SimpleNamespace(expire_producers=times.append)
        stage.loop.start_task(kept.maintenance.producers_forever, 100)
        await stage.world.sleep_ms(250)
        assert len(times) == 2
        assert times[1] - times[0] >= 100

    play(test)
