"""Nemesis: injects crashes and clean stops into a simulated run, within a budget; `disturbances` injects the other
faults.

Budget: no fault may leave a partition without an in-sync replica that runs and has lost nothing, because a loss after
that would not be a bug of the cluster. After each crash the next one waits until the crashed node is back in sync, at
most three seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraft.sim.cluster.chronicle import ObservedFault
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault
from kraft.sim.nemesis.targets import Targets

BACK_IN_SYNC_MS = 3_000
CALM_MS = 3_000
"""Time in ms after the last network fault or power loss until the two ends of every connection have the same state of
the connection."""
STOP_MS_MAX = 5_000
WHOLE_MS_MAX = 5_000
"""Maximum time that a rolling restart waits for a healthy cluster before it continues with the next node."""
VOTERS_LEAST = 3
"""Minimum number of voters in a quorum of which one voter may restart with an empty disk."""
MOMENT_MS_MAX = 2_000
"""Maximum time in ms for which a crash waits until some node has its role. After that it affects any node."""
MOMENT_POLL_MS = 1


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Number of faults that a seed draws for a run of `duration_ms`, in each of its lanes (sequences of faults that do
    not overlap): crashes, the minimum of other faults, and the odds that a clean stop comes before a crash."""

    duration_ms: int = 60_000
    crashes: int = 4
    network_faults: int = 2
    clean_stops: int = 1


class Nemesis:
    """Carries out the crashes of one run, and tracks which nodes faults may affect. `history` lists what was done."""

    def __init__(self, cluster: SimCluster, *, is_quick: bool = True, replaces_controllers: bool = False) -> None:
        """Create the fault injector. `is_quick`: links and disks are fast enough that a death must be noticed within
        the time limits of failure detection (K6). `replaces_controllers`: controllers join by themselves, and no client
        removes voters."""
        self.cluster = cluster
        self.chronicle = cluster.watch.chronicle
        self.crashes = 0
        self.moments: Counter[str] = Counter()
        """Momentary role (such as the leader with an uncommitted record) → number of crashes that affected a node while
        it had the role."""
        self.disturbed_ms = 0
        """Time when the last fault began or ended."""
        self.calm_since_ms = 0
        self.stopping: set[int] = set()
        """Nodes that were asked to stop cleanly."""
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
        """What was done so far, line by line."""
        return tuple(f"{window.at_ms} ms: {window.text}" for window in self.chronicle.windows)

    @contextmanager
    def fault(self, kind: str, nodes: tuple[int, ...], text: str) -> Iterator[ObservedFault]:
        """Record a fault that lasts until the end of the `with` block. If the run is stopped within the block, the
        fault has no end."""
        self.disturbed_ms = max(self.disturbed_ms, self.now_ms)
        window = self.chronicle.begin_fault(kind, nodes, text)
        yield window
        self.chronicle.end_fault(window)
        self.disturbed_ms = max(self.disturbed_ms, self.now_ms)

    # targets

    def victim(self, fault: Fault) -> int | None:
        """Return the node that a fault affects: the node that the fault names, or a node that has the role now, or else
        any node that may crash. None if no node may crash."""
        wanted = self.targets.holders(fault.role) if fault.role else [fault.node]
        allowed = [node for node in wanted if self.may_crash(node)]
        allowed = allowed or [node for node in self.cluster.shape.node_ids if self.may_crash(node)]
        return allowed[fault.pick % len(allowed)] if allowed else None

    # crashes

    async def stop_one(self, fault: Fault) -> str:
        """Stop a node cleanly and start it again. Return the kind of the fault, "" if it was skipped."""
        await self._wait_for_turn(fault)
        victim = self.victim(fault)
        if victim is None:
            return ""
        await self._restart(victim, fault)
        return fault.kind

    async def roll(self, fault: Fault) -> str:
        """Restart each node cleanly in turn; the next node follows when all nodes are back and all replicas in sync.
        Abandon this if it takes too long, or if another fault affects the next node. Return the kind of the fault if
        any node has stopped."""
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
        """Kill a node or cut its power, and start it again. Return the kind of the fault, "" if it was skipped. A power
        loss beyond the budget becomes a kill."""
        await self._wait_for_turn(fault)
        victim = self.victim(fault)
        if victim is None:
            return ""
        is_met = fault.role in plan.AWAITED_ROLES and victim in self.targets.holders(fault.role)
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
    ) -> ObservedFault:
        """Kill a node or cut its power, and start it again. `wipe`: with an empty disk. `as_role`: wait for the moment
        at which the node has this role. `takes_ms`: an exception ends the process within this time. `while_down`: what
        an operator does to its host meanwhile, described by `note`."""
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
        """Wait until the last crashed node is back in sync, at most three seconds. Then wait, up to a maximum, until a
        node has a role that exists only at times."""
        victim, cluster, targets, role = self._last_victim, self.cluster, self.targets, fault.role
        if victim is not None and role != plan.SHRUNK_LEADER:  # which may exist because of the last victim
            await cluster.wait_until(lambda: cluster.is_in_sync(victim), BACK_IN_SYNC_MS)
        if role in plan.AWAITED_ROLES:
            await cluster.wait_until(lambda: bool(targets.holders(role)), MOMENT_MS_MAX, poll_ms=MOMENT_POLL_MS)

    # budget

    def may_crash(self, node_id: int, *, with_logs: bool = False) -> bool:
        """Return whether a node may crash now. A node that another fault stops, or whose disk another fault makes fail,
        belongs to that fault, which restarts it. `with_logs`: see `SimCluster.can_lose`."""
        if not self.cluster.is_running(node_id) or node_id in self.cluster.failing_disks | self.stopping:
            return False
        return node_id in self.cluster.shape.controller_ids or self.cluster.can_lose(node_id, with_logs=with_logs)

    def may_lose_disk(self, controller: int) -> bool:
        """Return whether a controller may lose its disk: there are three voters or more, and none is about to be
        replaced. Committed records are on the other voters, and these are a majority until the restarted controller has
        joined again."""
        if not self._replaces_controllers or not self.may_crash(controller):
            return False
        return len(self.cluster.shape.controller_ids) >= VOTERS_LEAST and not self.cluster.absent_voters()

    def may_lose_power(self, node_id: int) -> bool:
        """Return whether a broker may lose power. Unless every write is synced at once, only one broker at a time may
        lose data."""
        watch = self.cluster.watch
        return (
            node_id in self.cluster.shape.controller_ids
            or self.cluster.shape.is_durable
            or not watch.suite.damage.anyone()
        )

    def _is_calm(self, victim: int) -> bool:
        """Return whether all other nodes are up and well connected, so that a death must be noticed within the time
        limits of failure detection (K6)."""
        cluster = self.cluster
        others_up = all(node == victim or cluster.is_running(node) for node in cluster.shape.node_ids)
        if cluster.shape.controller_ids == (victim,):
            return False  # no other controller could become active
        if cluster.shape.dynamic_voters:
            return False  # the running ones need not be a majority of the voters
        return self._is_quick and others_up and not cluster.loss() and self.now_ms - self.calm_since_ms >= CALM_MS
