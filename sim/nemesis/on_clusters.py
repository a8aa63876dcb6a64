"""The faults of a plan on any cluster that has the verbs: one of real processes, or a simulated one.

`FaultRun.steps` does what is due and says when the next thing is; whoever drives it lets time pass, real or virtual. As
in a plan, those of a lane come one after the other, lanes side by side. There is no budget: what is asked for happens.
Left out is what cannot be when its time comes: a node that is down is not killed, a link that is cut is not cut again.
What a fault has begun it ends, also where the run is broken off: nodes come back, links are whole. Nothing here waits
for a node while another lane could be what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.partition_shapes import Pair, end_words, pairs_of, words_of
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

if TYPE_CHECKING:
    from kraft.sim.breakable_cluster import BreakableCluster

EVERYWHERE = (
    plan.KILL,
    plan.CLEAN_STOP,
    "pause",
    plan.CUT,
    plan.CUT_ONE_WAY,
    plan.ISOLATE,
    *plan.QUALITY_KINDS,
    "reset",
    "stumble",
    plan.HALVES,
    plan.BRIDGE,
    plan.RING,
    plan.CONTROLLERS_CUT,
    plan.ROLLING,
)
"""Kinds that clusters with the verbs can have, if their shape allows it."""
LINK_KINDS = (*plan.LINK_KINDS, *plan.TOXIC_KINDS)
BETWEEN_NODES = (*LINK_KINDS, plan.ISOLATE)
ROLES_EVERYWHERE = (plan.ACTIVE_CONTROLLER, plan.A_LEADER, plan.SHRUNK_LEADER)
"""A shrunk leader is that of any partition with a replica that is out of sync: in which one it fell out last, as in a
run of `kraft sim`, nobody remembers here."""
STOPPING_KINDS = (plan.POWER_LOSS, plan.EMPTY_DISK, "full disk", "failing sync")
"""Kinds of `begin_fault` for which a node stops, at once or when it comes across them."""
POLL_MS = 1
MOMENT_MS_MAX = 5_000
"""So long somebody is waited for who has a role; then the fault is left out."""
STOP_MS_MAX = 10_000
"""A node that takes longer to stop is killed."""
WHOLE_MS_MAX = 30_000
"""So long a rolling restart waits for the cluster to be whole before it goes on to the next node."""
WHOLE_POLL_MS = 20
READY_MS_MAX = 10_000
"""So long a node that comes back is waited for until it serves, which it cannot do while too many others are down."""

Steps = Generator[int, None, None]
"""Times to come back at. Closed early, it ends what was begun."""


def kinds_of(cluster: BreakableCluster) -> tuple[str, ...]:
    """The kinds of faults that this cluster can have: one node has no links to others."""
    is_alone = len(cluster.node_ids) == 1
    kinds = (kind for kind in cluster.fault_kinds if plan.allows(cluster.shape, kind))
    return tuple(kind for kind in kinds if not (is_alone and kind in BETWEEN_NODES))


def faults_of_seed(cluster: BreakableCluster, seed: int, duration_ms: int) -> tuple[Fault, ...]:
    """What a seed draws for this cluster, of what it can have: some faults in any case. A power loss that it cannot
    have is a kill, and a role that nobody can tell is the active controller."""
    from kraft.sim.nemesis.drawing import CALM_SEEDS, Mood, draw_faults
    from kraft.sim.nemesis.faults import FaultSettings

    def as_it_can_be(fault: Fault) -> Fault:
        kind = fault.kind if fault.kind in kinds else plan.KILL
        role = fault.role if fault.role in ("", *cluster.fault_roles) else plan.ACTIVE_CONTROLLER
        return replace(fault, kind=kind, role=role)

    kinds = tuple(kind for kind in kinds_of(cluster) if kind in plan.FAULT_KINDS)
    mood = Mood(kinds=tuple(kind for kind in kinds if kind not in plan.CRASH_KINDS))
    never_calm = CALM_SEEDS * seed + 1
    found = draw_faults(never_calm, mood, FaultSettings(duration_ms=duration_ms), cluster.shape)
    return tuple(map(as_it_can_be, found))


def _listed(faults: object) -> list[Fault]:
    given = [*faults] if isinstance(faults, Iterable) else []
    if not isinstance(faults, Iterable) or not all(isinstance(each, Fault) for each in given):
        raise ClusterError(f"what is carried out is a list of kraft.sim.nemesis.plan.Fault, and not {faults!r}")
    return given


@dataclass(slots=True, eq=False)
class FaultWindow:
    """What came of a fault. `begin_ms` None: it has not happened, and `missed` says why once its turn is over. Times
    are as `now_ms` counts them."""

    fault: Fault
    nodes: list[int] = field(default_factory=list)
    """Whom it hit: for a link both ends, for a partition whoever it cuts off from others."""
    text: str = ""
    begin_ms: int | None = None
    end_ms: int | None = None
    """When the fault itself was over: a node was started again, a link was healed."""
    missed: str = ""


class FaultRun:
    """Carries `faults` out on `cluster`. ClusterError names one that this cluster cannot have."""

    def __init__(self, cluster: BreakableCluster, faults: Iterable[Fault], now_ms: Callable[[], int]) -> None:
        self.history: list[str] = []
        """What was done, line by line."""
        self.windows: list[FaultWindow] = []
        """The faults whose turn has come, in that order."""
        self._open: dict[int, FaultWindow] = {}
        """Lane → the window of the fault whose turn it is."""
        self._cluster = cluster
        self._now_ms = now_ms
        self._start_ms = now_ms()
        self._stopping: set[int] = set()
        """Nodes that were asked to stop: they are left to that fault."""
        self._verbs: Mapping[str, Callable[[Fault], Steps]] = {
            plan.KILL: self._kill,
            plan.CLEAN_STOP: self._stop,
            "pause": self._pause,
            **dict.fromkeys((plan.CUT, plan.ISOLATE, *plan.SHAPE_KINDS), self._cut),
            "stumble": self._stumble,
            plan.ROLLING: self._roll,
        }
        self._lanes: dict[int, list[Fault]] = {}
        for fault in sorted(_listed(faults), key=lambda fault: fault.at_ms):
            self._require(fault)
            self._lanes.setdefault(fault.lane, []).append(fault)

    def _require(self, fault: Fault) -> None:
        cluster = self._cluster
        kinds = kinds_of(cluster)
        if min(fault.at_ms, fault.duration_ms, fault.back_ms) < 0:
            raise ClusterError(f"a fault's times are 0 ms or more: {fault}")
        if fault.kind not in kinds:
            raise ClusterError(f"this cluster cannot have {fault.kind!r}: it can have {', '.join(kinds)}")
        if fault.role not in ("", *cluster.fault_roles):
            raise ClusterError(
                f"nobody can tell here who is {fault.role!r}: roles are {', '.join(cluster.fault_roles)}"
            )
        clients = [plan.ALL_CLIENTS] if fault.kind in LINK_KINDS and plan.CLIENTS_CUT in kinds else []
        unknown = {fault.node, fault.other} - {0, *clients, *cluster.node_ids}
        if unknown:
            raise ClusterError(
                f"there is no node {unknown.pop()}: this cluster has {', '.join(map(str, sorted(cluster.node_ids)))}"
            )
        if not (fault.node or fault.role or fault.kind in (*plan.WHOLE_KINDS, plan.CLIENTS_CUT)):
            raise ClusterError(f"a fault names the node that it hits, or a role: {fault}")
        if fault.manner:
            cluster._require_manner(fault.manner)
        if fault.kind in LINK_KINDS:
            self._require_link(fault)

    def _require_link(self, fault: Fault) -> None:
        cluster = self._cluster
        ends = {fault.node, fault.other}
        is_of_a_node = fault.kind in plan.WAY_KINDS and not fault.other
        has_role = fault.role and fault.other != plan.ALL_CLIENTS
        if not is_of_a_node and (has_role or fault.other in (0, fault.node)):
            raise ClusterError(f"a fault of a link names two nodes, node and other, and no role: {fault}")
        if plan.ALL_CLIENTS in ends and ends - {plan.ALL_CLIENTS, 0, *cluster.broker_ids}:
            raise ClusterError(f"clients have links to brokers only: {fault}")
        if fault.kind in plan.QUALITY_KINDS and fault.amount + fault.jitter_ms < 1:
            raise ClusterError(f"a fault of a link's quality has an amount (ms, bytes per second, bytes): {fault}")
        if fault.needs_toxics and not {*plan.TOXIC_KINDS} & {*cluster.fault_kinds}:
            raise ClusterError(f"toxicity and streams are of clusters behind toxiproxy, and this is none: {fault}")

    def steps(self) -> Steps:
        """Do what is due; each value is the time, as `now_ms` counts, at which to come back for more. Who does not come
        back closes it: then, and after an error, what goes on is ended."""
        due = [(self._start_ms, lane, self._in_turn(faults)) for lane, faults in sorted(self._lanes.items())]
        with ExitStack() as lanes:
            for _, _, steps in due:
                lanes.callback(steps.close)
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
            window = self._open[fault.lane] = FaultWindow(fault)
            self.windows.append(window)
            try:
                yield from self._verbs.get(fault.kind, self._break)(fault)
            finally:
                if window.begin_ms is None:
                    window.missed = window.missed or "it could not be when its time came"
                self._end(fault)

    def _after(self, wait_ms: int) -> int:
        return self._now_ms() + wait_ms

    def _note(self, fault: Fault, text: str, at_ms: int | None = None) -> None:
        """Record what begins now, or began at that time, or goes on."""
        at_ms = self._now_ms() if at_ms is None else at_ms
        self.history.append(f"{at_ms - self._start_ms} ms: {text}")
        window = self._open[fault.lane]
        if window.begin_ms is None:
            window.begin_ms, window.text = at_ms, text

    def _end(self, fault: Fault) -> None:
        """Record the end of the fault itself, unless that has been done."""
        window = self._open[fault.lane]
        if window.begin_ms is not None and window.end_ms is None:
            window.end_ms = self._now_ms()

    # whom it hits

    def _victim(self, fault: Fault) -> Generator[int, None, int | None]:
        """The node that it names, or one that has the role, if it runs. A role is waited for. All clients are there in
        any case."""
        if fault.node == plan.ALL_CLIENTS:
            self._open[fault.lane].nodes += [fault.other] if fault.other else []
            return fault.node
        patience_ms = self._after(MOMENT_MS_MAX)
        while True:
            wanted = [fault.node] if not fault.role else self._cluster.holders(fault.role)
            running = [node for node in wanted if self._runs(node)]
            if running:
                victim = running[fault.pick % len(running)]
                self._open[fault.lane].nodes += [victim] if fault.other <= 0 else [victim, fault.other]
                return victim
            if not fault.role or self._now_ms() >= patience_ms:
                wanted_one = f"a running {fault.role}" if fault.role else f"node {fault.node} running"
                self._open[fault.lane].missed = f"there was no {wanted_one}"
                return None
            yield self._after(POLL_MS)

    def _runs(self, node: int) -> bool:
        is_up = self._cluster.is_running(node) and not self._cluster.is_paused(node)
        return is_up and node not in self._stopping

    # what happens

    def _kill(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is not None:
            yield from self._crash(victim, fault)
            self._end(fault)
            yield from self._follow(victim, READY_MS_MAX)

    def _crash(self, victim: int, fault: Fault) -> Steps:
        """Killed, and started."""
        with self._come_back(victim):
            self._note(fault, f"kill of node {victim}, back after {fault.back_ms} ms")
            self._cluster.kill(victim)
            yield self._after(fault.back_ms)

    @contextmanager
    def _come_back(self, node: int) -> Iterator[None]:
        """In the end the node is started, if nobody else has started it."""
        try:
            yield
        finally:
            if not self._cluster.is_running(node):
                self._cluster.start(node, until_ready=False)

    def _follow(self, node: int, wait_ms: int) -> Steps:
        """Until a node that was started serves, or so long."""
        patience_ms = self._after(wait_ms)
        while not self._cluster.follow_start(node) and self._now_ms() < patience_ms:
            yield self._after(POLL_MS)

    def _stop(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is None:
            return
        with self._come_back(victim):
            self._stopping.add(victim)
            try:
                self._note(fault, f"node {victim} is asked to stop, and starts again")
                self._cluster.stop(victim, until_ended=False)
                patience_ms = self._after(STOP_MS_MAX)
                while self._cluster.is_running(victim) and self._now_ms() < patience_ms:
                    yield self._after(POLL_MS)
            finally:
                self._stopping.discard(victim)
                if self._cluster.is_running(victim):
                    self._note(fault, f"node {victim} has not stopped and is killed")
                    self._cluster.kill(victim)
            yield self._after(fault.back_ms)
        if fault.kind != plan.ROLLING:
            self._end(fault)
        yield from self._follow(victim, READY_MS_MAX)

    def _roll(self, fault: Fault) -> Steps:
        """Each node in turn stops in order and starts again, the next when the cluster is whole."""
        for node in self._cluster.node_ids:
            patience_ms = self._after(WHOLE_MS_MAX)
            while not self._cluster.is_whole() or self._stopping:
                if self._now_ms() >= patience_ms:
                    self._note(fault, f"the rolling restart is given up at node {node}: the cluster is not whole")
                    self._open[fault.lane].missed = f"given up at node {node}: the cluster was not whole"
                    return
                yield self._after(WHOLE_POLL_MS)
            yield from self._stop(replace(fault, node=node))

    def _stumble(self, fault: Fault) -> Steps:
        """Killed again while it starts, some times."""
        victim = yield from self._victim(fault)
        for number in range(fault.amount):
            if victim is None or not self._runs(victim):
                return
            yield from self._crash(victim, fault)
            again_ms = self._after(fault.duration_ms)
            is_last = number == fault.amount - 1
            yield from self._follow(victim, READY_MS_MAX if is_last else fault.duration_ms)
            yield again_ms

    def _pause(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is None:
            return
        try:
            self._note(fault, f"node {victim} is frozen for {fault.duration_ms} ms")
            self._cluster.pause(victim)
            yield self._after(fault.duration_ms)
        finally:
            if self._cluster.is_running(victim):
                self._cluster.resume(victim)
            self._end(fault)

    def _cut(self, fault: Fault) -> Steps:
        """Pairs of nodes, while it lasts. Clients reach all nodes still, unless it is they who are cut off."""
        cluster = self._cluster
        node = fault.node if not fault.role else (yield from self._victim(fault))
        if node is None:
            return
        fault = replace(fault, node=node)
        pairs = tuple(pair for pair in pairs_of(fault, cluster.shape) if cluster.has_link(*pair))
        if any(cluster.is_cut(one, other) or cluster.is_cut(other, one) for one, other in pairs):
            self._open[fault.lane].missed = "a link of it was cut already"
            return
        if not fault.role:
            self._open[fault.lane].nodes += _cut_off(fault, pairs)
        try:
            self._note(fault, f"{words_of(fault, cluster.shape)} for {fault.duration_ms} ms")
            cluster.cut(pairs, manner=fault.manner or plan.HANG)
            yield self._after(fault.duration_ms)
        finally:
            cluster.join(pairs)
            self._end(fault)

    def _break(self, fault: Fault) -> Steps:
        """What only this cluster can have. A node that stops for it comes back when it is over."""
        victim = yield from self._victim(fault)
        begin_ms = self._now_ms()
        end = None if victim is None else self._cluster.begin_fault(replace(fault, node=victim, role=""))
        if victim is None or end is None:
            return
        self._note(fault, _words_of(fault, victim), begin_ms)
        may_stop = fault.kind in STOPPING_KINDS
        with self._come_back(victim) if may_stop else nullcontext():
            try:
                yield self._after(fault.duration_ms)
            finally:
                end()
            if may_stop and not self._cluster.is_running(victim):
                yield self._after(fault.back_ms)
        self._end(fault)
        if may_stop:
            yield from self._follow(victim, READY_MS_MAX)


def _cut_off(fault: Fault, pairs: Iterable[Pair]) -> list[int]:
    """Whom a partition is about: the node or the link that it names, else all nodes that do not see some other one."""
    if fault.node:
        return [node for node in (fault.node, fault.other) if node > 0]
    return sorted({node for pair in pairs for node in pair if node})


def _words_of(fault: Fault, victim: int) -> str:
    """What begins, for people."""
    target = f" to {end_words(fault.other)}" if fault.other and fault.kind in LINK_KINDS else ""
    how = f": it {fault.quality_words}" if fault.kind in plan.QUALITY_KINDS else ""
    return f"{fault.kind} of {end_words(victim)}{target}{how}"
