"""The nemesis of a run: whom a fault may hit, crashes and clean stops, within a budget; `disturbances` has the rest.

Budget: no fault may leave a partition without an in-sync replica that runs and has lost nothing, for what then happens
is no fault of the cluster. After each crash the next waits until its victim is back in sync, or three seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraft.sim.cluster.chronicle import FaultWindow
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault
from kraft.sim.nemesis.targets import Targets

BACK_IN_SYNC_MS = 3_000
CALM_MS = 3_000
"""This long after the last network fault or power loss all connections are what both ends take them for."""
STOP_MS_MAX = 5_000
WHOLE_MS_MAX = 5_000
"""So long a rolling restart waits for the cluster to be whole before it goes on to the next node."""
VOTERS_LEAST = 3
"""Of so many voters one may come back with an empty disk."""
MOMENT_MS_MAX = 2_000
"""So long a crash waits for the moment in which somebody has its role; then it hits anyone."""
MOMENT_POLL_MS = 1


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How much trouble a seed draws for a run of `duration_ms`, in each of its lanes: so many crashes, at least so many
    other faults, and clean stops before so many of two crashes."""

    duration_ms: int = 60_000
    crashes: int = 4
    network_faults: int = 2
    clean_stops: int = 1


class Nemesis:
    """Carries out one run's crashes, and knows what state the cluster is in. `history` says what was done."""

    def __init__(self, cluster: SimCluster, *, is_quick: bool = True, replaces_controllers: bool = False) -> None:
        """`is_quick`: links and disks are fast enough for a death to be noticed as soon as K6 wants it.
        `replaces_controllers`: they join by themselves, and nobody else takes voters out."""
        self.cluster = cluster
        self.chronicle = cluster.watch.chronicle
        self.crashes = 0
        self.moments: Counter[str] = Counter()
        """How often each role that waits for a moment was met in it."""
        self.disturbed_ms = 0
        """When the last fault happened, or ended."""
        self.calm_since_ms = 0
        self.stopping: set[int] = set()
        """Nodes that were asked to stop in order."""
        self.targets = Targets(cluster)
        self._world = cluster.world
        self._is_quick = is_quick
        self._replaces_controllers = replaces_controllers
        self._last_victim: int | None = None

    @property
    def now_ms(self) -> int:
        return self._world.now_ns // 1_000_000

    @property
    def history(self) -> tuple[str, ...]:
        """What was done, line by line."""
        return tuple(f"{window.at_ms} ms: {window.text}" for window in self.chronicle.windows)

    @contextmanager
    def fault(self, kind: str, nodes: tuple[int, ...], text: str) -> Iterator[FaultWindow]:
        """This goes wrong from here to the end of the block; without end if the run is stopped in it."""
        self.disturbed_ms = max(self.disturbed_ms, self.now_ms)
        window = self.chronicle.begin_fault(kind, nodes, text)
        yield window
        self.chronicle.end_fault(window)
        self.disturbed_ms = max(self.disturbed_ms, self.now_ms)

    # whom it hits

    def victim(self, fault: Fault) -> int | None:
        """The node that the fault names, or one that has the role by now; else any that may crash. None if none may."""
        wanted = self.targets.holders(fault.role) if fault.role else [fault.node]
        allowed = [node for node in wanted if self.may_crash(node)]
        allowed = allowed or [node for node in self.cluster.shape.node_ids if self.may_crash(node)]
        return allowed[fault.pick % len(allowed)] if allowed else None

    # crashes

    async def stop_one(self, fault: Fault) -> str:
        """A stop in order, and a start. Gives the kind of what happened, "" if nothing did."""
        await self._wait_for_turn(fault)
        victim = self.victim(fault)
        if victim is None:
            return ""
        await self._restart(victim, fault)
        return fault.kind

    async def roll(self, fault: Fault) -> str:
        """Each node in turn stops in order and starts again, the next when all are back and all replicas in sync. It is
        given up where that takes too long, or another fault has the next one. Gives the kind if any has stopped."""
        cluster, first = self.cluster, self.cluster.shape.node_ids[0]
        for node in cluster.shape.node_ids:
            is_whole = await cluster.wait_until(lambda: not cluster.loss(), WHOLE_MS_MAX)
            if not is_whole or not self.may_crash(node):
                return fault.kind if node != first else ""
            await self._restart(node, fault)
        return fault.kind

    async def _restart(self, node: int, fault: Fault) -> None:
        cluster = self.cluster
        with self.fault(fault.kind, (node,), f"node {node} is asked to stop, and starts again"):
            self.stopping.add(node)
            if not await cluster.stop(node, timeout_ms=STOP_MS_MAX):
                text = f"node {node} did not stop within {STOP_MS_MAX} ms and is killed"
                self.chronicle.note("late stop", text, node)
            if fault.back_ms:
                await self._world.sleep_ms(fault.back_ms)
            cluster.start(node)
            self.stopping.discard(node)
        self._last_victim = node

    async def crash_one(self, fault: Fault) -> str:
        """A kill or a power loss, and a start. Gives the kind of what happened, "" if nothing did: a power loss that
        would be one too many is a kill."""
        await self._wait_for_turn(fault)
        victim = self.victim(fault)
        if victim is None:
            return ""
        is_met = fault.role in plan.MOMENT_ROLES and victim in self.targets.holders(fault.role)
        as_role = fault.role if is_met else ""
        self.moments.update([as_role] if is_met else [])
        lose_power = fault.kind == plan.POWER_LOSS and self.may_lose_power(victim)
        kind = fault.kind if lose_power else plan.KILL
        takes_ms = 0 if lose_power else fault.duration_ms
        await self.crash(victim, kind, lose_power=lose_power, back_ms=fault.back_ms, as_role=as_role, takes_ms=takes_ms)
        return kind

    async def crash(
        self,
        victim: int,
        kind: str,
        *,
        lose_power: bool,
        back_ms: int,
        wipe: bool = False,
        as_role: str = "",
        takes_ms: int = 0,
        while_down: Callable[[], None] = lambda: None,
        note: str = "",
    ) -> FaultWindow:
        """Kill a node or cut its power, and start it again; `wipe`: with an empty disk; `as_role`: in which role, and
        at its moment, it is hit; `takes_ms`: an exception ends the process in this time; `while_down`: what somebody
        does to its host meanwhile, as `note` says."""
        what = "power loss" if lose_power else f"end by an error in {takes_ms} ms" if takes_ms else "kill"
        role = f", the {as_role}" if as_role else ""
        text = f"{what} of node {victim}{role}, back after {back_ms} ms{' with an empty disk' if wipe else ''}{note}"
        self.crashes += 1
        with self.fault(kind, (victim,), text) as window:
            if takes_ms:
                self.stopping.add(victim)
                await self.cluster.end_by_error(victim, takes_ms)
                self.stopping.discard(victim)
            is_noticed = not lose_power and self._is_calm(victim)
            self.cluster.crash(victim, lose_power=lose_power, is_noticed=is_noticed)
            if wipe:
                self.cluster.wipe(victim)
            while_down()
            await self._world.sleep_ms(back_ms)
            if not self.cluster.is_running(victim):
                self.cluster.start(victim, wiped=wipe)
        if lose_power or wipe:
            self.calm_since_ms = max(self.calm_since_ms, self.now_ms)
        self._last_victim = victim
        return window

    async def _wait_for_turn(self, fault: Fault) -> None:
        """Until the last victim is back in sync, or three seconds; then until somebody has a role that is not always
        there, or for so long as is waited for one."""
        victim, cluster, targets, role = self._last_victim, self.cluster, self.targets, fault.role
        if victim is not None and role != plan.SHRUNK_LEADER:  # which there may be because of the last victim
            await cluster.wait_until(lambda: cluster.is_in_sync(victim), BACK_IN_SYNC_MS)
        if role in plan.MOMENT_ROLES:
            await cluster.wait_until(lambda: bool(targets.holders(role)), MOMENT_MS_MAX, poll_ms=MOMENT_POLL_MS)

    # the budget

    def may_crash(self, node_id: int, *, with_logs: bool = False) -> bool:
        """A node that another fault stops, or whose disk it lets fail, is left to that one, which starts it anew.
        `with_logs`: see `SimCluster.can_lose`."""
        if not self.cluster.is_running(node_id) or node_id in self.cluster.ailing | self.stopping:
            return False
        return node_id in self.cluster.shape.controller_ids or self.cluster.can_lose(node_id, with_logs=with_logs)

    def may_lose_disk(self, controller: int) -> bool:
        """A controller that is one of three voters or more, of which none is about to be replaced: what is committed is
        on one of the others, and they are a majority until the one that comes back has joined in its place."""
        if not self._replaces_controllers or not self.may_crash(controller):
            return False
        return len(self.cluster.shape.controller_ids) >= VOTERS_LEAST and not self.cluster.absent_voters()

    def may_lose_power(self, node_id: int) -> bool:
        """Data is not synced as it is written, unless the cluster is durable: one broker at a time may lose some."""
        watch = self.cluster.watch
        return (
            node_id in self.cluster.shape.controller_ids
            or self.cluster.shape.is_durable
            or not watch.suite.damage.anyone()
        )

    def _is_calm(self, victim: int) -> bool:
        """Whether all others are up and well connected, so that the death must be noticed at once (K6)."""
        cluster = self.cluster
        others_up = all(node == victim or cluster.is_running(node) for node in cluster.shape.node_ids)
        if cluster.shape.controller_ids == (victim,):
            return False  # there is nobody to take over
        if cluster.shape.dynamic_voters:
            return False  # those who are up need not be a majority of the voters
        return self._is_quick and others_up and not cluster.loss() and self.now_ms - self.calm_since_ms >= CALM_MS
