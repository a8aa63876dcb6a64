"""FileRemoval without a broker: when files are removed, and the effect of a disk error."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.logs.file_removal import FileRemoval
from kraft.seam import DiskError
from tests.stages.part_stage import PartStage, play, replica


def test_files_and_folders_are_removed_after_the_delay() -> None:
    async def test(stage: PartStage) -> None:
        stage.open_log("/data/orders-0.abc-delete")
        removal = FileRemoval(stage.loop, lambda *_: None)
        removal.remove_later(500, ["/data/orders-0.abc-delete", "/data/gone-before"])
        await stage.world.sleep_ms(400)
        assert stage.disk.exists("/data/orders-0.abc-delete")
        await stage.world.sleep_ms(200)
        assert not stage.disk.exists("/data/orders-0.abc-delete")

    play(test)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_disk_error_while_removing_files_fails_their_partition_unless_it_was_removed(is_removed: bool) -> None:
    async def test(stage: PartStage) -> None:
        failed: list[Any] = []
        partition = replica(stage.open_log("/data/orders-0"), is_removed=is_removed)

        def refuse(partition: Any, error: DiskError) -> None:
            failed.append(partition)

        stage.world.fail_directory("machine", "/data")
        await FileRemoval(stage.loop, refuse).remove_after(0, ["/data/orders-0"], partition)
        assert failed == ([] if is_removed else [partition])

    play(test)
