"""FolderRetirement without a broker: which folders are renamed, in which order, and when they are removed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio

from kraft.broker.logs.file_removal import FileRemoval
from kraft.broker.logs.folder_retirement import FolderRetirement
from kraft.broker.partition.log_directories import HostedDirectory
from tests.stages.part_stage import PartStage, play, replica

DELAY_MS = 5_000


class Leaving:
    """A directory with the folder of a removed replica."""

    def __init__(self, stage: PartStage) -> None:
        self.stage, self.failed = stage, list[Any]()
        self.directory = HostedDirectory("/data")
        stage.open_directory(self.directory)
        stage.open_log()
        config = SimpleNamespace(file_delete_delay_ms=DELAY_MS)
        self.partition = replica(directory=self.directory, config=config, is_removed=True)
        self.retirement = FolderRetirement(
            stage.loop,
            DELAY_MS,
            lambda directory, error: self.failed.append(directory),
            FileRemoval(stage.loop, lambda *_: None),
        )

    def folders(self) -> list[str]:
        return [name.rpartition("-")[2] for name in self.stage.disk.list("/data") if name.startswith("orders")]


def test_the_folder_of_a_removed_replica_is_renamed_at_once_and_removed_after_the_delay() -> None:
    async def test(stage: PartStage) -> None:
        leaving = Leaving(stage)
        leaving.retirement.retire(leaving.partition, None)
        await leaving.retirement.wait_for("orders", 0)
        assert leaving.folders() == ["delete"]
        await stage.world.sleep_ms(DELAY_MS + 1_000)
        assert (leaving.folders(), leaving.failed) == ([], [])

    play(test)


def test_a_folder_is_renamed_only_while_no_blocking_call_runs_in_it() -> None:
    async def test(stage: PartStage) -> None:
        leaving = Leaving(stage)
        async with leaving.partition.blocking:
            leaving.retirement.retire(leaving.partition, None)
            await stage.finish_tasks()
            assert leaving.folders() == ["0"]
        with trio.fail_after(10):
            await leaving.retirement.wait_for("orders", 0)
        assert leaving.folders() == ["delete"]

    play(test)


def test_a_log_folder_that_belongs_to_no_replica_is_renamed_to_stray_and_kept() -> None:
    async def test(stage: PartStage) -> None:
        leaving = Leaving(stage)
        leaving.retirement.set_aside(leaving.directory, "orders", 0)
        await stage.world.sleep_ms(DELAY_MS + 1_000)
        assert leaving.folders() == ["stray"]

    play(test)


def test_a_discarded_move_copy_is_renamed_to_delete_at_once() -> None:
    async def test(stage: PartStage) -> None:
        leaving = Leaving(stage)
        stage.open_log("/data/orders-0.abc-future")
        leaving.retirement.discard_copy(leaving.directory, "/data/orders-0.abc-future")
        assert sorted(leaving.folders()) == ["0", "delete"]
        await stage.world.sleep_ms(DELAY_MS + 1_000)
        assert leaving.folders() == ["0"]

    play(test)


def test_a_disk_error_while_renaming_a_folder_fails_the_directory() -> None:
    async def test(stage: PartStage) -> None:
        leaving = Leaving(stage)
        stage.world.fail_directory("machine", "/data")
        leaving.retirement.retire(leaving.partition, None)
        await stage.finish_tasks()
        assert leaving.failed == [leaving.directory]

    play(test)
