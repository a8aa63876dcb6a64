"""Follower fetches of a partition whose leader has not applied its role yet: the partition is omitted from responses
until the role is applied.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.api.fetch.sessions import FetchSession
from kraft.broker.replica.follower import FollowerStatus
from kraft.broker.roles import role_turns
from kraft.broker.roles.fetches_awaiting_roles import FetchesAwaitingRoles
from kraft.broker.roles.replica_manager import ReplicaManager
from kraft.broker.roles.role_applier import AssignedPartition
from kraft.broker.roles.role_turns import assigned_of
from kraft.image import ImageDelta, TopicDelta
from tests.stages.images import ORDERS, image_of, orders, three_brokers
from tests.stages.plane import Plane, batch, three
from tests.stages.replicas import BROKERS

LONGER_THAN_ANY_TIMER_MS = 400_000


def replicas_of(plane: Plane, broker_id: int) -> ReplicaManager:
    found: ReplicaManager = plane.cluster.node(broker_id).broker.broker.replicas
    return found


def statuses(plane: Plane, broker_id: int) -> list[FollowerStatus]:
    fetchers = replicas_of(plane, broker_id).fetchers
    return [followed.state.status for fetcher in fetchers for followed in fetcher._followed.values()]


@pytest.mark.parametrize("has_session", [False, True])
def test_a_follower_fetch_before_the_leader_has_applied_its_role_waits_and_counts_afterwards(
    has_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(plane: Plane) -> None:
        if has_session:
            await plane.create_topic("earlier", leader=1)
        leader = replicas_of(plane, 1)
        with monkeypatch.context() as patch:
            patch.setattr(leader.roles.turns._turns, "start", lambda: None)
            await plane.create_topic("orders", partitions=7, leader=1)
            await plane.world.sleep_ms(1_500)
            assert len(leader.fetches_awaiting_roles) == 7
            for follower in (2, 3):
                assert set(statuses(plane, follower)) == {FollowerStatus.FETCHING}
            leader.roles.roles.apply(
                leader.roles.turns.image, AssignedPartition(plane.partition("orders", 2).topic_id, 3, is_new=True)
            )
            assert len(leader.fetches_awaiting_roles) == 6, "the turns are not over"
        leader.roles.turns._turns.start()
        await plane.world.sleep_ms(50)
        assert len(leader.fetches_awaiting_roles) == 0
        for index in range(7):
            state = plane.partition("orders", 1, index).leader
            assert state is not None
            assert all(state.followers[follower].end_offset == 0 for follower in (2, 3))
        began_ns = plane.world.now_ns
        assert (await plane.produce("orders", batch("first"), 3)).error_code == 0
        assert (plane.world.now_ns - began_ns) / 1e6 < 100
        await plane.world.sleep_ms(LONGER_THAN_ANY_TIMER_MS)
        states = [plane.partition("orders", 1, index).state for index in range(7)]
        assert all(state is not None and set(state.isr) == set(BROKERS) for state in states)
        assert all(state is not None and state.partition_epoch == 0 for state in states)

    three(test)


class Stage:
    """Roles of which some are not applied yet, and a follower's session that fetches partitions led by this broker."""

    def __init__(self, replica_id: int = 2) -> None:
        image = image_of(*three_brokers(), *orders())
        self.are_taken = False
        self.roles = FetchesAwaitingRoles(1, lambda: image, lambda: self.are_taken)
        self.session = FetchSession(replica_id, uses_topic_ids=True, now_ms=0)
        self.wakes = 0
        self.session.parked = self  # type: ignore[assignment]

    def wake(self) -> None:
        self.wakes += 1

    def wait(self, index: int) -> bool:
        entry = self.session.partition(ORDERS, index)
        self.session.dirty[entry] = None
        return self.roles.wait(entry)


def test_only_follower_fetches_wait_for_a_role_and_only_if_this_broker_is_about_to_lead() -> None:
    stage = Stage()
    assert [stage.wait(index) for index in range(4)] == [True, False, False, False]
    assert [entry.index for entry in stage.session.dirty] == [1, 2, 3]
    stage.are_taken = True
    assert not stage.wait(0)
    assert not Stage(replica_id=-1).wait(0)


def test_a_fetch_that_waits_for_a_role_is_woken_when_all_roles_of_the_image_have_been_applied() -> None:
    stage = Stage()
    stage.wait(0)
    stage.roles.roles_applied()
    assert (stage.wakes, len(stage.roles)) == (0, 1)
    stage.are_taken = True
    stage.roles.roles_applied()
    assert (stage.wakes, len(stage.roles)) == (1, 0)
    assert [entry.index for entry in stage.session.dirty] == [0]


def test_a_partition_dropped_by_its_session_while_it_awaits_its_role_wakes_no_fetch() -> None:
    stage = Stage()
    stage.wait(0)
    stage.session.forget([(ORDERS, 0)])
    partition: Any = SimpleNamespace(key=(ORDERS, 0))
    stage.roles.replica_hosted(partition)
    assert (stage.wakes, len(stage.roles), len(stage.session.dirty)) == (0, 0, 0)


def test_the_roles_of_a_metadata_delta_are_yielded_one_by_one_leaders_first() -> None:
    old, new = image_of(*three_brokers()), image_of(*three_brokers(), *orders())
    seen: list[int] = []

    class Watched(tuple[int, ...]):
        def __iter__(self) -> Any:
            for index in tuple.__iter__(self):
                seen.append(index)
                yield index

    delta = ImageDelta(topics={ORDERS: TopicDelta("orders", ORDERS, Watched((1, 0, 2)), True)})
    found = assigned_of(1, old, new, delta)
    first = next(found)
    assert first is not None
    assert first.number == 0
    assert seen == [1, 0]
    assert [one.number for one in found if one is not None] == [1, 2]


def test_a_turn_can_end_while_a_large_delta_is_searched_for_partitions_of_this_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(role_turns, "PASSED_OVER_MAX", 2)
    old, new = image_of(*three_brokers()), image_of(*three_brokers(), *orders())
    delta = ImageDelta(topics={ORDERS: TopicDelta("orders", ORDERS, (0, 1, 2), True)})
    assert list(assigned_of(9, old, new, delta)) == [None]
