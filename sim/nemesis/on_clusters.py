"""The faults of a plan on any cluster that has the verbs: one of real processes, or a simulated one.

`FaultRun.steps` does what is due and says when the next thing is; whoever drives it lets time pass, real or virtual. As
in a plan, those of a lane come one after the other, lanes side by side. There is no budget: what is asked for happens.
Left out is what cannot be when its time comes: a node that is down is not killed, a link that is cut is not cut again.
What a fault has begun it ends: nodes come back, links are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

if TYPE_CHECKING:
    from kraft.sim.breakable_cluster import BreakableCluster

EVERYWHERE = (plan.KILL, plan.CLEAN_STOP, "pause", "cut", "isolate", "stumble")
"""Kinds that every cluster with the verbs can have."""
ROLES_EVERYWHERE = (plan.ACTIVE_CONTROLLER, plan.A_LEADER, plan.SHRUNK_LEADER)
POLL_MS = 1
MOMENT_MS_MAX = 5_000
"""So long somebody is waited for who has a role; then the fault is left out."""
STOP_MS_MAX = 10_000

Steps = Iterator[int]
"""Times to come back at."""


def faults_of_seed(cluster: BreakableCluster, seed: int, duration_ms: int) -> tuple[Fault, ...]:
    """What a seed draws for this cluster, of what it can have. A power loss that it cannot have is a kill, and a role
    that nobody can tell is the active controller."""
    from kraft.sim.nemesis.drawing import Mood, draw_faults
    from kraft.sim.nemesis.faults import FaultSettings

    def as_it_can_be(fault: Fault) -> Fault:
        kind = fault.kind if fault.kind in cluster.fault_kinds else plan.KILL
        role = fault.role if fault.role in ("", *cluster.fault_roles) else plan.ACTIVE_CONTROLLER
        return replace(fault, kind=kind, role=role)

    kinds = tuple(kind for kind in cluster.fault_kinds if kind not in plan.CRASH_KINDS)
    found = draw_faults(seed, Mood(kinds=kinds), FaultSettings(duration_ms=duration_ms), cluster.shape)
    return tuple(map(as_it_can_be, found))


class FaultRun:
    """Carries `faults` out on `cluster`. ClusterError names one that this cluster cannot have."""

    def __init__(self, cluster: BreakableCluster, faults: Iterable[Fault], now_ms: Callable[[], int]) -> None:
        self.history: list[str] = []
        """What was done, line by line."""
        self._cluster = cluster
        self._now_ms = now_ms
        self._start_ms = now_ms()
        self._cuts: set[frozenset[int]] = set()
        self._verbs: Mapping[str, Callable[[Fault], Steps]] = {
            plan.KILL: self._kill,
            plan.CLEAN_STOP: self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "isolate": self._cut,
            "stumble": self._stumble,
        }
        self._lanes: dict[int, list[Fault]] = {}
        for fault in sorted(faults, key=lambda fault: fault.at_ms):
            self._require(fault)
            self._lanes.setdefault(fault.lane, []).append(fault)

    def _require(self, fault: Fault) -> None:
        cluster = self._cluster
        if fault.kind not in cluster.fault_kinds:
            kinds = ", ".join(cluster.fault_kinds)
            raise ClusterError(f"this cluster cannot have {fault.kind!r}: it can have {kinds}")
        if fault.role not in ("", *cluster.fault_roles):
            raise ClusterError(
                f"nobody can tell here who is {fault.role!r}: roles are {', '.join(cluster.fault_roles)}"
            )
        unknown = {fault.node, fault.other} - {0, *cluster.node_ids}
        if unknown:
            raise ClusterError(f"there is no node {unknown.pop()}: this cluster has {list(cluster.node_ids)}")
        if not fault.node and not fault.role:
            raise ClusterError(f"a fault names the node that it hits, or a role: {fault}")
        if fault.kind in plan.LINK_KINDS and fault.other in (0, fault.node):
            raise ClusterError(f"a fault of a link names two nodes, node and other: {fault}")

    def steps(self) -> Steps:
        """Do what is due; each value is the time, as `now_ms` counts, at which to come back for more."""
        due = [(self._start_ms, lane, self._in_turn(faults)) for lane, faults in sorted(self._lanes.items())]
        while due:
            at_ms, lane, steps = heappop(due)
            if at_ms > self._now_ms():
                yield at_ms
            next_ms = next(steps, None)
            if next_ms is not None:
                heappush(due, (next_ms, lane, steps))

    def _in_turn(self, faults: list[Fault]) -> Steps:
        for fault in faults:
            yield self._start_ms + fault.at_ms
            yield from self._verbs.get(fault.kind, self._last)(fault)

    def _after(self, wait_ms: int) -> int:
        return self._now_ms() + wait_ms

    def _note(self, text: str) -> None:
        self.history.append(f"{self._now_ms() - self._start_ms} ms: {text}")

    # whom it hits

    def _victim(self, fault: Fault) -> Generator[int, None, int | None]:
        """The node that it names, or one that has the role, if it runs. A role is waited for."""
        patience_ms = self._after(MOMENT_MS_MAX)
        while True:
            wanted = [fault.node] if not fault.role else self._cluster.holders(fault.role)
            running = [node for node in wanted if self._runs(node)]
            if running:
                return running[fault.pick % len(running)]
            if not fault.role or self._now_ms() >= patience_ms:
                return None
            yield self._after(POLL_MS)

    def _runs(self, node: int) -> bool:
        return self._cluster.is_running(node) and not self._cluster.is_paused(node)

    # what happens

    def _kill(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is not None:
            self._note(f"kill of node {victim}, back after {fault.back_ms} ms")
            self._cluster.kill(victim)
            yield from self._come_back(victim, fault.back_ms)

    def _come_back(self, node: int, back_ms: int) -> Steps:
        yield self._after(back_ms)
        if not self._cluster.is_running(node):
            self._cluster.start(node)

    def _stop(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is None:
            return
        self._note(f"node {victim} is asked to stop, and starts again")
        self._cluster.stop(victim)
        patience_ms = self._after(STOP_MS_MAX)
        while self._cluster.is_running(victim) and self._now_ms() < patience_ms:
            yield self._after(POLL_MS)
        if self._cluster.is_running(victim):
            self._cluster.kill(victim)
        yield from self._come_back(victim, fault.back_ms)

    def _stumble(self, fault: Fault) -> Steps:
        for _ in range(fault.amount):
            yield from self._kill(fault)
            yield self._after(fault.duration_ms)

    def _pause(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is not None:
            self._note(f"node {victim} is frozen for {fault.duration_ms} ms")
            self._cluster.pause(victim)
            yield self._after(fault.duration_ms)
            if self._cluster.is_running(victim):
                self._cluster.resume(victim)

    def _cut(self, fault: Fault) -> Steps:
        """From one other node, or (isolate) from all of them; clients reach it still."""
        node = fault.node if not fault.role else (yield from self._victim(fault))
        if node is None:
            return
        others = {fault.other} if fault.kind == "cut" else {*self._cluster.node_ids} - {node}
        pairs = {frozenset((node, other)) for other in others}
        if pairs & self._cuts:
            return
        self._cuts |= pairs
        self._note(f"node {node} is cut off from {sorted(others)} for {fault.duration_ms} ms")
        self._cluster.partition({node}, others)
        yield self._after(fault.duration_ms)
        self._cluster.rejoin({node}, others)
        self._cuts -= pairs

    def _last(self, fault: Fault) -> Steps:
        """What only this cluster can do."""
        victim = yield from self._victim(fault)
        if victim is None:
            return
        self._note(f"{fault.kind} of node {victim}")
        end = self._cluster.begin_fault(replace(fault, node=victim, role=""))
        yield self._after(fault.duration_ms)
        end()
        if not self._cluster.is_running(victim):
            yield from self._come_back(victim, fault.back_ms)
