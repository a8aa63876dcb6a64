"""The parts that apply roles, each tested without a broker: the effect of a state on a replica, the placement of a
replica, the order of roles, and the removal of a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.logs.opened_logs import OpenedLogs
from kraft.broker.partition.log_directories import LogDirectories
from kraft.broker.roles.replica_placement import ReplicaPlacement
from kraft.broker.roles.replica_removal import ReplicaRemoval
from kraft.broker.roles.role_applier import AssignedPartition, RoleApplier
from kraft.broker.roles.role_turns import RoleTurns
from kraft.image import ImageDelta, TopicDelta
from kraft.image.partitions import PartitionState
from kraft.image.registrations import UNASSIGNED_DIRECTORY, ConfigResourceType
from tests.stages.images import ORDERS, image_of, orders, three_brokers
from tests.stages.part_stage import PartStage, play, replica

SELF = 1
IMAGE = image_of(*three_brokers(), *orders())
TOPIC = IMAGE.topics.get("orders")
assert TOPIC is not None


def state_of(index: int) -> PartitionState:
    assert TOPIC is not None
    return TOPIC.partition(index)


class Events(list[str]):
    """A record of calls, by name and partition."""

    def of(self, name: str) -> Callable[..., Any]:
        return lambda partition, *rest, **named: self.append(f"{name} {partition.index}")


class Roles:
    """A RoleApplier whose replicas record the calls to them."""

    def __init__(self) -> None:
        self.events = Events()
        self.known: dict[int, Any] = {}
        events: Any = self.events
        hosted: Any = SimpleNamespace(find=lambda topic_id, index: self.known.get(index))
        fetchers: Any = SimpleNamespace(stop=events.of("stop"), begin=events.of("fetch"))
        placement: Any = SimpleNamespace(place=events.of("place"), open_log_if_needed=events.of("open"))
        self.roles = RoleApplier(SELF, hosted, fetchers, placement, new_replica=self._new, remove=events.of("remove"))

    def _new(self, topic: Any, index: int) -> Any:
        one = self.known[index] = replica(index=index, state=None)

        def take(name: str) -> Callable[[PartitionState], None]:
            def taken(state: PartitionState) -> None:
                one.state = state
                self.events.append(f"{name} {index}")

            return taken

        one.lead, one.keep_leading, one.follow = take("lead"), take("keep leading"), take("follow")
        one.keep_following = take("keep following")
        return one


def test_a_new_replica_is_placed_and_leaves_its_fetcher_before_its_role_is_applied() -> None:
    stage = Roles()
    stage.roles.apply(IMAGE, AssignedPartition(ORDERS, 0))
    assert stage.events == ["place 0", "stop 0", "lead 0", "open 0"]
    stage.events.clear()
    stage.roles.apply(IMAGE, AssignedPartition(ORDERS, 1))
    assert stage.events == ["place 1", "stop 1", "follow 1", "open 1", "fetch 1"]
    stage.events.clear()
    stage.roles.apply(IMAGE, AssignedPartition(ORDERS, 0))
    assert stage.events == ["keep leading 0"]


def test_a_replica_of_a_deleted_topic_is_removed() -> None:
    stage = Roles()
    stage.roles.apply(IMAGE, AssignedPartition(ORDERS, 0))
    stage.events.clear()
    stage.roles.apply(image_of(*three_brokers()), AssignedPartition(ORDERS, 0))
    assert stage.events == ["remove 0"]


class Placing:
    """ReplicaPlacement with two directories; `reported` has the reports to the controller."""

    def __init__(self, stage: PartStage) -> None:
        config: Any = SimpleNamespace(log_dirs=("/data", "/more"))
        self.directories = LogDirectories(config, stage.disk)
        for number, one in enumerate(self.directories.all):
            one.storage, one.known_id, one.is_clean = object(), UUID(int=1_000 + number), True  # type: ignore[assignment]
        self.reported, self.lost, self.soon = list[Any](), list[Any](), list[Any]()
        self.is_known = True
        assignments: Any = SimpleNamespace(
            report=lambda partition, directory_id: self.reported.append(directory_id),
            is_known=lambda partition, directory_id: self.is_known,
        )
        lost: Any = SimpleNamespace(report=self.lost.append)
        self.placement = ReplicaPlacement(SELF, self.directories, assignments, lost, self.soon.append)


def new_partition(index: int, **members: Any) -> Any:
    one = replica(index=index, directory=None, state=state_of(index), **members)

    def placed(directory: Any, *, is_unwritten: bool) -> None:
        one.directory, one.is_unwritten = directory, is_unwritten

    def not_placed() -> None:
        one.is_offline = True

    one.placed, one.not_placed = placed, not_placed
    return one


def test_a_replica_is_placed_in_the_directory_of_its_log_and_is_unwritten_if_it_has_no_log() -> None:
    async def test(stage: PartStage) -> None:
        placing = Placing(stage)
        first, second = placing.directories.all
        second.held.add(("orders", 0))
        found, blank = new_partition(0), new_partition(1)
        for one in (found, blank):
            placing.placement.place(one, one.state, is_new=True)
        assert (found.directory, found.is_unwritten) == (second, False)
        assert (blank.directory, blank.is_unwritten) == (first, True)

    play(test)


def test_a_replica_possibly_in_an_offline_directory_goes_offline_and_is_reported_unless_already_known() -> None:
    async def test(stage: PartStage) -> None:
        placing = Placing(stage)
        placing.directories.all[1].storage = None
        one = new_partition(0)
        placing.placement.place(one, one.state, is_new=False)
        assert (one.is_offline, one.directory, placing.lost) == (True, None, []), "the metadata name another directory"
        unassigned = one.state._replace(directories=(UNASSIGNED_DIRECTORY,) * 3)
        placing.placement.place(one, unassigned, is_new=False)
        assert placing.lost == [one]

    play(test)


@pytest.mark.parametrize(
    ("index", "is_clean", "is_known", "opens"),
    [(0, True, True, False), (0, False, True, True), (0, True, False, True), (1, True, True, True)],
)
def test_a_cleanly_closed_log_of_a_leader_in_its_assigned_directory_is_opened_on_demand(
    index: int, is_clean: bool, is_known: bool, opens: bool
) -> None:
    async def test(stage: PartStage) -> None:
        placing = Placing(stage)
        directory = placing.directories.all[0]
        directory.is_clean, placing.is_known = is_clean, is_known
        one = new_partition(index)
        one.directory = directory
        placing.placement.open_log_if_needed(one)
        assert placing.soon == ([one] if opens else [])

    play(test)


class Turning:
    """RoleTurns that only record the roles of their replicas."""

    def __init__(self, stage: PartStage) -> None:
        self.taken: list[Any] = []
        self.turns_ended = 0
        old = image_of(*three_brokers())
        roles: Any = SimpleNamespace(apply=lambda image, assigned: self.taken.append(assigned.number))
        hosted: Any = SimpleNamespace(of_topic=lambda topic: [replica(index=9)], __iter__=lambda self: iter(()))
        self.old = old
        self.turns = RoleTurns(
            stage.loop,
            SELF,
            old,
            hosted,
            roles,
            take_brokers=lambda image: self.taken.append("brokers"),
            redirect=lambda brokers: self.taken.append("redirect"),
            configure=lambda partition: self.taken.append("configure"),
            after_turn=self._after_turn,
        )

    def _after_turn(self) -> None:
        self.turns_ended += 1


def test_role_turns_apply_deletions_then_settings_then_leaders_then_followers() -> None:
    async def test(stage: PartStage) -> None:
        turning = Turning(stage)
        delta = ImageDelta(
            topics={ORDERS: TopicDelta("orders", ORDERS, (1, 0, 2), True)},
            deleted_topics={UUID(int=5): "gone"},
            configs=frozenset({(ConfigResourceType.TOPIC, "orders")}),
        )
        turning.turns.apply(turning.old, IMAGE, delta, lambda: turning.taken.append("then"))
        assert turning.taken == [9, "configure", 0, 1, 2, "then"]
        assert (turning.turns.image, turning.turns.is_over, turning.turns_ended) == (IMAGE, True, 1)

    play(test)


def test_role_turns_apply_every_role_of_the_first_image() -> None:
    async def test(stage: PartStage) -> None:
        turning = Turning(stage)
        turning.turns.begin(IMAGE)
        await turning.turns.load(IMAGE)
        assert turning.taken == ["brokers", 0, 1, 2]

    play(test)


@pytest.mark.parametrize(
    ("is_unwritten", "is_being_made", "retires"), [(False, False, 1), (True, False, 0), (True, True, 1)]
)
def test_a_removed_replica_is_stopped_and_its_folder_retired_if_it_has_one(
    is_unwritten: bool, is_being_made: bool, retires: int
) -> None:
    async def test(stage: PartStage) -> None:
        events = Events()
        kept: list[Any] = []
        directory = SimpleNamespace(partitions=SimpleNamespace(discard=events.of("taken out")))
        one = replica(is_unwritten=is_unwritten, directory=directory)
        one.removed = lambda: events.append("removed")
        if is_being_made:
            one.blocking.acquire_nowait()
        hosted: Any = SimpleNamespace(drop=lambda partition: True)
        fetchers: Any = SimpleNamespace(stop=events.of("stop"))
        removal = ReplicaRemoval(
            hosted,
            fetchers,
            give_up_move=events.of("give up"),
            retire=lambda partition, log: kept.append(partition),
            forget_topic=lambda name: events.append(name),
        )
        removal.remove(one)
        assert events == ["stop 0", "give up 0", "orders", "removed", "taken out 0"]
        assert len(kept) == retires

    play(test)


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_opened_log_is_passed_to_its_replica_unless_the_replica_was_removed(is_removed: bool) -> None:
    async def test(stage: PartStage) -> None:
        events = Events()
        opened: Any = SimpleNamespace(
            recovery_report=SimpleNamespace(bytes_cut=0),
            unsynced=True,
            release=lambda: events.append("released"),
            update_config=lambda config: events.append(config),
        )
        directory = SimpleNamespace(is_online=True, directory_id=UUID(int=1), high_watermarks={("orders", 0): 4})
        one = replica(is_removed=is_removed, directory=directory)
        one.opened = lambda log, mark: events.append(f"opened at {mark}")
        context: Any = SimpleNamespace(config_of=lambda partition: "newest settings")
        assignments: Any = SimpleNamespace(report=events.of("report"))
        logs = OpenedLogs(
            stage.loop,
            context,
            assignments,
            begin_fetching=events.of("fetch"),
            resume_move=events.of("move"),
            request_sync=events.of("sync"),
        )
        logs.take(one, opened)
        usual = ["report 0", "move 0", "newest settings", "opened at 4", "sync 0", "fetch 0"]
        assert events == (["released"] if is_removed else usual)

    play(test)
