"""Signs that a fault took effect, each found in the samples or in the history.

A sign is searched for in the fault's window: from its begin to GRACE_MS after its end, or to the begin of the next
fault if that comes first. For signs that only the affected nodes can show, the window lasts until the next fault that
affects one of them. A sign is a change from the state before the fault. If the fault names nodes, only changes that
concern them count. Samples are about 100 ms apart, so a set that shrinks and grows again may be missed. A change of
leader is not missed, because epochs only increase.

On a busy machine sends fail or wait for many reasons. For a fault that names nodes only three cases count, which have
no other explanation. First, sends to a partition that an affected node leads, before the fault or in its window.
Second, a rejection for too few in-sync replicas where an affected node is a replica. Third, a gap of at least half the
fault's duration where an affected node was in sync: acks=all waits for a follower that is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from kraft.sim.chaos.history import Function, Place
from kraft.sim.chaos.judge.availability import Activity, activities_of, quantile
from kraft.sim.chaos.judge.operations import HistoryOperation, lineage_of, name_of
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, PartitionSample
from kraft.sim.nemesis import plan

GRACE_MS = 12_000
"""Time after a fault's end in which its effects may still appear. Kafka fences a broker only after 9 s, even if the
broker restarts at once."""
GRACE_OF_NODES_MS = 30_000
"""Time after a fault's end in which signs may still appear that only the affected nodes can show. It is longer than
GRACE_MS, because a quorum without a leader fences no broker in the meantime."""
SHORT_MS = 300
"""Duration in ms below which a fault may begin and end between two samples."""
BEFORE_MS = 5_000
"""Length of the time before a fault; its successes and latencies are compared with those during the fault."""
GAP_MS_MIN, GAP_FACTOR, GAP_SUCCESSES_MIN = 250, 3, 3
"""Minimum length of a gap, minimum ratio of a gap to the longest gap before the fault, and minimum number of successes
in the time before the fault."""
SLOWER_FACTOR, SLOWER_MS_MIN, SLOWER_COUNT_MIN = 2, 10, 20
"""Minimum factor and minimum ms by which sends must be slower than before the fault, and minimum number of sends before
and during the fault."""
SILENT_MS_MIN, SETTLE_MS = 500, 200
"""Minimum time without bytes after which a link counts as silent, and delay after the fault's begin from which that
time is counted, so that bytes in flight may arrive."""
REFUSALS = (
    "NOTENOUGHREPLICAS",
    "NOTLEADER",
    "LEADERNOTAVAILABLE",
    "STORAGEERROR",
    "TIMEDOUT",
    "TIMEOUT",
    "DISCONNECT",
    "NETWORKEXCEPTION",
    "TRANSPORT",
)
"""Errors of sends that are rejections by brokers, or mean that no broker was reachable. An error matches if its letters
occur anywhere in the reason; other characters are ignored."""
TOO_FEW_REPLICAS = "NOTENOUGHREPLICAS"
CREATIONS = "topics that are created"
"""Name used instead of a partition's name for gaps of topic creations."""

LINK_KINDS = (*plan.LINK_KINDS, *plan.TOXIC_KINDS)

Value = TypeVar("Value")
Series = Sequence[tuple[float, Value]]


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """The data of a run in which signs are searched for. `samples` are ordered by time."""

    samples: Sequence[ClusterSample]
    operations: Sequence[HistoryOperation]
    duration_ms: float
    partitions: Mapping[Place, Series[PartitionSample]] = field(init=False)
    sends: Sequence[HistoryOperation] = field(init=False)
    activities: Mapping[str, Activity] = field(init=False)

    def __post_init__(self) -> None:
        found: dict[Place, list[tuple[float, PartitionSample]]] = {}
        for sample in self.samples:
            for each in sample.partitions:
                found.setdefault(Place(each.topic, each.partition), []).append((sample.time_ms, each))
        object.__setattr__(self, "partitions", found)
        object.__setattr__(self, "sends", [each for each in self.operations if each.f is Function.SEND])
        sends = activities_of(self.sends, Function.SEND, self.duration_ms)
        creations = activities_of(self.operations, Function.CREATE_TOPIC, self.duration_ms)
        named = {CREATIONS: creations[""]} if creations else {}
        object.__setattr__(self, "activities", {**sends, **named})

    def series(self, value: Callable[[ClusterSample], Value | None]) -> list[tuple[float, Value]]:
        """Return (ms, value) of each sample for which `value` does not return None."""
        return [(each.time_ms, found) for each in self.samples for found in [value(each)] if found is not None]


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A fault with the window in which its signs count: the fault lasted from `begin_ms` to `end_ms`, and signs count
    until `until_ms` (all in ms)."""

    observed: ObservedRun
    kind: str
    nodes: frozenset[int]
    begin_ms: float
    end_ms: float
    until_ms: float
    until_of_nodes_ms: float
    """End of the window for signs that only the affected nodes can show: the begin of the next fault that affects one
    of them."""

    def before(self, series: Series[Value]) -> Value | None:
        """Return the last value before the fault."""
        return next((value for time_ms, value in reversed(series) if time_ms <= self.begin_ms), None)

    def within_of_nodes(self, series: Series[Value]) -> Iterator[tuple[float, Value]]:
        """Yield the values in the longer window, for signs that only the affected nodes can show."""
        return ((time_ms, value) for time_ms, value in series if self.begin_ms < time_ms <= self.until_of_nodes_ms)

    def within(self, series: Series[Value]) -> Iterator[tuple[float, Value]]:
        """Yield the values in the fault's window."""
        return ((time_ms, value) for time_ms, value in series if self.begin_ms < time_ms <= self.until_ms)

    def after_s(self, time_ms: float) -> str:
        return f"after {(time_ms - self.begin_ms) / 1000:.2f} s"

    def is_hit(self, node: int) -> bool:
        """Return whether the fault affected this node. A fault that names no nodes affects all."""
        return not self.nodes or node in self.nodes


def case_of(observed: ObservedRun, faults: Sequence[FaultRecord], number: int) -> FaultCase:
    """Return the window of the fault with this number."""
    fault = faults[number]
    end_ms = observed.duration_ms if fault.end_ms is None else max(fault.end_ms, fault.begin_ms)
    later = [other for other in faults if other.begin_ms > end_ms and not other.missed]
    alike = [other for other in later if not fault.nodes or not other.nodes or {*fault.nodes} & {*other.nodes}]
    until_ms = min([end_ms + GRACE_MS, *(other.begin_ms for other in later)])
    until_of_nodes_ms = min([end_ms + GRACE_OF_NODES_MS, *(other.begin_ms for other in alike)])
    nodes = frozenset(fault.nodes)
    return FaultCase(observed, fault.kind, nodes, fault.begin_ms, end_ms, until_ms, until_of_nodes_ms)


def numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, sorted(values))) or "none"


# signs of the cluster


def isr(case: FaultCase) -> str | None:
    """Find an ISR that loses an affected node, or any member if the fault names no node."""
    for place, series in case.observed.partitions.items():
        first = case.before(series)
        members = set(first.isr) if first is not None else set()
        for time_ms, each in case.within_of_nodes(series):
            lost = {member for member in members - {*each.isr} if case.is_hit(member)}
            if lost:
                change = f"went from {numbers(members)} to {numbers(each.isr)} {case.after_s(time_ms)}"
                return f"ISR of {name_of(place)} {change}"
            members = set(each.isr)
    return None


def leader(case: FaultCase) -> str | None:
    """Find a new leader epoch of a partition that an affected node led (any partition if the fault names no node). A
    report without a leader, in the same epoch, is not an election: pykraft's brokers send such a report when they
    cannot dial the leader."""
    for place, series in case.observed.partitions.items():
        first = case.before(series)
        if first is None or not case.is_hit(first.leader):
            continue
        for time_ms, each in case.within_of_nodes(series):
            if each.leader_epoch > first.leader_epoch:
                was, now = (f"{one.leader} (epoch {one.leader_epoch})" for one in (first, each))
                return f"leader of {name_of(place)} went from {was} to {now} {case.after_s(time_ms)}"
    return None


def controller(case: FaultCase) -> str | None:
    """Find a change of the quorum's leader or epoch. Before the change its leader was an affected node, or any node if
    the fault names none."""
    series = case.observed.series(
        lambda each: (each.controller, each.controller_epoch) if each.controller >= 0 else None
    )
    first = case.before(series)
    if first is None or not case.is_hit(first[0]):
        return None
    for time_ms, (node, epoch) in case.within_of_nodes(series):
        if node != first[0] or epoch > first[1]:
            was = f"{first[0]} (epoch {first[1]})"
            return f"the active controller went from {was} to {node} (epoch {epoch}) {case.after_s(time_ms)}"
    return None


def elections(case: FaultCase) -> str | None:
    """Find a new leader or a higher epoch of any partition or of the quorum."""
    anyone = replace(case, nodes=frozenset(), until_of_nodes_ms=case.until_ms)
    return leader(anyone) or controller(anyone)


def voters(case: FaultCase) -> str | None:
    """Find a change of the set of voters."""
    series = case.observed.series(lambda each: frozenset(each.voters) or None)
    first = case.before(series)
    for time_ms, each in case.within(series):
        if first is not None and each != first:
            return f"voters went from {numbers(first)} to {numbers(each)} {case.after_s(time_ms)}"
    return None


def fenced(case: FaultCase) -> str | None:
    """Find an affected node, or any broker if the fault names none, that the cluster no longer lists as alive."""
    series = case.observed.series(lambda each: frozenset(each.brokers) or None)
    alive = case.before(series) or frozenset()
    for time_ms, each in case.within_of_nodes(series):
        lost = {node for node in alive - each if case.is_hit(node)}
        if lost:
            return f"broker {numbers(lost)} was fenced {case.after_s(time_ms)}"
        alive = each
    return None


def process(case: FaultCase) -> str | None:
    """Find that each affected node (each node if the fault names none) that ran before was down at some time. Either a
    sample does not list it as running, or the fact "starts NODE" shows that it was restarted."""
    if not any(each.running for each in case.observed.samples):
        return None
    series = case.observed.series(lambda each: frozenset(each.running))
    ran = case.before(series) or frozenset()
    hit = case.nodes or ran
    stopped: dict[int, float] = {}
    for time_ms, running in case.within_of_nodes(series):
        for node in ran & hit - running:
            stopped.setdefault(node, time_ms)
    for node in hit - stopped.keys():
        starts = case.observed.series(lambda each, name=f"starts {node}": each.facts.get(name))  # type: ignore[misc]
        was = case.before(starts)
        again = (time_ms for time_ms, count in case.within_of_nodes(starts) if was is not None and count > was)
        if (again_ms := next(again, None)) is not None:
            stopped[node] = again_ms
    if not hit or not hit <= stopped.keys():
        return None
    return f"node {numbers(hit)} did not run {case.after_s(min(stopped.values()))}"


def follower_controller(case: FaultCase) -> str | None:
    """Find that the affected nodes are followers of the quorum and not brokers: only their processes can show the
    fault."""
    samples = case.observed.samples
    leads = case.before(case.observed.series(lambda each: each.controller if each.controller >= 0 else None))
    voting = case.before(case.observed.series(lambda each: frozenset(each.voters) or None)) or frozenset()
    serving = {broker for each in samples for broker in each.brokers}
    if not case.nodes or leads is None or leads in case.nodes or not case.nodes <= voting or case.nodes & serving:
        return None
    return f"node {numbers(case.nodes)} is a controller that did not lead"


def between_samples(case: FaultCase) -> str | None:
    """Find that the fault lies between two samples, because it was shorter than SHORT_MS."""
    span_ms = case.end_ms - case.begin_ms
    inside = any(case.begin_ms < each.time_ms < case.end_ms for each in case.observed.samples)
    return None if inside or span_ms >= SHORT_MS else f"no sample lies in its {span_ms:.0f} ms"


# signs of the clients


def refusals(case: FaultCase) -> str | None:
    """Find more sends than usual that fail because brokers reject them or cannot be reached. The usual number is the
    rate before the fault, multiplied by the length of the window. The time before the fault is as long as the window,
    but begins with the run at the earliest."""
    span_ms = case.until_ms - case.begin_ms
    before_ms = min(span_ms, case.begin_ms)
    refused = [
        (send.end_ms, send.error)
        for send in case.observed.sends
        if not send.is_ok and send.end_ms is not None and _is_refusal(send.error) and _is_refused_by(case, send)
    ]
    before = sum(case.begin_ms - before_ms <= time_ms <= case.begin_ms for time_ms, _ in refused)
    during = [error for time_ms, error in refused if case.begin_ms < time_ms <= case.until_ms]
    usual = before * span_ms / before_ms if before_ms > 0 else 0.0
    if len(during) <= usual:
        return None
    return (
        f"{len(during)} sends were refused ({', '.join(sorted({*during}))}), and {before} in the "
        f"{max(before_ms, 0) / 1000:.1f} s before"
    )


def _is_refused_by(case: FaultCase, send: HistoryOperation) -> bool:
    """Return whether the affected nodes can be the cause of a rejected send; see the module."""
    replicas = {node for _, one in case.observed.partitions.get(send.place, ()) for node in one.replicas}
    is_for_replicas = _letters(send.error).startswith(TOO_FEW_REPLICAS) and any(map(case.is_hit, replicas))
    return is_for_replicas or _is_led_by_hit(case, send.place)


def _is_led_by_hit(case: FaultCase, place: Place) -> bool:
    """Return whether an affected node led this partition before the fault or in its window; True if the fault names no
    node."""
    series = case.observed.partitions.get(place, ())
    first = case.before(series)
    seen = [*([] if first is None else [first]), *(one for _, one in case.within(series))]
    return not case.nodes or any(one.leader in case.nodes for one in seen)


def _is_refusal(error: str) -> bool:
    return any(each in _letters(error) for each in REFUSALS)


def _letters(error: str) -> str:
    return "".join(filter(str.isalpha, error)).upper()


def slower(case: FaultCase) -> str | None:
    """Find slower sends: the median or the 95th percentile of successful sends is at least SLOWER_FACTOR times that of
    the time before the fault."""
    times = [(send.begin_ms, send.end_ms) for send in case.observed.sends if send.is_ok]
    took = [(begin, end) for begin, end in times if end is not None]
    end_ms = case.until_ms if case.end_ms - case.begin_ms < SHORT_MS else case.end_ms
    since_ms = case.begin_ms - BEFORE_MS
    before = sorted(end - begin for begin, end in took if since_ms <= begin and end <= case.begin_ms)
    during = sorted(end - begin for begin, end in took if begin <= end_ms and end > case.begin_ms)
    if min(len(before), len(during)) < SLOWER_COUNT_MIN:
        return None
    for share, name in ((0.5, "median"), (0.95, "95th percentile")):
        was_ms, is_ms = quantile(before, share) or 0.0, quantile(during, share) or 0.0
        if is_ms >= SLOWER_FACTOR * was_ms and is_ms - was_ms >= SLOWER_MS_MIN:
            return f"the {name} of sends went from {was_ms:.1f} to {is_ms:.1f} ms"
    return None


def gap(case: FaultCase) -> str | None:
    """Find a partition that had successful sends and then has none for much longer than between any two successes
    before. A time in which no topic can be created counts as well. The affected nodes must be a possible cause: see the
    module."""
    for place, activity in case.observed.activities.items():
        times, until_ms = activity.successes, min(case.until_ms, activity.tried_until_ms)
        before = [time for time in times if case.begin_ms - BEFORE_MS <= time <= case.begin_ms]
        caused_ms = _gap_that_is_caused_ms(case, place)
        if len(before) < GAP_SUCCESSES_MIN or caused_ms is None:
            continue
        usual_ms = max(later - earlier for earlier, later in pairwise(before))
        least_ms = max(GAP_MS_MIN, GAP_FACTOR * usual_ms, caused_ms)
        edges = [case.begin_ms, *(time for time in times if case.begin_ms < time < until_ms), until_ms]
        for earlier, later in pairwise(edges):
            if earlier <= case.end_ms and later - earlier >= least_ms:
                return f"no success in {place} for {later - earlier:.0f} ms, {case.after_s(earlier)}"
    return None


def _gap_that_is_caused_ms(case: FaultCase, name: str) -> float | None:
    """Return the minimum length from which a gap of this partition, or of CREATIONS, counts as caused by the fault;
    None if the fault cannot cause it. For CREATIONS the affected nodes must be controllers, which create topics."""
    if name == CREATIONS:
        voters_of = case.observed.series(lambda each: frozenset(each.voters) or None)
        return None if case.nodes and not case.nodes & (case.before(voters_of) or frozenset()) else 0.0
    place = next((each for each in case.observed.partitions if name_of(each) == name), None)
    if not case.nodes or (place is not None and _is_led_by_hit(case, place)):
        return 0.0
    first = None if place is None else case.before(case.observed.partitions[place])
    is_awaited = first is not None and any(map(case.is_hit, first.isr)) and not _is_of_one_link(case)
    return (case.end_ms - case.begin_ms) / 2 if is_awaited else None


def _is_of_one_link(case: FaultCase) -> bool:
    """Return whether the fault affects only the link between two ends: a partition that a third node leads does not
    need that link."""
    return case.kind in (*LINK_KINDS, plan.CLIENTS_CUT)


def rebalances(case: FaultCase) -> str | None:
    """Find partitions that are reassigned among the members of a group."""
    members = {lineage_of(each.process) for each in case.observed.operations if "group" in each.values}
    found = [
        each
        for each in case.observed.operations
        if each.f is Function.ASSIGN and lineage_of(each.process) in members and _ended_in(case, each)
    ]
    return f"{len(found)} assignments of group members" if found else None


def topics(case: FaultCase) -> str | None:
    """Find topics that are created or deleted successfully."""
    functions = (Function.CREATE_TOPIC, Function.DELETE_TOPIC)
    found = [each for each in case.observed.operations if each.f in functions and each.is_ok and _ended_in(case, each)]
    return f"{len(found)} topics were created or deleted" if found else None


def _ended_in(case: FaultCase, operation: HistoryOperation) -> bool:
    return operation.end_ms is not None and case.begin_ms < operation.end_ms <= case.until_ms


# signs of other measurements


_LINK = re.compile(r"(?P<what>.+) (?P<source>\S+)->(?P<target>\S+)")
_FACT = re.compile(r"(?P<name>.+?)(?: by (?P<by>[\d.]+)| under (?P<under>[\d.]+)%)?")


def silent(case: FaultCase) -> str | None:
    """Find a cut link over which bytes passed before the cut and none during it, according to the facts "proxy bytes
    SOURCE->TARGET"."""
    for name in _fact_names(case):
        link = _LINK.fullmatch(name)
        if link is None or not link["what"].endswith("bytes") or not _is_cut(case, link["source"], link["target"]):
            continue
        series = case.observed.series(lambda each, name=name: each.facts.get(name))  # type: ignore[misc]
        before = [value for time_ms, value in series if case.begin_ms - BEFORE_MS <= time_ms <= case.begin_ms]
        during = [each for each in series if case.begin_ms + SETTLE_MS <= each[0] <= case.end_ms]
        if not during or len(before) < 2 or before[-1] <= before[0]:
            continue
        span_ms = during[-1][0] - during[0][0]
        is_still = during[-1][1] <= during[0][1]
        if is_still and span_ms >= max(SILENT_MS_MIN, (case.end_ms - case.begin_ms) / 2):
            return f"nothing passed from {link['source']} to {link['target']} for {span_ms:.0f} ms"
    return None


def _is_cut(case: FaultCase, source: str, target: str) -> bool:
    """Return whether the fault cuts the link between these two ends. An end that is not a node stands for clients. A
    cut of one link that affects a single node is between that node and clients."""
    ends = [int(end) if end.isdigit() else -1 for end in (source, target)]
    if case.kind == plan.CLIENTS_CUT or (case.kind in plan.LINK_KINDS and len(case.nodes) == 1):
        return -1 in ends and any(case.is_hit(end) for end in ends if end >= 0)
    if -1 in ends:
        return False
    if case.kind in plan.LINK_KINDS:
        return {*ends} == case.nodes
    return any(case.is_hit(end) for end in ends)


def fact(case: FaultCase, wanted: str) -> str | None:
    """Find a measurement that changes. `NAME` requires that it increases over its value before the fault. `NAME by X`
    requires a change by at least X, up or down. `NAME under X%` requires that it falls to at most that share of its
    value before the fault. "NAME N" and "NAME N->M" of affected nodes match too; N or M may be "clients". For a fault
    between two nodes, only their link matches. Clients also end their connections when they finish, so measurements
    after the clients' end do not count."""
    parts = _FACT.fullmatch(wanted)
    if parts is None:
        return None
    for name in _fact_names(case):
        if not _is_meant(case, parts["name"], name):
            continue
        series = case.observed.series(lambda each, name=name: each.facts.get(name))  # type: ignore[misc]
        was = case.before(series)
        for time_ms, value in case.within(series):
            if time_ms <= case.observed.duration_ms and _has_moved(was, value, parts["by"], parts["under"]):
                return f"{name} went from {0 if was is None else was:g} to {value:g} {case.after_s(time_ms)}"
    return None


def _has_moved(was: float | None, value: float, by: str | None, under: str | None) -> bool:
    if under is not None:
        return was is not None and was > 0 and value <= was * float(under) / 100
    if by is not None:
        return abs(value - (was or 0.0)) >= float(by)
    return value > (was or 0.0)


def _is_meant(case: FaultCase, wanted: str, name: str) -> bool:
    if name == wanted:
        return True
    rest = name.removeprefix(f"{wanted} ")
    ends = rest.split("->")
    nodes = [int(end) for end in ends if end.isdigit()]
    has_known_ends = rest != name and len(ends) <= 2 and all(end.isdigit() or end == "clients" for end in ends)
    if case.kind in LINK_KINDS and len(case.nodes) == len(ends) == 2:
        return has_known_ends and {*nodes} == case.nodes
    return has_known_ends and any(map(case.is_hit, nodes))


def _fact_names(case: FaultCase) -> list[str]:
    return list(dict.fromkeys(name for each in case.observed.samples for name in each.facts))
