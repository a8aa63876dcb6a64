"""Mutations of the controller: B12, B13, B17, B31 to B40, and B63."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kraft.control.brokers import fencing
from kraft.control.brokers import registration as brokers
from kraft.control.commands import FenceBrokers
from kraft.control.decide import COMMANDS
from kraft.control.partitions import isr, plans
from kraft.control.partitions.partition_change import Election
from kraft.control.partitions.plans import Slice
from kraft.controller import command_queue as controller_commands
from kraft.controller.command_queue import CommandQueue
from kraft.image import MetadataImage, events
from kraft.wire.error_codes import ErrorCode
from tests.bugbank import control_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

image_dump = importlib.import_module("kraft.image.dump")  # the package has functions of these names
image_replay = importlib.import_module("kraft.image.replay")

PART = "Controller"


@bug(
    "B13",
    "a new leader answers reads before it has committed in its epoch",
    part=PART,
    expected=("R20", "M9"),
    directed=play.a_new_leader_gets_requests_at_once,
    no_swarm="in whole nodes the line is told that it leads only once a record of its epoch is committed",
)
def read_before_the_first_commit(plant: Planting) -> None:
    original = CommandQueue.activate

    def twin(self: CommandQueue, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
        original(self, committed, epoch, max(high_watermark, committed.offset))

    plant.replace(CommandQueue, "activate", twin)


@bug(
    "B17",
    "snapshots leave out that a broker is fenced",
    part=PART,
    expected=("M2", "R16", "L3"),
    directed=play.a_snapshot_is_loaded,
    swarm=play.control_plane,
)
def snapshots_forget_fences(plant: Planting) -> None:
    original = image_dump.dump

    def twin(image: MetadataImage) -> Iterator[Any]:
        for event in original(image):
            yield replace(event, fenced=False) if isinstance(event, events.RegisterBroker) else event

    plant.replace(image_dump, "dump", twin, play)


@bug(
    "B17b",
    "snapshots leave out the finalized features",
    part=PART,
    expected=("M2", "R16", "L3"),
    directed=play.a_snapshot_is_loaded,
    swarm=play.control_plane,
)
def snapshots_forget_features(plant: Planting) -> None:
    original = image_dump.dump

    def twin(image: MetadataImage) -> Iterator[Any]:
        return (event for event in original(image) if not isinstance(event, events.FeatureLevel))

    plant.replace(image_dump, "dump", twin, play)


@bug(
    "B31",
    "a reply leaves when its record is appended",
    part=PART,
    expected=("M9", "M11"),
    directed=play.a_reply_waits_for_the_quorum,
    swarm=play.lines,
)
def reply_on_append(plant: Planting) -> None:
    def twin(self: CommandQueue, parked: Any) -> None:
        parked.asked.waiter.reply(parked.reply)

    plant.replace(CommandQueue, "_park", twin)


@bug(
    "B32",
    "what is not committed outlives leadership",
    part=PART,
    expected=("M1", "M2"),
    directed=play.leadership_is_lost_and_won,
    swarm=play.lines,
)
def no_rollback(plant: Planting) -> None:
    original = CommandQueue.activate
    last: list[MetadataImage] = []

    def deactivate(self: CommandQueue) -> None:
        if self.image is not None:
            last.append(self.image)
        forget(self)

    def activate(self: CommandQueue, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
        original(self, last.pop() if last else committed, epoch, high_watermark)

    forget = CommandQueue.deactivate
    plant.replace(CommandQueue, "deactivate", deactivate)
    plant.replace(CommandQueue, "activate", activate)


@bug(
    "B33",
    "reads are answered from the image that is not committed",
    part=PART,
    expected=("M9", "R20"),
    directed=play.a_read_behind_an_uncommitted_change,
    swarm=play.lines,
)
def read_uncommitted(plant: Planting) -> None:
    original = controller_commands.decide

    def twin(image: Any, context: Any, command: Any) -> Any:
        decision = original(image, context, command)
        return decision if decision.events else replace(decision, depends_on=0)

    plant.replace(controller_commands, "decide", twin)


@bug(
    "B34",
    "a change of the ISR does not raise the partition epoch",
    part=PART,
    expected=("M3", "M8", "L5"),
    directed=play.the_isr_shrinks_and_expands,
    swarm=play.control_plane,
)
def epoch_not_bumped(plant: Planting) -> None:
    original = image_replay.changed_partition

    def twin(old: Any, event: Any) -> Any:
        return original(old, event)._replace(partition_epoch=old.partition_epoch)

    plant.replace(image_replay, "changed_partition", twin, isr)


@bug(
    "B35",
    "AlterPartition does not look at its members' broker epochs",
    part=PART,
    expected=("M8", "D18", "D1"),
    directed=play.a_proposal_is_late,
    swarm=play.control_plane,
)
def stale_broker_epochs(plant: Planting) -> None:
    original = isr.refuse_proposal

    def twin(image: Any, context: Any, sender: int, proposal: Any, state: Any) -> Any:
        members = tuple(member._replace(broker_epoch=-1) for member in proposal.new_isr)
        return original(image, context, sender, proposal._replace(new_isr=members), state)

    plant.replace(isr, "refuse_proposal", twin)


@bug(
    "B36",
    "a fenced or stopping replica joins the ISR",
    part=PART,
    expected=("M6",),
    directed=play.a_stopping_follower_is_proposed,
    swarm=play.control_plane,
)
def inactive_members(plant: Planting) -> None:
    original = isr.refuse_proposal

    def twin(image: Any, context: Any, sender: int, proposal: Any, state: Any) -> Any:
        active = {broker_id for broker_id, broker in image.brokers.items() if broker.is_active} | {sender}
        members = tuple(member for member in proposal.new_isr if member.broker_id in active)
        return original(image, context, sender, proposal._replace(new_isr=members), state)

    plant.replace(isr, "refuse_proposal", twin)


@bug(
    "B37",
    "brokers that die together are fenced one by one from the same image",
    part=PART,
    expected=("M5", "M6"),
    directed=play.two_brokers_die_at_once,
    swarm=play.control_plane,
)
def bulk_fencing_from_a_stale_view(plant: Planting) -> None:
    original = fencing.decide_fence

    def twin(image: Any, context: Any, command: FenceBrokers) -> Any:
        decided = [original(image, context, replace(command, targets=(target,))) for target in command.targets]
        if not decided:
            return original(image, context, command)
        return replace(decided[-1], events=tuple(event for one in decided for event in one.events))

    plant.put(COMMANDS, FenceBrokers, twin)


@bug(
    "B38",
    "with no member in sync any live replica is elected",
    part=PART,
    expected=("M5", "D1"),
    directed=play.the_last_in_sync_dies,
    swarm=play.control_plane,
)
def accidental_unclean_election(plant: Planting) -> None:
    original = fencing.leave_partitions

    def twin(*arguments: Any, **options: Any) -> Slice:
        return original(*arguments, **{**options, "may_be_unclean": True})

    plant.replace(plans.ElectionSettings, "unclean_election", lambda self, located: Election.UNCLEAN)
    plant.replace(fencing, "leave_partitions", twin)


@bug(
    "B39",
    "a broker that lost its tail returns and stays in sync",
    part=PART,
    # M6: a registration leaves the broker fenced, so a member of the ISR is inactive.
    expected=("M16", "D18", "D1", "M6"),
    directed=play.a_follower_loses_its_tail,
    swarm=play.control_plane,
)
def unclean_restart_not_detected(plant: Planting) -> None:
    plant.replace(brokers, "leave_partitions", lambda *arguments, **options: Slice([], None))


@bug(
    "B40",
    "a second process with the same broker id is let in",
    part=PART,
    expected=("M7", "D8"),
    directed=play.a_twin_starts,
    swarm=play.control_plane,
)
def two_incarnations(plant: Planting) -> None:
    original = brokers.refuse_registration

    def twin(image: Any, context: Any, command: Any) -> Any:
        refusal = original(image, context, command)
        is_double = refusal is not None and refusal.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        return None if is_double else refusal

    plant.replace(brokers, "refuse_registration", twin)


@bug(
    "B63",
    "a new controller begins again at the producer ids of its snapshot",
    part=PART,
    expected=("M17", "T10"),
    directed=play.blocks_across_a_failover,
    no_swarm="in the swarm nobody loads a snapshot",
)
def ids_handed_out_twice(plant: Planting) -> None:
    original = image_dump.dump

    def twin(image: MetadataImage) -> Iterator[Any]:
        for event in original(image):
            is_counter = isinstance(event, events.ProducerIds)
            yield replace(event, next_producer_id=event.next_producer_id - 1_000) if is_counter else event

    plant.replace(image_dump, "dump", twin, play)
