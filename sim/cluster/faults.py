"""The nemesis of a run: crashes and clean stops, drawn from the seed, within a budget; `disturbances` has the rest.

Budget: no fault may leave a partition without an in-sync replica that runs and has lost nothing, for what then happens
is no fault of the cluster. After each crash the next waits until its victim is back in sync, or three seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.world.chance import NamedRandom

RESTART_MS = (100, 3_000)
BACK_IN_SYNC_MS = 3_000
CALM_MS = 3_000
"""This long after the last network fault or power loss all connections are what both ends take them for."""
STOP_MS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How much trouble a run of `duration_ms` gets."""

    duration_ms: int = 30_000
    crashes: int = 3
    network_faults: int = 2
    clean_stops: int = 1


class Nemesis:
    """Carries out one run's crashes, and knows what state the cluster is in. `history` says what was done."""

    def __init__(self, cluster: SimCluster, settings: FaultSettings, *, is_quick: bool = True) -> None:
        """`is_quick`: links and disks are fast enough for a death to be noticed as soon as K6 wants it."""
        self.cluster = cluster
        self.history: list[str] = []
        self.crashes = 0
        self.disturbed_ms = 0
        """When the last fault happened, or ended."""
        self.calm_since_ms = 0
        self._world = cluster.world
        self._settings = settings
        self._is_quick = is_quick
        self._last_victim: int | None = None

    @property
    def now_ms(self) -> int:
        return self._world.now_ns // 1_000_000

    def note(self, text: str) -> None:
        self.disturbed_ms = max(self.disturbed_ms, self.now_ms)
        self.history.append(f"{self.now_ms} ms: {text}")

    # crashes

    async def crash_nodes(self, number_of_stream: int = 0) -> None:
        """One victim after the other. Several streams of crashes may go on side by side."""
        settings = self._settings
        random = self._world.random.stream(f"crashes {number_of_stream}" if number_of_stream else "crashes")
        slot_ms = settings.duration_ms // max(1, settings.crashes)
        start_ms = self.now_ms
        for number in range(settings.crashes):
            if random.below(2) < settings.clean_stops and number:
                await self._stop_one(random)
            hurry = number and random.below(2)
            at_ms = self.now_ms if hurry else start_ms + number * slot_ms + random.below(slot_ms)
            await self._world.sleep_ms(max(0, at_ms - self.now_ms) + random.below(500))
            await self._wait_for_last_victim()
            await self._crash_one(random)

    async def _stop_one(self, random: NamedRandom) -> None:
        """A stop in order, and a start."""
        await self._wait_for_last_victim()
        cluster = self.cluster
        victim = self._draw_victim(random)
        if victim is None:
            return
        self.note(f"node {victim} is asked to stop")
        if not await cluster.stop(victim, timeout_ms=STOP_MS_MAX):
            self.note(f"node {victim} did not stop within {STOP_MS_MAX} ms and is killed")
        self.note(f"node {victim} starts")
        cluster.start(victim, clean=True)
        self._last_victim = victim

    async def _crash_one(self, random: NamedRandom) -> None:
        victim = self._draw_victim(random)
        if victim is None:
            return
        lose_power = bool(random.below(2)) and self.may_lose_power(victim)
        await self.crash(victim, lose_power=lose_power, pause_ms=between(random, *RESTART_MS))

    async def crash(self, victim: int, *, lose_power: bool, pause_ms: int, wipe: bool = False) -> None:
        """Kill a node or cut its power, and start it again; `wipe`: with an empty disk."""
        is_noticed = not lose_power and self._is_calm(victim)
        what = "power loss" if lose_power else "kill"
        self.note(f"{what} of node {victim}, back after {pause_ms} ms{' with an empty disk' if wipe else ''}")
        self.crashes += 1
        self.cluster.crash(victim, lose_power=lose_power, is_noticed=is_noticed)
        if wipe:
            self.cluster.wipe(victim)
        await self._world.sleep_ms(pause_ms)
        if not self.cluster.is_running(victim):
            self.note(f"node {victim} starts")
            self.cluster.start(victim, wiped=wipe)
        if lose_power or wipe:
            self.calm_since_ms = max(self.calm_since_ms, self.now_ms)
        self._last_victim = victim

    async def _wait_for_last_victim(self) -> None:
        """Until it is back in sync, or three seconds."""
        victim, cluster = self._last_victim, self.cluster
        if victim is not None:
            await cluster.wait_until(lambda: cluster.is_in_sync(victim), BACK_IN_SYNC_MS)

    def _draw_victim(self, random: NamedRandom) -> int | None:
        """Any node, or the active controller, or the leader of a partition: each kind as often as the others. None if
        no node may crash now."""
        cluster = self.cluster
        active = cluster.watch.active_controller
        leaders = [state.leader for topic in cluster.image.topics for _, state in topic.partitions()]
        kinds = ([*cluster.shape.node_ids], [] if active is None else [active], leaders)
        wanted = kinds[random.below(len(kinds))]
        allowed = [node for node in wanted if node > 0 and self.may_crash(node)]
        allowed = allowed or [node for node in cluster.shape.node_ids if self.may_crash(node)]
        return allowed[random.below(len(allowed))] if allowed else None

    # the budget

    def may_crash(self, node_id: int) -> bool:
        if not self.cluster.is_running(node_id):
            return False
        return node_id in self.cluster.shape.controller_ids or self.cluster.can_lose(node_id)

    def may_lose_power(self, node_id: int) -> bool:
        """Data is not synced as it is written, unless the cluster is durable: one broker at a time may lose some."""
        watch = self.cluster.watch
        return node_id in self.cluster.shape.controller_ids or watch.is_durable or not watch.suite.damage.anyone()

    def _is_calm(self, victim: int) -> bool:
        """Whether all others are up and well connected, so that the death must be noticed at once (K6)."""
        cluster = self.cluster
        others_up = all(node == victim or cluster.is_running(node) for node in cluster.shape.node_ids)
        if cluster.shape.controller_ids == (victim,):
            return False  # there is nobody to take over
        return self._is_quick and others_up and not cluster.loss() and self.now_ms - self.calm_since_ms >= CALM_MS


def between(random: NamedRandom, least: int, most: int) -> int:
    return least + random.below(most - least + 1)
