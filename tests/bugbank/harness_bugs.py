"""Mutations of the test harness (X01 to X10): they replace code of the simulator and of its checks."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from kraft.seam import File
from kraft.sim.check.histories import client_histories
from kraft.sim.check.partitions import Damage
from kraft.sim.cores.core_alone import CoreAlone
from kraft.sim.cores.node import CoreNode
from kraft.sim.cores.world import CoreWorld
from kraft.sim.workload import group_work
from kraft.sim.world import world
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.disk import FakeDisk
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.streams import Stream
from kraft.wire.error_codes import ErrorCode
from tests.bugbank import harness_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "Harness"
SYNC_NS_MAX = 1_000_000
NO_SEEDS = "a statement on the harness itself, with no seed in it"


@bug(
    "X01",
    "outcomes that are open are recorded as failures",
    part=PART,
    expected=("clean run",),
    directed=play.an_open_outcome,
    no_swarm=NO_SEEDS,
)
def open_is_failed(plant: Planting) -> None:
    plant.replace(group_work, "commit_outcome", lambda error: error is ErrorCode.NONE)


@bug(
    "X02",
    "failures are recorded as open outcomes",
    part=PART,
    expected=("canary",),
    directed=play.a_definite_outcome,
    no_swarm=NO_SEEDS,
)
def failed_is_open(plant: Planting) -> None:
    plant.replace(group_work, "commit_outcome", lambda error: True if error is ErrorCode.NONE else None)


@bug(
    "X03",
    "the final reader stops at its own idea of the end",
    part=PART,
    expected=("canary",),
    directed=play.spoiled_histories,
    no_swarm=NO_SEEDS,
)
def reader_stops_early(plant: Planting) -> None:
    original = client_histories._judge_promise

    def twin(send: Any, known: Any, judgement: Any) -> None:
        if send.offset <= max(known.final.get(send.place, ()), default=-1):
            original(send, known, judgement)

    plant.replace(client_histories, "_judge_promise", twin)


@bug(
    "X04",
    "the judge does not look for one of the anomalies",
    part=PART,
    expected=("canary",),
    directed=play.spoiled_histories,
    no_swarm=NO_SEEDS,
)
def blind_to_doubles(plant: Planting) -> None:
    original = client_histories._judge_values

    def twin(sends: Any, known: Any, judgement: Any) -> None:
        original([replace(send, is_once=False) for send in sends], known, judgement)

    plant.replace(client_histories, "_judge_values", twin)


@bug(
    "X05",
    "any node may have lost anything",
    part=PART,
    expected=("canary",),
    directed=play.every_check_fires,
    no_swarm=NO_SEEDS,
)
def exempt_everything(plant: Planting) -> None:
    plant.replace(Damage, "holds", lambda self, node, topic_partition: True)


@bug(
    "X06",
    "a power loss keeps what was not synced",
    part=PART,
    expected=("kill matrix",),
    directed=play.no_survivors_of_power_losses,
    no_swarm=NO_SEEDS,
)
def power_loss_loses_nothing(plant: Planting) -> None:
    def keep_all(self: Inode, chance: NamedRandom) -> None:
        self.settle(self.applied + len(self.pending))

    plant.replace(Inode, "lose_power", keep_all)
    plant.replace(Directory, "lose_power", lambda self, chance: self.sync())


@bug(
    "X07",
    "a partition drops what it should hold and deliver late",
    part=PART,
    expected=("kill matrix",),
    directed=play.what_a_partition_holds,
    no_swarm=NO_SEEDS,
)
def partitions_drop(plant: Planting) -> None:
    plant.replace(Stream, "release", lambda self: self.lose_some(0))


@bug(
    "X08",
    "one draw, of how long a sync takes, comes from a generator without a seed",
    part=PART,
    expected=("N6",),
    directed=play.the_same_seed_twice,
    no_swarm=NO_SEEDS,
)
def one_draw_without_a_seed(plant: Planting) -> None:
    """Draw from a generator that was created outside the simulated world, where no guard against real randomness
    detects it."""
    original, unseeded = FakeDisk.sync, random.Random()

    async def twin(self: FakeDisk, file: File) -> None:
        await self._schedule.sleep(unseeded.randrange(SYNC_NS_MAX) / 1e9)
        await original(self, file)

    plant.replace(FakeDisk, "sync", twin)


@bug(
    "X08b",
    "one fault goes over a set of nodes, in the order of their addresses",
    part=PART,
    expected=("N6",),
    directed=play.the_same_seed_on_other_heaps,
    no_swarm=NO_SEEDS,
)
def over_a_set_of_nodes(plant: Planting) -> None:
    def twin(self: world.World, name: str) -> None:
        for other in set(self._hosts.values()):
            if other.name != name:
                self.partition(name, other.name)

    plant.replace(world.World, "isolate", twin)


@bug(
    "X09",
    "when the faults are over, nodes outside the core are healed too",
    part=PART,
    expected=("kill matrix",),
    directed=play.no_survivor_outside_the_core,
    no_swarm=NO_SEEDS,
)
def heal_everybody(plant: Planting) -> None:
    plant.replace(CoreAlone, "_leave_outside", lambda self: self._world.heal())


@bug(
    "X10",
    "of two leaders the checks look at the older one",
    part=PART,
    expected=("X10",),
    directed=play.two_leaders_coexist,
    no_swarm=NO_SEEDS,
)
def the_wrong_leader(plant: Planting) -> None:
    def twin(self: CoreWorld) -> CoreNode | None:
        leading = [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]
        return min(leading, key=lambda node: node.raft.epoch if node.raft is not None else 0) if leading else None

    plant.replace(CoreWorld, "leader", property(twin))
