"""DiskFailures and LostReplicas without a broker: which directories and replicas a disk error takes offline, and what
is reported.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.disk_failures import DiskFailures
from kraft.broker.logs.lost_replicas import LostReplicas
from kraft.broker.partition.log_directories import LogDirectories
from kraft.image.registrations import LOST_DIRECTORY
from kraft.seam import DiskError
from tests.stages.part_stage import PartStage, play, replica


class Failing:
    """Two directories; the first one has a replica. `events` records the effects of a disk failure."""

    def __init__(self, stage: PartStage, *, is_known: bool = True) -> None:
        self.events: list[Any] = []
        config: Any = SimpleNamespace(log_dirs=("/data", "/more"))
        self.directories = LogDirectories(config, stage.disk)
        for one in self.directories.all:
            one.storage = object()  # type: ignore[assignment]
            one.known_id = stage.loop.random.uuid()
        self.first, self.second = self.directories.all
        opened: Any = SimpleNamespace(release=lambda: self.events.append("released"))
        self.partition = replica(opened, directory=self.first, failed=lambda: self.events.append("failed"))
        self.first.partitions.add(self.partition)
        assignments: Any = SimpleNamespace(
            is_known=lambda partition, directory_id: is_known,
            report=lambda partition, directory_id: self.events.append(directory_id),
        )
        self.lost = LostReplicas(assignments, lambda partition: self.events.append("not fetched"))
        self.failures = DiskFailures(
            stage.loop,
            self.directories,
            self.lost,
            stop_moves=lambda directory: self.events.append("moves stopped"),
            report=lambda directory, error: self.events.append(directory.path),
        )


def refused(path: str) -> DiskError:
    return DiskError("Input/output error", errno=5, path=path)


def test_a_failed_directory_goes_offline_once_with_all_its_replicas() -> None:
    async def test(stage: PartStage) -> None:
        failing = Failing(stage)
        for _ in range(2):
            failing.failures.disk_failed(failing.partition, refused("/data/orders-0/0.log"))
        assert failing.events == ["moves stopped", "not fetched", "failed", "released", "/data"]
        assert (failing.directories.online, stage.passes) == ([failing.second], 1)

    play(test)


def test_a_replica_assigned_to_another_directory_is_reported_lost_when_its_directory_fails() -> None:
    async def test(stage: PartStage) -> None:
        failing = Failing(stage, is_known=False)
        failing.failures.directory_failed(failing.first, refused("/data"))
        assert failing.events == ["moves stopped", LOST_DIRECTORY, "not fetched", "failed", "released", "/data"]

    play(test)


def test_a_disk_error_fails_the_directory_of_its_file_or_else_that_of_the_replica() -> None:
    async def test(stage: PartStage) -> None:
        failing = Failing(stage)
        failing.failures.disk_failed_at(refused("/elsewhere"))
        assert failing.events == []
        failing.failures.disk_failed(failing.partition, refused("/more/orders-0/0.log"))
        assert failing.directories.online == [failing.first]
        failing.failures.disk_failed(failing.partition, refused("/elsewhere"))
        assert failing.directories.online == []

    play(test)


def test_a_disk_error_of_a_removed_replica_takes_no_directory_offline() -> None:
    async def test(stage: PartStage) -> None:
        failing = Failing(stage)
        failing.partition.is_removed = True
        failing.failures.disk_failed(failing.partition, refused("/data/orders-0/0.log"))
        assert failing.events == []

    play(test)


def test_a_cold_read_is_loaded_into_memory_unless_the_device_fails() -> None:
    async def test(stage: PartStage) -> None:
        failing, adopted = Failing(stage), list[str]()

        def refuse() -> None:
            raise refused("/data/orders-0/0.log")

        good: Any = SimpleNamespace(warm=lambda: None, adopt=lambda: adopted.append("good"))
        bad: Any = SimpleNamespace(warm=refuse, adopt=lambda: adopted.append("bad"))
        assert await failing.failures.warmed(failing.partition, good)
        assert failing.directories.are_all_online
        assert not await failing.failures.warmed(failing.partition, bad)
        assert (adopted, failing.directories.online) == (["good"], [failing.second])

    play(test)
