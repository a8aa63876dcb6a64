"""Mutations of consumer groups of the next-generation protocol: B48 to B53, as that protocol can have them."""

from __future__ import annotations

from typing import Any

from kraft.broker.consumer_group import heartbeat as heartbeats
from kraft.broker.consumer_group import membership, migration, records
from kraft.broker.consumer_group.requests import ConsumerHeartbeatReply
from kraft.broker.consumer_group.state import ConsumerGroup
from kraft.broker.group import consumer_offsets, coordinator
from kraft.broker.group.step import CoordinatorCall, SendReply
from kraft.client.owned_partitions import OwnedPartitions
from tests.bugbank.consumer_groups import consumer_group_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "Consumer groups"


@bug(
    "B48b",
    "a coordinator that loads a group forgets what its members still have to revoke",
    part=PART,
    expected=("G7b", "G2b"),
    directed=play.a_revocation_lasts_over_a_failover,
    swarm=play.members,
)
def revocation_is_forgotten(plant: Planting) -> None:
    original = records.VALUE_READERS[8]

    def twin(reader: Any) -> Any:
        return original(reader)._replace(revoking={})

    plant.put(records.VALUE_READERS, 8, twin)


@bug(
    "B48c",
    "a coordinator that loads a group sets no session timers",
    part=PART,
    expected=("L8", "G9b"),
    directed=play.a_member_dies_with_its_coordinator,
    swarm=play.members,
)
def no_sessions_after_load(plant: Planting) -> None:
    plant.replace(coordinator, "begin_consumer_groups", lambda shard, call: None)


@bug(
    "B49c",
    "the answer to a heartbeat leaves before its records are committed",
    part=PART,
    expected=("G6b",),
    directed=play.an_answer_before_its_commit,
    swarm=play.members,
)
def answer_before_commit(plant: Planting) -> None:
    original = CoordinatorCall.then

    def twin(self: CoordinatorCall, after: Any) -> None:
        if isinstance(after, SendReply) and isinstance(after.reply, ConsumerHeartbeatReply):
            self.reply(after.ticket, after.reply)
        else:
            original(self, after)

    plant.replace(CoordinatorCall, "then", twin)


@bug(
    "B51b",
    "a partition is given to a member while another one still has it",
    part=PART,
    expected=("G2b", "G2c"),
    directed=play.a_member_waits_for_a_revocation,
    swarm=play.members,
)
def holders_are_ignored(plant: Planting) -> None:
    def twin(self: ConsumerGroup, member_id: str, topic_id: Any, partition: int) -> bool:
        return True

    plant.replace(ConsumerGroup, "is_free_for", twin)


@bug(
    "B51c",
    "a group that is upgraded forgets what its members own",
    part=PART,
    expected=("G2c",),
    directed=play.a_group_changes_its_protocol,
    swarm=play.mixed_groups,
)
def upgrade_forgets_owners(plant: Planting) -> None:
    def twin(rows: Any, generation: int, topics: Any) -> dict[str, Any]:
        return {row.member.member_id: {} for row in rows}

    plant.replace(migration, "_held", twin)


@bug(
    "B51d",
    "a member that was fenced keeps its partitions",
    part=PART,
    expected=("G2c", "C2", "G2"),
    directed=play.a_member_is_cut_off,
    no_swarm="in a run that is short enough, a member is seldom removed and comes back",
)
def fenced_member_keeps_partitions(plant: Planting) -> None:
    original = OwnedPartitions.revoke

    async def twin(self: OwnedPartitions, revoked: Any, *, commit_ms: Any = None) -> None:
        if not self.is_lost:
            await original(self, revoked, commit_ms=commit_ms)

    plant.replace(OwnedPartitions, "revoke", twin)


@bug(
    "B52b",
    "a static member takes the place of another one, which stays",
    part=PART,
    expected=("G2b", "G9b"),
    directed=play.a_static_member_returns,
    swarm=play.members,
)
def replaced_member_stays(plant: Planting) -> None:
    plant.replace(membership, "remove_member", lambda draft, member_id: None)


@bug(
    "B52c",
    "a commit of any earlier epoch is accepted",
    part=PART,
    expected=("G4b", "G3c"),
    directed=play.a_late_commit,
    no_swarm="the client commits with its newest epoch; only a request that is held up has an earlier one",
)
def any_epoch_commits(plant: Planting) -> None:
    plant.replace(consumer_offsets, "_has_held", lambda current, epoch, row, topics: True)


@bug(
    "B53b",
    "a regular expression is resolved only once",
    part=PART,
    expected=("L8", "G9b"),
    directed=play.a_topic_that_matches_is_added,
    no_swarm="the random members must get what the group has resolved, whatever that is",
)
def expression_is_resolved_once(plant: Planting) -> None:
    plant.replace(heartbeats, "refresh", lambda *around: None)


@bug(
    "B53c",
    "a group's epoch does not rise when a topic grows",
    part=PART,
    expected=("L8", "G9b"),
    directed=play.a_topic_grows,
    no_swarm="among random members one always joins or leaves after a topic has grown",
)
def growth_is_ignored(plant: Planting) -> None:
    original = heartbeats.bump_if_changed

    def twin(draft: Any, topics: Any, memory: Any, *, is_changed: bool) -> None:
        if is_changed:
            original(draft, topics, memory, is_changed=True)

    plant.replace(heartbeats, "bump_if_changed", twin)
