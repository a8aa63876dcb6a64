"""Fetchers without a broker: from which leader a partition is fetched, and when it is not fetched at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kraft.broker.following.fetchers import Fetchers
from kraft.image.partitions import NO_LEADER
from tests.stages.part_stage import PartStage, play, replica

SELF = 1


class FakeFetcher:
    """Stands in for a LeaderFetcher, and records the calls to it."""

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.added: dict[Any, int] = {}
        self.runs = self.nudges = self.redials = 0

    async def run(self) -> None:
        self.runs += 1
        await trio.lowlevel.checkpoint()

    def followed(self, partition: Any) -> int | None:
        return self.added.get(partition)

    def add(self, partition: Any, leader_epoch: int) -> None:
        self.added[partition] = leader_epoch

    def remove(self, partition: Any) -> None:
        self.added.pop(partition, None)

    def nudge(self) -> None:
        self.nudges += 1

    def endpoint_changed(self) -> None:
        self.redials += 1


def fetchers_of(stage: PartStage) -> Fetchers:
    make: Any = FakeFetcher
    return Fetchers(stage.loop, SELF, make)


def following(leader: int, leader_epoch: int = 4, **members: Any) -> Any:
    return replica(
        **{"log": SimpleNamespace(), "state": SimpleNamespace(leader=leader, leader_epoch=leader_epoch), **members}
    )


def test_a_partition_is_fetched_from_its_leader_once_and_each_leader_has_one_fetcher() -> None:
    async def test(stage: PartStage) -> None:
        fetchers = fetchers_of(stage)
        first, second, other = following(2), following(2), following(3)
        for one in (first, first, second, other):
            fetchers.begin(one)
        await stage.finish_tasks()
        found: Any = list(fetchers)
        assert [one.leader_id for one in found] == [2, 3]
        assert [one.added for one in found] == [{first: 4, second: 4}, {other: 4}]
        assert [(one.runs, one.nudges) for one in found] == [(1, 2), (1, 1)]
        fetchers.stop(first)
        assert found[0].added == {second: 4}

    play(test)


@pytest.mark.parametrize(
    "partition",
    [following(SELF), following(NO_LEADER), following(2, is_truncating=True), following(2, log=None)],
)
def test_a_partition_without_leader_or_readable_log_is_not_fetched(partition: Any) -> None:
    async def test(stage: PartStage) -> None:
        fetchers = fetchers_of(stage)
        fetchers.begin(partition)
        assert not list(fetchers)

    play(test)


def test_an_unwritten_replica_is_fetched_without_a_log() -> None:
    async def test(stage: PartStage) -> None:
        fetchers = fetchers_of(stage)
        fetchers.begin(following(2, log=None, is_unwritten=True))
        assert len(list(fetchers)) == 1

    play(test)


def test_only_fetchers_of_brokers_that_registered_again_reconnect() -> None:
    async def test(stage: PartStage) -> None:
        fetchers = fetchers_of(stage)
        fetchers.begin(following(2))
        fetchers.begin(following(3))
        fetchers.redirect([3, 4])
        found: Any = list(fetchers)
        assert [one.redials for one in found] == [0, 1]

    play(test)
