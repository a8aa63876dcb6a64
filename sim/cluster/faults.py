"""The nemesis of a run: crashes, clean stops and network faults, drawn from the seed, within a budget.

Budget: no fault may leave a partition without an in-sync replica that runs and has lost nothing, for what then happens
is no fault of the cluster. After each crash the next waits until its victim is back in sync, or three seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.world.chance import NamedRandom

RESTART_MS = (100, 3_000)
BACK_IN_SYNC_MS = 3_000
CALM_MS = 3_000
"""This long after the last network fault or power loss all connections are what both ends take them for."""
STOP_MS_MAX = 5_000
CUT_MS = (100, 3_000)
CLOCK_STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How much trouble a run of `duration_ms` gets."""

    duration_ms: int = 30_000
    crashes: int = 3
    network_faults: int = 2
    clean_stops: int = 1


class Nemesis:
    """Carries out one run's faults. `history` says what was done, for the report."""

    def __init__(self, cluster: SimCluster, settings: FaultSettings, *, is_quick: bool = True) -> None:
        """`is_quick`: links and disks are fast enough for a death to be noticed as soon as K6 wants it."""
        self.history: list[str] = []
        self.crashes = 0
        self._cluster = cluster
        self._world = cluster.world
        self._settings = settings
        self._is_quick = is_quick
        self.disturbed_ms = 0
        """When the last fault happened, or ended."""
        self._calm_since_ms = 0
        self._last_victim: int | None = None

    @property
    def _now_ms(self) -> int:
        return self._world.now_ns // 1_000_000

    def _note(self, text: str) -> None:
        self.disturbed_ms = self._now_ms
        self.history.append(f"{self._now_ms} ms: {text}")

    # crashes

    async def crash_nodes(self) -> None:
        """One victim after the other."""
        settings = self._settings
        random = self._world.random.stream("crashes")
        slot_ms = settings.duration_ms // max(1, settings.crashes)
        start_ms = self._now_ms
        for number in range(settings.crashes):
            if random.below(2) < settings.clean_stops and number:
                await self._stop_one(random)
            hurry = number and random.below(2)
            at_ms = self._now_ms if hurry else start_ms + number * slot_ms + random.below(slot_ms)
            await self._world.sleep_ms(max(0, at_ms - self._now_ms) + random.below(500))
            await self._wait_for_last_victim()
            await self._crash_one(random)

    async def _stop_one(self, random: NamedRandom) -> None:
        """A stop in order, and a start."""
        await self._wait_for_last_victim()
        cluster = self._cluster
        victim = self._draw_victim(random)
        self._note(f"node {victim} is asked to stop")
        if not await cluster.stop(victim, timeout_ms=STOP_MS_MAX):
            self._note(f"node {victim} did not stop within {STOP_MS_MAX} ms and is killed")
        self._note(f"node {victim} starts")
        cluster.start(victim, clean=True)
        self._last_victim = victim

    async def _crash_one(self, random: NamedRandom) -> None:
        cluster = self._cluster
        victim = self._draw_victim(random)
        lose_power = bool(random.below(2)) and self._may_lose_power(victim)
        is_noticed = not lose_power and self._is_calm(victim)
        pause_ms = _between(random, *RESTART_MS)
        self._note(f"{'power loss' if lose_power else 'kill'} of node {victim}, back after {pause_ms} ms")
        self.crashes += 1
        cluster.crash(victim, lose_power=lose_power, is_noticed=is_noticed)
        await self._world.sleep_ms(pause_ms)
        self._note(f"node {victim} starts")
        cluster.start(victim)
        if lose_power:
            self._calm_since_ms = self._now_ms
        self._last_victim = victim

    async def _wait_for_last_victim(self) -> None:
        """Until it is back in sync, or three seconds."""
        victim, cluster = self._last_victim, self._cluster
        if victim is not None:
            await cluster.wait_until(lambda: cluster.is_in_sync(victim), BACK_IN_SYNC_MS)

    def _draw_victim(self, random: NamedRandom) -> int:
        """Any node, or the active controller, or the leader of a partition: each kind as often as the others."""
        cluster = self._cluster
        active = cluster.watch.active_controller
        leaders = [state.leader for topic in cluster.image.topics for _, state in topic.partitions()]
        kinds = ([*cluster.shape.node_ids], [] if active is None else [active], leaders)
        wanted = kinds[random.below(len(kinds))]
        allowed = [node for node in wanted if node > 0 and self._may_crash(node)]
        allowed = allowed or [node for node in cluster.shape.node_ids if self._may_crash(node)]
        return allowed[random.below(len(allowed))]

    def _may_crash(self, node_id: int) -> bool:
        if not self._cluster.is_running(node_id):
            return False
        return node_id in self._cluster.shape.controller_ids or self._cluster.can_lose(node_id)

    def _may_lose_power(self, node_id: int) -> bool:
        """Data is not synced as it is written: one broker at a time may lose some."""
        damage = self._cluster.watch.suite.damage
        return node_id in self._cluster.shape.controller_ids or not damage.anyone()

    def _is_calm(self, victim: int) -> bool:
        """Whether all others are up and well connected, so that the death must be noticed at once (K6)."""
        cluster = self._cluster
        others_up = all(node == victim or cluster.is_running(node) for node in cluster.shape.node_ids)
        return self._is_quick and others_up and not cluster.loss() and self._now_ms - self._calm_since_ms >= CALM_MS

    # the network

    async def disturb_network(self) -> None:
        """Cuts of links, one way or both, isolated nodes, reset connections and a stepped clock."""
        settings = self._settings
        random = self._world.random.stream("network faults")
        count = random.below(settings.network_faults + 1)
        times = sorted(random.below(settings.duration_ms) for _ in range(count))
        start_ms = self._now_ms
        for at_ms in times:
            await self._world.sleep_ms(max(0, start_ms + at_ms - self._now_ms))
            await self._disturb_once(random)

    async def _disturb_once(self, random: NamedRandom) -> None:
        nodes = self._cluster.shape.node_ids
        one = nodes[random.below(len(nodes))]
        other = [node for node in nodes if node != one][random.below(len(nodes) - 1)]
        kind = random.below(5)
        world, here, there = self._world, host_name(one), host_name(other)
        self._calm_since_ms = self._now_ms + CUT_MS[1]
        if kind == 0:
            self._note(f"links between {one} and {other} are reset")
            world.reset_links(here, there)
            return
        if kind == 1:
            step_ms = random.below(2 * CLOCK_STEP_MS) - CLOCK_STEP_MS
            self._note(f"the wall clock of {one} steps by {step_ms} ms")
            world.jump_clock(here, step_ms)
            return
        cut_ms = _between(random, *CUT_MS)
        if kind == 2:
            self._note(f"cut between {one} and {other} for {cut_ms} ms")
            world.partition(here, there)
        elif kind == 3:
            self._note(f"cut from {one} to {other} for {cut_ms} ms")
            world.partition_one_way(here, there)
        else:
            self._note(f"node {one} is isolated for {cut_ms} ms")
            world.isolate(here)
        self.disturbed_ms += cut_ms
        await world.sleep_ms(cut_ms)
        world.heal_all()
        self._calm_since_ms = self._now_ms


def _between(random: NamedRandom, least: int, most: int) -> int:
    return least + random.below(most - least + 1)
