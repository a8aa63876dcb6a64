"""The parts of a move between log directories, each tested without a broker: requesting, copying, and swapping the
folders.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.logs.moves import ReplicaMoves
from kraft.broker.logs.opening_queue import LogContext
from kraft.broker.logs.replica_copy import Move, MoveAbandoned, ReplicaCopier
from kraft.broker.logs.replica_swap import ReplicaSwap
from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
from kraft.config import NodeConfig, TopicConfig
from kraft.seam import DiskError
from kraft.storage.handles import FileCache
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import PROPERTIES
from tests.stages.part_stage import PartStage, play, replica

CONFIG = TopicConfig.resolve({}, {}, NodeConfig.parse(PROPERTIES))


class TwoDirectories:
    """A replica with five records in the first of two directories, and a ReplicaCopier that only records its checkpoint
    writes."""

    def __init__(self, stage: PartStage) -> None:
        self.stage = stage
        self.events: list[Any] = []
        config: Any = SimpleNamespace(log_dirs=("/data", "/more"))
        self.directories = LogDirectories(config, stage.disk)
        self.here, self.there = self.directories.all
        for directory in self.directories.all:
            stage.open_directory(directory)
        self.here.held.add(("orders", 0))
        self.partition = replica(
            stage.open_log(records=5),
            config=CONFIG,
            directory=self.here,
            high_watermark=5,
            hold_appends=lambda: self.events.append("appends are held"),
            replaced=self._replaced,
            synced=lambda: self.events.append("synced"),
            resume_appends=lambda: self.events.append("appends continue"),
        )
        self.here.partitions.add(self.partition)
        self.quota: Any = SimpleNamespace(is_exceeded=False, record=lambda size: None)
        checkpoints: Any = SimpleNamespace(
            drop_forgotten=self._writes("forgotten"),
            write_log_starts_of=self._writes("log starts"),
            write_high_watermarks_of=self._writes("high watermarks"),
        )
        self.copier = ReplicaCopier(stage.loop, LogContext(FileCache(100), 1_000), self.quota, checkpoints)
        removal: Any = SimpleNamespace(remove_later=lambda delay_ms, paths: self.events.append(paths))
        self.swap = ReplicaSwap(
            stage.loop,
            self.copier,
            removal,
            stop_fetching=lambda partition: self.events.append("fetching stops"),
            begin_fetching=lambda partition: self.events.append("fetching continues"),
            disk_failed_at=lambda error: None,
        )

    def _replaced(self, log: Any, directory: Any) -> None:
        self.partition.log, self.partition.directory = log, directory

    def _writes(self, what: str) -> Any:
        async def write(directory: HostedDirectory, *_: Any) -> None:
            self.events.append(what)

        return write


def test_a_move_copies_a_log_to_its_end_and_copies_it_again_after_a_truncation() -> None:
    async def test(stage: PartStage) -> None:
        two = TwoDirectories(stage)
        move = Move(two.partition, two.there)
        future = move.future = await two.copier.open_copy(move)
        assert future.directory.startswith("/more/orders-0.")
        await two.copier.copy(move, future)
        assert (future.log_end_offset, future.synced_end_offset, move.lag()) == (5, 5, 0)
        two.partition.log.truncate_to(2, 0)
        assert move.lag()
        await two.copier.copy(move, future)
        assert (future.log_end_offset, move.lag()) == (2, 0)

    play(test)


def test_a_move_stops_copying_while_the_rate_limit_of_moves_is_exceeded() -> None:
    async def test(stage: PartStage) -> None:
        two = TwoDirectories(stage)
        move = Move(two.partition, two.there)
        future = move.future = await two.copier.open_copy(move)
        two.quota.is_exceeded = True
        stage.loop.start_task(two.copier.copy, move, future)
        await stage.finish_tasks()
        assert future.log_end_offset == 0
        two.quota.is_exceeded = False
        await stage.finish_tasks()
        assert future.log_end_offset == 5

    play(test)


def test_a_move_stops_copying_when_its_replica_is_removed() -> None:
    async def test(stage: PartStage) -> None:
        two = TwoDirectories(stage)
        move = Move(two.partition, two.there)
        future = move.future = await two.copier.open_copy(move)
        two.partition.is_removed = True
        with pytest.raises(MoveAbandoned):
            await two.copier.copy(move, future)

    play(test)


def test_a_swap_exchanges_the_folders_and_lets_appends_continue() -> None:
    async def test(stage: PartStage) -> None:
        two = TwoDirectories(stage)
        move = Move(two.partition, two.there)
        future = move.future = await two.copier.open_copy(move)
        await two.copier.copy(move, future)
        two.events.clear()
        assert await two.swap.swap(move, future)
        assert two.partition.log is future
        assert (two.partition.directory, future.directory) == (two.there, "/more/orders-0")
        assert (two.here.held, two.there.held) == (set(), {("orders", 0)})
        assert (len(two.here.partitions), len(two.there.partitions)) == (0, 1)
        *before, (old_path,) = two.events
        assert before == [
            "log starts",
            "high watermarks",
            "appends are held",
            "fetching stops",
            "synced",
            "fetching continues",
            "appends continue",
        ]
        assert old_path.startswith("/data/orders-0.")
        assert old_path.endswith("-delete")

    play(test)


class Moving:
    """ReplicaMoves with scripted copies and swaps."""

    def __init__(self, stage: PartStage) -> None:
        self.two = two = TwoDirectories(stage)
        self.reported: list[Any] = []
        self.failed: list[Any] = []
        self.discarded: list[str] = []
        self.is_known = True
        self.found: Any = two.partition
        self.trouble: DiskError | None = None
        copier: Any = SimpleNamespace(open_copy=self._open_copy, copy=self._copy)
        swap: Any = SimpleNamespace(swap=self._swap, resume_appends=lambda partition: None)
        assignments: Any = SimpleNamespace(
            report=lambda partition, directory_id: self.reported.append(directory_id),
            is_known=lambda partition, directory_id: self.is_known,
        )
        self.moves = ReplicaMoves(
            stage.loop,
            two.directories,
            copier,
            swap,
            assignments,
            locate=lambda topic, index: self.found,
            disk_failed_at=lambda error, directory: self.failed.append(directory),
            discard_copy=lambda directory, path: self.discarded.append(path),
        )

    async def _open_copy(self, move: Move) -> Any:
        return SimpleNamespace(log_end_offset=5, release=lambda: None, directory="/more/copy")

    async def _copy(self, move: Move, future: Any) -> None:
        await self.two.stage.world.sleep_ms(1)
        if self.trouble is not None:
            raise self.trouble

    async def _swap(self, move: Move, future: Any) -> bool:
        move.partition.directory, move.partition.log = move.target, future
        return True


def test_a_move_swaps_the_folders_only_when_the_metadata_name_its_new_directory() -> None:
    async def test(stage: PartStage) -> None:
        moving = Moving(stage)
        moving.is_known = False
        assert moving.moves.alter("orders", 0, "/more") is ErrorCode.NONE
        await stage.finish_tasks()
        assert set(moving.reported) == {moving.two.there.directory_id}
        assert [move.partition for move in moving.moves.into(moving.two.there)] == [moving.two.partition]
        assert moving.two.partition.directory is moving.two.here
        moving.is_known = True
        await stage.finish_tasks()
        assert moving.two.partition.directory is moving.two.there
        assert moving.moves.into(moving.two.there) == []

    play(test)


def test_a_cancelled_move_leaves_the_replica_and_reports_its_directory() -> None:
    async def test(stage: PartStage) -> None:
        moving = Moving(stage)
        moving.is_known = False
        moving.moves.alter("orders", 0, "/more")
        await stage.finish_tasks()
        moving.moves.give_up(moving.two.partition)
        await stage.finish_tasks()
        assert moving.reported[-1] == moving.two.here.directory_id
        assert moving.discarded == ["/more/copy"]

    play(test)


def test_a_disk_error_while_copying_fails_the_target_directory() -> None:
    async def test(stage: PartStage) -> None:
        moving = Moving(stage)
        moving.trouble = DiskError("no", errno=5, path="/more/copy")
        moving.moves.alter("orders", 0, "/more")
        await stage.finish_tasks()
        assert moving.failed == [moving.two.there]

    play(test)


def test_impossible_moves_are_rejected_and_a_replica_not_hosted_yet_is_created_at_the_target() -> None:
    async def test(stage: PartStage) -> None:
        moving = Moving(stage)
        assert moving.moves.alter("orders", 0, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        moving.found = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert moving.moves.alter("orders", 0, "/more") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        moving.found = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert moving.moves.alter("orders", 0, "/more") is ErrorCode.REPLICA_NOT_AVAILABLE
        assert moving.two.directories.preferred == {("orders", 0): moving.two.there}
        moving.two.there.storage = None
        assert moving.moves.alter("orders", 0, "/more") is ErrorCode.KAFKA_STORAGE_ERROR

    play(test)
