"""FoundFolders without a broker: what happens to each folder that an earlier incarnation left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.found_folders import FoundFolders
from kraft.broker.partition.log_directories import LogDirectories
from tests.stages.images import ORDERS, image_of, orders, three_brokers
from tests.stages.part_stage import PartStage, play

SELF = 1
COPY = "/data/orders-0.0123456789abcdef0123456789abcdef-future"


class Found:
    """One or two directories with folders, which FoundFolders sorts by an image that has the topic `orders`."""

    def __init__(self, stage: PartStage, *folders: str, directories: tuple[str, ...] = ("/data",)) -> None:
        config: Any = SimpleNamespace(log_dirs=directories)
        self.directories = LogDirectories(config, stage.disk)
        self.stray, self.discarded, self.removed = list[Any](), list[str](), list[str]()
        for directory in self.directories.all:
            stage.open_directory(directory)
            assert directory.storage is not None
            directory.storage.close()
        for folder in folders:
            stage.open_log(folder, topic_id=ORDERS)
        for directory in self.directories.all:
            directory.open(stage.disk, node_id=SELF, cluster_id="cluster")
        retirement: Any = SimpleNamespace(
            set_aside=lambda directory, topic, index: self.stray.append((directory.path, topic, index)),
            discard_copy=lambda directory, path: self.discarded.append(path),
            remove_later=self.removed.extend,
        )
        self.folders = FoundFolders(stage.loop, SELF, self.directories, retirement, lambda *_: None)
        self.assigned = self.directories.all[0].directory_id

    def sort_out(self) -> None:
        events = orders()
        self.folders.sort_out(image_of(*three_brokers(), *events))


def test_at_start_only_logs_that_belong_to_no_replica_are_renamed_to_stray() -> None:
    async def test(stage: PartStage) -> None:
        found = Found(stage, "/data/orders-0", "/data/other-0")
        found.sort_out()
        assert found.stray == [("/data", "other", 0)]

    play(test)


def test_folders_marked_for_removal_are_removed_at_start() -> None:
    async def test(stage: PartStage) -> None:
        marked = "/data/orders-0.0123456789abcdef0123456789abcdef-delete"
        found = Found(stage, marked)
        found.sort_out()
        assert (found.removed, found.stray) == ([marked], [])

    play(test)


def test_the_copy_of_a_move_found_at_start_together_with_its_log_restarts_the_move() -> None:
    async def test(stage: PartStage) -> None:
        found = Found(stage, "/data/orders-0", COPY)
        found.sort_out()
        assert found.discarded == [COPY]
        assert found.directories.interrupted == {("orders", 0): found.directories.all[0]}

    play(test)


def test_a_log_found_in_two_directories_at_start_becomes_stray_in_the_directory_not_in_the_metadata() -> None:
    async def test(stage: PartStage) -> None:
        found = Found(stage, "/data/orders-0", "/more/orders-0", directories=("/data", "/more"))
        found.sort_out()
        assert found.stray == [("/more", "orders", 0)], "the first one counts where no directory is named"

    play(test)
