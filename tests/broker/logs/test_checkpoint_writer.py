"""CheckpointWriter without a broker: which checkpoints are written, when, and the effect of a disk error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.checkpoint_writing import CheckpointWriter
from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
from kraft.seam import DiskError
from tests.stages.part_stage import PartStage, play

INTERVAL_MS = 100


class Writing:
    """A CheckpointWriter over one directory, with the checkpointed offsets of a log that is not open."""

    def __init__(self, stage: PartStage) -> None:
        config: Any = SimpleNamespace(log_dirs=("/data",))
        directories = LogDirectories(config, stage.disk)
        (self.directory,) = directories.all
        stage.open_directory(self.directory)
        self.failed: list[HostedDirectory] = []
        self.writer = CheckpointWriter(stage.loop, directories, self._directory_failed)

    def _directory_failed(self, directory: HostedDirectory, error: DiskError) -> None:
        self.failed.append(directory)
        directory.storage = None

    def on_disk(self) -> dict[tuple[str, int], int]:
        assert self.directory.storage is not None
        return self.directory.storage.read_high_watermarks()


def test_a_moved_high_watermark_is_checkpointed_after_the_checkpoint_interval() -> None:
    async def test(stage: PartStage) -> None:
        writing = Writing(stage)
        stage.loop.start_task(writing.writer.high_watermarks_forever, INTERVAL_MS)
        writing.directory.high_watermarks["orders", 0] = 5
        await stage.world.sleep_ms(INTERVAL_MS / 2)
        assert writing.on_disk() == {}
        await stage.world.sleep_ms(INTERVAL_MS)
        assert writing.on_disk() == {("orders", 0): 5}

    play(test)


def test_checkpoint_lines_of_a_removed_log_are_dropped_before_a_new_log_of_its_name() -> None:
    async def test(stage: PartStage) -> None:
        writing = Writing(stage)
        writing.directory.high_watermarks.update({("orders", 0): 5, ("kept", 0): 6})
        await writing.writer.write_high_watermarks()
        writing.directory.forget("orders", 0)
        await writing.writer.drop_forgotten(writing.directory, "kept", 0)
        assert ("orders", 0) in writing.on_disk()
        await writing.writer.drop_forgotten(writing.directory, "orders", 0)
        assert writing.on_disk() == {("kept", 0): 6}

    play(test)


def test_a_disk_error_in_a_checkpoint_takes_the_directory_offline_without_another_write() -> None:
    async def test(stage: PartStage) -> None:
        writing = Writing(stage)
        stage.world.fail_directory("machine", "/data")
        writing.directory.high_watermarks["orders", 0] = 5
        for _ in range(2):
            await writing.writer.write_high_watermarks()
        assert writing.failed == [writing.directory]

    play(test)
