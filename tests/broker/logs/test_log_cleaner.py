"""LogCleaner and RoundRunner without a broker: which log is cleaned, up to which offset, and which logs are
uncleanable.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.logs.cleaning.cleaning_round import RoundAbandoned, RoundRunner
from kraft.broker.logs.cleaning.log_cleaner import LogCleaner
from kraft.broker.serving.dynamic_configs import DynamicConfigs
from kraft.config import NodeConfig
from kraft.seam import DiskError, StorageCorrupt
from tests.stages.broker_harness import PROPERTIES
from tests.stages.part_stage import PartStage, play, replica

RECORDS = 9


class Cleaning:
    """A LogCleaner over some logs; all records of a log have the same key."""

    def __init__(self, stage: PartStage, *logs: int, rounds: Any = None) -> None:
        """`logs` has the number of records of each log."""
        self.stage = stage
        self.removed, self.failed, self.written = list[str](), list[Any](), list[Any]()
        self.partitions = [self._dirty(index, records) for index, records in enumerate(logs)]
        removal: Any = SimpleNamespace(remove_later=lambda delay_ms, paths, partition: self.removed.extend(paths))
        failures: Any = SimpleNamespace(
            warmed=self._warmed, disk_failed=lambda partition, error: self.failed.append(partition)
        )
        damaged: Any = SimpleNamespace(damage_found=lambda *_: False)
        self.cleaner = LogCleaner(
            stage.loop,
            DynamicConfigs(NodeConfig.parse(PROPERTIES)),
            rounds or RoundRunner(stage.loop, removal, lambda size: nullcontext()),
            open_logs=lambda: self.partitions,
            failures=failures,
            damaged_logs=damaged,
            write_offsets=self._write,
        )

    def _dirty(self, index: int, records: int) -> Any:
        log = self.stage.open_log(
            f"/data/orders-{index}",
            records=records,
            cleanup_policy=("compact",),
            segment_bytes=100,
            min_cleanable_dirty_ratio=0.0,
        )
        plan = log.files_to_sync()
        assert plan is not None
        plan.run()
        log.mark_synced(plan)
        log.update_high_watermark(records)
        config = SimpleNamespace(file_delete_delay_ms=1_000)
        return replica(log, index=index, config=config, directory=SimpleNamespace(cleaner_offsets={}))

    async def _warmed(self, partition: Any, cold: Any) -> bool:
        cold.warm()
        cold.adopt()
        return True

    async def _write(self, directory: Any) -> None:
        self.written.append(directory)


def test_a_compaction_round_keeps_the_last_record_of_a_key_and_records_its_end_offset() -> None:
    async def test(stage: PartStage) -> None:
        cleaning = Cleaning(stage, RECORDS)
        (partition,) = cleaning.partitions
        size = partition.log.size_bytes
        assert await cleaning.cleaner.clean_dirtiest()
        assert partition.log.size_bytes < size
        assert partition.directory.cleaner_offsets == {("orders", 0): RECORDS - 1}
        assert cleaning.written == [partition.directory]
        assert cleaning.removed
        assert not await cleaning.cleaner.clean_dirtiest(), "nothing is left to clean"

    play(test)


class Refusing:
    """A RoundRunner whose rounds raise at once."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.partitions: list[Any] = []

    async def run(self, partition: Any, *_: Any) -> None:
        self.partitions.append(partition)
        raise self.error


def test_a_log_with_unreadable_bytes_is_marked_uncleanable() -> None:
    async def test(stage: PartStage) -> None:
        rounds = Refusing(StorageCorrupt("damaged"))
        cleaning = Cleaning(stage, RECORDS, RECORDS + 20, rounds=rounds)
        for _ in range(3):
            assert not await cleaning.cleaner.clean_dirtiest()
        assert sorted(one.index for one in rounds.partitions) == [0, 1], "each once"
        assert set(cleaning.cleaner.state.uncleanable) == set(cleaning.partitions)

    play(test)


@pytest.mark.parametrize(
    ("error", "fails"), [(RoundAbandoned(), False), (DiskError("no", errno=5, path="/data"), True)]
)
def test_only_a_disk_error_of_a_compaction_round_fails_the_partition(error: Exception, fails: bool) -> None:
    async def test(stage: PartStage) -> None:
        cleaning = Cleaning(stage, RECORDS, rounds=Refusing(error))
        assert not await cleaning.cleaner.clean_dirtiest()
        assert cleaning.failed == (cleaning.partitions if fails else [])

    play(test)


def test_a_cleaner_worker_searches_for_a_log_to_clean_again_after_its_backoff() -> None:
    async def test(stage: PartStage) -> None:
        cleaning = Cleaning(stage)
        stage.loop.start_task(cleaning.cleaner.run)
        await stage.world.sleep_ms(1_000)
        cleaning.partitions.append(cleaning._dirty(0, RECORDS))
        await stage.world.sleep_ms(20_000)
        assert len(cleaning.written) == 1

    play(test)
