"""Mutations of groups: B48 to B53."""

from __future__ import annotations

from typing import Any

from kraft.broker.group import coordinator, expiry, offsets
from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.requests import CommitReply, CommitRequest, PartitionError
from kraft.client.core.assignors import sticky
from kraft.client.group import GroupMembership
from kraft.wire.error_codes import ErrorCode
from tests.bugbank import group_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "Groups"


@bug(
    "B48",
    "a generation begins again at a failover",
    part=PART,
    expected=("G1", "G4", "G3"),
    directed=play.a_coordinator_dies,
    swarm=play.groups,
)
def generation_restarts(plant: Planting) -> None:
    original = ClassicGroup.loaded

    def twin(group_id: str, value: Any) -> ClassicGroup:
        group = original(group_id, value)
        group.generation = 0
        return group

    plant.replace(ClassicGroup, "loaded", staticmethod(twin))


@bug(
    "B49",
    "a coordinator keeps answering when its partition is led elsewhere",
    part=PART,
    expected=("G6", "G3"),
    directed=play.the_partition_has_moved,
    no_swarm="on the bench nobody asks a coordinator that was replaced",
)
def old_coordinator_answers(plant: Planting) -> None:
    original = GroupCoordinator.unload

    def twin(self: GroupCoordinator, now: Any) -> Any:
        kept = dict(self.groups)
        step = original(self, now)
        self.groups.update(kept)
        return step

    plant.replace(GroupCoordinator, "unload", twin)


@bug(
    "B50",
    "offsets expire while their group rebalances",
    part=PART,
    expected=("G3", "C2"),
    directed=play.a_rebalance_hangs,
    no_swarm="the swarm's time does not reach a retention time",
)
def expire_while_rebalancing(plant: Planting) -> None:
    original = expiry._is_over

    def twin(group: ClassicGroup, topic: str, value: Any, now_ms: int, retention_ms: int) -> bool:
        if group.state is GroupState.PREPARING_REBALANCE:
            return bool(now_ms - value.commit_timestamp >= retention_ms)
        return original(group, topic, value, now_ms, retention_ms)

    plant.replace(expiry, "_is_over", twin)


@bug(
    "B51",
    "a claim to a partition counts whatever its generation",
    part=PART,
    expected=("G2", "G9"),
    directed=play.a_stale_claim,
    swarm=play.claims,
)
def stale_claims(plant: Planting) -> None:
    def twin(claims: Any) -> dict[Any, str]:
        return {partition: name for name, (owned, _) in sorted(claims.items()) for partition in owned}

    plant.replace(sticky, "_owners", twin)


@bug(
    "B52",
    "a static member that was replaced may still commit",
    part=PART,
    expected=("G4",),
    directed=play.a_static_member_is_replaced,
    no_swarm="the swarm's static members forget who they were when they return",
)
def replaced_member_commits(plant: Planting) -> None:
    original = offsets._commit_error

    def twin(group: ClassicGroup | None, request: Any) -> ErrorCode:
        error = original(group, request)
        is_current = group is not None and request.generation == group.generation
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID and is_current else error

    plant.replace(offsets, "_commit_error", twin)


@bug(
    "B53",
    "the refusal of an old request resets the member's new generation",
    part=PART,
    expected=("L8", "L12", "G8"),
    directed=play.a_late_refusal,
    no_swarm="the swarm's members are not our client",
)
def stale_answer_resets(plant: Planting) -> None:
    def twin(self: GroupMembership, member: Any, reaction: Any) -> None:
        self._react(reaction, ErrorCode.NONE, "")
        self.rejoin()

    plant.replace(GroupMembership, "_on_refused", twin)


@bug(
    "B49b",
    "a commit is acknowledged before its record is committed",
    part=PART,
    expected=("G3", "G6"),
    directed=play.commits_that_are_lost,
    swarm=play.groups,
)
def acknowledge_before_the_log(plant: Planting) -> None:
    def twin(shard: Any, request: Any, ticket: Any, turn: Any) -> None:
        rows = tuple(PartitionError(row.topic, row.partition, ErrorCode.NONE) for row in request.offsets)
        turn.reply(ticket, CommitReply(rows))

    plant.put(coordinator.HANDLERS, CommitRequest, twin)
