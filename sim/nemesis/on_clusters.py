"""Carries out a plan's faults on any cluster that implements them: one of real processes, or a simulated one.

`FaultRun.steps` does what is due and yields the next time; the code that drives it lets real or virtual time pass. As
in a plan, faults of the same lane happen one after the other, and lanes run in parallel. There is no budget: every
requested fault happens.

Impossible faults are skipped: a node that is down is not killed, a link that is cut is not cut again. Each fault ends
what it began, also when the run is aborted: nodes return, links are restored. A fault never waits for a node that
another lane's fault may need.
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
"""Kinds of faults that every cluster here implements, if its shape allows them."""
LINK_KINDS = (*plan.LINK_KINDS, *plan.TOXIC_KINDS)
BETWEEN_NODES = (*LINK_KINDS, plan.ISOLATE)
ROLES_EVERYWHERE = (plan.ACTIVE_CONTROLLER, plan.A_LEADER, plan.SHRUNK_LEADER)
"""Roles that every cluster here can find. The shrunk leader is the leader of any partition with a replica out of sync.
Unlike in `kraft sim`, it is not known which partition shrank last."""
STOPPING_KINDS = (plan.POWER_LOSS, plan.EMPTY_DISK, "full disk", "failing sync")
"""Kinds of faults started by `begin_fault` because of which a node stops, at once or when it notices them."""
POLL_MS = 1
MOMENT_MS_MAX = 5_000
"""Maximum time in ms to wait for a node with a role. After that the fault is skipped."""
STOP_MS_MAX = 10_000
"""Maximum time in ms that a clean stop may take. After that the node is killed."""
WHOLE_MS_MAX = 30_000
"""Maximum time that a rolling restart waits for a healthy cluster before it continues with the next node."""
WHOLE_POLL_MS = 20
READY_MS_MAX = 10_000
"""Maximum time in ms to wait until a restarted node serves. It cannot serve while too many other nodes are down."""

Steps = Generator[int, None, None]
"""Generator of the times at which it must be resumed. Closing it early ends all active faults."""


def kinds_of(cluster: BreakableCluster) -> tuple[str, ...]:
    """Return the kinds of faults that this cluster can have. A cluster of one node, for example, has no links between
    nodes."""
    is_alone = len(cluster.node_ids) == 1
    kinds = (kind for kind in cluster.fault_kinds if plan.allows(cluster.shape, kind))
    return tuple(kind for kind in kinds if not (is_alone and kind in BETWEEN_NODES))


def faults_of_seed(cluster: BreakableCluster, seed: int, duration_ms: int) -> tuple[Fault, ...]:
    """Draw the faults of a seed for this cluster, of its possible kinds; there is at least one. A power loss that the
    cluster cannot have becomes a kill, and a role that it cannot find becomes the active controller."""
    from kraft.sim.nemesis.drawing import CALM_SEEDS, PlanChoices, draw_faults
    from kraft.sim.nemesis.faults import FaultSettings

    def as_it_can_be(fault: Fault) -> Fault:
        kind = fault.kind if fault.kind in kinds else plan.KILL
        role = fault.role if fault.role in ("", *cluster.fault_roles) else plan.ACTIVE_CONTROLLER
        return replace(fault, kind=kind, role=role)

    kinds = tuple(kind for kind in kinds_of(cluster) if kind in plan.FAULT_KINDS)
    profile = PlanChoices(kinds=tuple(kind for kind in kinds if kind not in plan.CRASH_KINDS))
    never_calm = CALM_SEEDS * seed + 1
    found = draw_faults(never_calm, profile, FaultSettings(duration_ms=duration_ms), cluster.shape)
    return tuple(map(as_it_can_be, found))


def _listed(faults: object) -> list[Fault]:
    given = [*faults] if isinstance(faults, Iterable) else []
    if not isinstance(faults, Iterable) or not all(isinstance(each, Fault) for each in given):
        raise ClusterError(f"what is carried out is a list of kraft.sim.nemesis.plan.Fault, and not {faults!r}")
    return given


@dataclass(slots=True, eq=False)
class FaultOccurrence:
    """What happened to one fault. `begin_ms` None: it has not begun; if it was skipped, `missed` says why. Times are
    those of `now_ms`."""

    fault: Fault
    nodes: list[int] = field(default_factory=list)
    """Affected nodes: for a link both ends, for a partition all nodes that are cut off from others."""
    text: str = ""
    begin_ms: int | None = None
    end_ms: int | None = None
    """Time when the fault was over: a node was started again, or a link was healed."""
    missed: str = ""


class FaultRun:
    """Carries out `faults` on `cluster`. Raises ClusterError if this cluster cannot have one of the faults."""

    def __init__(self, cluster: BreakableCluster, faults: Iterable[Fault], now_ms: Callable[[], int]) -> None:
        self.history: list[str] = []
        """What was done so far, line by line."""
        self.windows: list[FaultOccurrence] = []
        """Faults whose scheduled time has come, in that order."""
        self._open: dict[int, FaultOccurrence] = {}
        """Lane (sequence of faults that do not overlap) → what happened so far to its current fault."""
        self._cluster = cluster
        self._now_ms = now_ms
        self._start_ms = now_ms()
        self._stopping: set[int] = set()
        """Nodes that a fault has asked to stop; no other fault may affect them."""
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
                f"this cluster cannot find the node with role {fault.role!r}: "
                f"known roles are {', '.join(cluster.fault_roles)}"
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
        """Do what is due, and yield the time (of `now_ms`) at which to resume. A driver that stops early closes the
        generator: then, and after an error, all faults in progress are ended."""
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
            window = self._open[fault.lane] = FaultOccurrence(fault)
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
        """Record a step of a fault in the history: it begins now, began at the given time, or continues."""
        at_ms = self._now_ms() if at_ms is None else at_ms
        self.history.append(f"{at_ms - self._start_ms} ms: {text}")
        window = self._open[fault.lane]
        if window.begin_ms is None:
            window.begin_ms, window.text = at_ms, text

    def _end(self, fault: Fault) -> None:
        """Record that the fault is over, unless that is recorded already."""
        window = self._open[fault.lane]
        if window.begin_ms is not None and window.end_ms is None:
            window.end_ms = self._now_ms()

    # targets

    def _victim(self, fault: Fault) -> Generator[int, None, int | None]:
        """Return the node that the fault names, or a node with the fault's role, if it runs. Wait until some node has
        the role. A fault of clients needs no node."""
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

    # effects

    def _kill(self, fault: Fault) -> Steps:
        victim = yield from self._victim(fault)
        if victim is not None:
            yield from self._crash(victim, fault)
            self._end(fault)
            yield from self._follow(victim, READY_MS_MAX)

    def _crash(self, victim: int, fault: Fault) -> Steps:
        """Kill a node, and start it again."""
        with self._come_back(victim):
            self._note(fault, f"kill of node {victim}, back after {fault.back_ms} ms")
            self._cluster.kill(victim)
            yield self._after(fault.back_ms)

    @contextmanager
    def _come_back(self, node: int) -> Iterator[None]:
        """Start the node at the end of the fault, unless it was started otherwise."""
        try:
            yield
        finally:
            if not self._cluster.is_running(node):
                self._cluster.start(node, until_ready=False)

    def _follow(self, node: int, wait_ms: int) -> Steps:
        """Wait until a started node serves, up to a maximum time."""
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
        """Restart each node cleanly in turn; the next node follows when the cluster is healthy."""
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
        """Kill a node repeatedly while it starts."""
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
        """Cut pairs of nodes for the duration of the fault. Clients still reach all nodes, unless the fault cuts them
        off."""
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
        """Carry out a fault that only this kind of cluster can have. A node that stops because of it is restarted when
        the fault is over."""
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
    """Return the nodes that a partition affects: the node or the link that the fault names, or else all nodes that
    cannot reach some other node."""
    if fault.node:
        return [node for node in (fault.node, fault.other) if node > 0]
    return sorted({node for pair in pairs for node in pair if node})


def _words_of(fault: Fault, victim: int) -> str:
    """Describe in words the fault that begins."""
    target = f" to {end_words(fault.other)}" if fault.other and fault.kind in LINK_KINDS else ""
    how = f": it {fault.quality_words}" if fault.kind in plan.QUALITY_KINDS else ""
    return f"{fault.kind} of {end_words(victim)}{target}{how}"
