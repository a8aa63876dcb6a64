"""LogSyncer without a broker: which bytes it syncs to the device, and which partition it notifies."""

from __future__ import annotations

from typing import Any

from kraft.broker.logs.device_sync import LogSyncer
from kraft.seam import DiskError
from kraft.storage.handles import FileCache
from tests.stages.part_stage import PartStage, play, replica


def hosted(stage: PartStage, **members: Any) -> Any:
    synced: list[int] = []
    found = replica(stage.open_log(records=3), syncs_appends=True, leader_epoch=4, **members)
    found.synced = lambda: synced.append(found.log.synced_end_offset)
    found.readied = synced.append
    found.seen = synced
    return found


def test_a_requested_sync_starts_at_the_end_of_the_pass_and_notifies_the_partition() -> None:
    async def test(stage: PartStage) -> None:
        partition, failures = hosted(stage), list[Any]()
        syncer = LogSyncer(stage.loop, FileCache(100), lambda *failure: failures.append(failure))
        syncer.request_sync(partition)
        await stage.finish_tasks()
        assert partition.seen == []
        syncer.start_requested()
        syncer.request_sync(partition)
        syncer.start_requested()
        await stage.finish_tasks()
        assert (partition.seen, failures, stage.passes) == ([3], [], 1), "one sync per log is under way"
        syncer.start_requested()
        await stage.finish_tasks()
        assert stage.passes == 2, "what was wanted meanwhile came next"

    play(test)


def test_unsynced_appends_that_no_produce_waits_for_are_synced_only_by_a_full_sync() -> None:
    async def test(stage: PartStage) -> None:
        partition = hosted(stage)
        partition.syncs_appends = False
        syncer = LogSyncer(stage.loop, FileCache(100), lambda *_: None)
        for want, seen in ((syncer.request_sync, []), (syncer.request_full_sync, [3])):
            want(partition)
            syncer.start_requested()
            await stage.finish_tasks()
            assert partition.seen == seen

    play(test)


def test_a_failed_sync_fails_the_partition_and_is_not_retried() -> None:
    async def test(stage: PartStage) -> None:
        partition, failures = hosted(stage), list[tuple[Any, DiskError]]()
        syncer = LogSyncer(stage.loop, FileCache(100), lambda *failure: failures.append(failure))
        stage.world.sync_fails("machine", True)
        syncer.request_sync(partition)
        for _ in range(2):
            syncer.start_requested()
            await stage.finish_tasks()
        assert [failed for failed, _ in failures] == [partition]
        assert partition.seen == []

    play(test)


def test_a_log_is_made_ready_for_appends_in_the_requested_leader_epoch() -> None:
    async def test(stage: PartStage) -> None:
        partition = hosted(stage)
        LogSyncer(stage.loop, FileCache(100), lambda *_: None).request_ready(partition)
        await stage.finish_tasks()
        assert partition.seen == [4]

    play(test)
