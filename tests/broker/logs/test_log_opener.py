"""LogOpener and LogMaker without a broker: the order in which logs are opened, folders of another topic, and
outcomes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from kraft.broker.logs.opening_queue import LogContext, LogMaker, LogOpener
from kraft.broker.partition.log_directories import HostedDirectory
from kraft.config import NodeConfig, TopicConfig
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.handles import FileCache
from tests.stages.broker_harness import PROPERTIES
from tests.stages.part_stage import PartStage, play, replica


class Opening:
    """A LogOpener with a scripted open function, which records the partitions to open and raises `trouble` if it is
    set."""

    def __init__(self) -> None:
        self.asked, self.outcomes = list[Any](), list[Any]()
        self.trouble: Exception | None = None
        self.directory: Any = SimpleNamespace(path="/data", is_online=True)
        self.opener = LogOpener(
            self._open,
            opened=lambda partition, log: self.outcomes.append(("opened", partition)),
            damaged=lambda partition, error: self.outcomes.append(("damaged", partition)),
            directory_failed=lambda directory, error: self.outcomes.append(("failed", directory)),
        )

    def replica(self, index: int, **members: Any) -> Any:
        return replica(index=index, directory=self.directory, **members)

    async def _open(self, partition: Any, directory: Any) -> Any:
        assert partition.blocking.locked()
        self.asked.append(partition)
        await trio.lowlevel.checkpoint()
        if self.trouble is not None:
            raise self.trouble
        return SimpleNamespace()


def test_logs_with_waiting_requests_are_opened_first_and_each_log_is_opened_once() -> None:
    async def test(stage: PartStage) -> None:
        opening = Opening()
        first, second, urgent = (opening.replica(index) for index in range(3))
        for one in (first, second, first):
            opening.opener.request(one, urgent=False)
        opening.opener.request(urgent, urgent=True)
        assert opening.opener.waiting() == {"/data": 3}
        stage.loop.start_task(opening.opener.serve)
        await opening.opener.wait_idle()
        assert opening.asked == [urgent, first, second]
        assert opening.outcomes == [("opened", one) for one in opening.asked]

    play(test)


def test_the_opening_queue_skips_a_replica_that_was_removed() -> None:
    async def test(stage: PartStage) -> None:
        opening = Opening()
        opening.opener.request(opening.replica(0, is_removed=True), urgent=True)
        stage.loop.start_task(opening.opener.serve)
        await opening.opener.wait_idle()
        assert opening.asked == []

    play(test)


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [
        (StorageCorrupt("damaged"), "damaged"),
        (DiskError("no", errno=5, path="/data"), "failed"),
    ],
)
def test_each_kind_of_error_while_opening_a_log_calls_its_own_handler(trouble: Exception, outcome: str) -> None:
    async def test(stage: PartStage) -> None:
        opening = Opening()
        opening.trouble = trouble
        partition = opening.replica(0)
        opening.opener.request(partition, urgent=True)
        stage.loop.start_task(opening.opener.serve)
        await opening.opener.wait_idle()
        assert opening.outcomes == [(outcome, partition if outcome == "damaged" else opening.directory)]

    play(test)


def test_a_folder_of_another_topic_id_is_renamed_to_stray_before_the_log_is_created() -> None:
    async def test(stage: PartStage) -> None:
        directory, waited, dropped = HostedDirectory("/data"), list[Any](), list[Any]()
        stage.open_directory(directory)
        stage.open_log(records=2)
        directory.log_starts["orders", 0] = 2

        async def wait_retired(*key: Any) -> None:
            waited.append(key)

        async def drop_forgotten(directory: HostedDirectory, *key: Any) -> None:
            dropped.append(dict(directory.log_starts))

        checkpoints: Any = SimpleNamespace(drop_forgotten=drop_forgotten)
        maker = LogMaker(stage.loop, LogContext(FileCache(10), 1_000), checkpoints, wait_retired)
        settings = TopicConfig.resolve({}, {}, NodeConfig.parse(PROPERTIES))
        partition = replica(topic_id=UUID(int=1), config=settings)
        opened = await maker.open(partition, directory)
        assert opened is not None
        assert (opened.log_start_offset, opened.log_end_offset) == (0, 0)
        assert waited == [("orders", 0)]
        assert dropped == [{("orders", 0): 2}, {}], "what is said of the old log is not said of the new one"
        assert sum(name.endswith("-stray") for name in stage.disk.list("/data")) == 1

    play(test)
