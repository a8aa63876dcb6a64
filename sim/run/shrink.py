"""Makes a failing plan smaller while the same check fails with the same text (delta debugging, Zeller and Hildebrandt).

One run decides about one candidate, because a run follows entirely from its plan. First the time after the finding is
removed, then faults, clients, nodes, settings and operations; what remains is made shorter. Removals that make later
runs cheapest are tried first: a candidate that fails ends at its finding, one that does not fail runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kraft.sim.nemesis.plan import OVERRIDES, SENDER_VERBS, VOTER_CHANGER, Fault, Plan, PlannedOperation, allows
from kraft.sim.run.run import RunResult, Signature, run_plan
from kraft.sim.world.options import WorldOptions

T = TypeVar("T")
Run = Callable[[Plan, Signature], RunResult]

RUNS_MAX = 300
MARGIN_MS = 50
"""Time in ms by which a plan continues after its finding."""
NODES_MIN = (1, 1)
"""Minimum number of controllers, and of brokers."""


@dataclass(frozen=True, slots=True)
class ShrinkProgress:
    """Report of one candidate that still fails: what was removed, the present plan, and the number of runs so far."""

    what: str
    plan: Plan
    runs: int


class NotFailing(Exception):
    """The plan does not fail with the requested finding."""


class Shrinker:
    """Shrinks one plan; `smallest` is the smallest failing plan so far. `run` carries out a plan and stops at the
    finding."""

    def __init__(self, plan: Plan, failure: Signature, *, runs_max: int = RUNS_MAX, run: Run = run_plan) -> None:
        self.smallest = plan
        self.runs = 0
        self._failure = failure
        self._runs_max = runs_max
        self._run = run
        self._found_ms = 0
        """Time when the check fails in the smallest plan, counted from the start of its faults."""

    def steps(self) -> Iterator[ShrinkProgress]:
        """Remove all that can be removed, step by step. Raises NotFailing if the plan does not fail at first."""
        if not self._fails(self.smallest):
            raise NotFailing(f"this plan does not fail {self._failure.check}: {self._failure.text}")
        size = -1
        while size != (size := _size(self.smallest)) and self.runs < self._runs_max:
            for step in (
                self._end_early,
                self._drop_faults,
                self._drop_clients,
                self._drop_nodes,
                self._drop_settings,
                self._drop_operations,
                self._shorten,
            ):
                for what in step():
                    yield ShrinkProgress(what, self.smallest, self.runs)

    # candidates

    def _fails(self, plan: Plan) -> bool:
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        result = self._run(plan, self._failure)
        found = [finding.at_ms for finding in result.findings if Signature.of(finding) == self._failure]
        if found:
            self._found_ms = found[0] - result.began_ms
        return bool(found)

    def _take(self, plan: Plan) -> bool:
        """Try a candidate, and keep it if it fails."""
        if plan == self.smallest or not self._fails(plan):
            return False
        self.smallest = plan
        return True

    def _reduce(self, items: Sequence[T], make: Callable[[tuple[T, ...]], Plan]) -> Iterator[int]:
        """Remove `items` that are not needed for the failure: halves, quarters, … (ddmin). Yield after each step how
        many remain."""
        kept, chunk = tuple(items), len(items)
        while kept and chunk:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + chunk :]
                if self._take(make(fewer)):
                    kept = fewer
                    yield len(kept)
                else:
                    at += chunk
            chunk //= 2

    # possible removals

    def _end_early(self) -> Iterator[str]:
        """Remove everything after the finding."""
        plan, end_ms = self.smallest, max(0, self._found_ms) + MARGIN_MS
        if plan.ends_early and end_ms >= plan.duration_ms:
            return
        if self._take(replace(_until(plan, end_ms), duration_ms=end_ms, ends_early=True)):
            yield f"the time after {end_ms} ms"
        elif self._take(_until(plan, plan.duration_ms)):
            yield "the operations after the faults"

    def _drop_faults(self) -> Iterator[str]:
        count = len(self.smallest.faults)

        def make(faults: tuple[Fault, ...]) -> Plan:
            return replace(self.smallest, faults=faults)

        for left in self._reduce(self.smallest.faults, make):
            yield f"faults: {count} -> {left}"

    def _drop_clients(self) -> Iterator[str]:
        for client in tuple(self.smallest.work):
            work = {name: operations for name, operations in self.smallest.work.items() if name != client}
            if self._take(replace(self.smallest, work=work)):
                yield f"client {client}"

    def _drop_nodes(self) -> Iterator[str]:
        for role, least in zip(("controllers", "brokers"), NODES_MIN, strict=True):
            while (count := getattr(self.smallest.shape, role)) > least:
                if not self._take(_reshaped(self.smallest, **{role: count - 1})):
                    break
                yield f"{role}: {count} -> {count - 1}"

    def _drop_settings(self) -> Iterator[str]:
        plan = self.smallest
        calm = replace(plan, options=WorldOptions(), compression="none", topic_configs={}, small_sizes=())
        if self._take(_reshaped(calm, overrides=dict(OVERRIDES), log_dirs=1, dynamic_voters=False)):
            yield "all settings"
            return
        for name in plan.shape.overrides:
            if name not in OVERRIDES:
                rest = {key: value for key, value in self.smallest.shape.overrides.items() if key != name}
                if self._take(_reshaped(self.smallest, overrides=rest)):
                    yield f"setting {name}"
        for name in plan.small_sizes:
            if self._take(replace(self.smallest, small_sizes=_without(name, self.smallest.small_sizes))):
                yield f"small {name}"
        if self._take(_reshaped(self.smallest, log_dirs=1)):
            yield "all log directories but one"
        if self._take(_reshaped(self.smallest, dynamic_voters=False)):
            yield "changes of voters"
        if self._take(replace(self.smallest, options=WorldOptions())):
            yield "what is special about the world"
        if self._take(replace(self.smallest, compression="none")):
            yield "compression"
        if self._take(replace(self.smallest, topic_configs={})):
            yield "settings of the topic"

    def _drop_operations(self) -> Iterator[str]:
        for client, operations in self.smallest.work.items():

            def make(fewer: tuple[PlannedOperation, ...], client: str = client) -> Plan:
                return replace(self.smallest, work={**self.smallest.work, client: fewer})

            for left in self._reduce(operations, make):
                yield f"operations of {client}: {len(operations)} -> {left}"

    def _shorten(self) -> Iterator[str]:
        """Halve all times and durations, and remove the padding of values."""
        while self._take(sooner := _sooner(self.smallest)):
            yield f"the time: {sooner.duration_ms} ms"
        for index, fault in enumerate(self.smallest.faults):
            shorter = replace(fault, duration_ms=fault.duration_ms // 2, back_ms=fault.back_ms // 2)
            faults = self.smallest.faults
            if self._take(replace(self.smallest, faults=(*faults[:index], shorter, *faults[index + 1 :]))):
                yield f"the duration of fault {index + 1} ({fault.kind})"
        if self._take(_with_empty_values(self.smallest)):
            yield "the values"


def _without(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)


def describe(plan: Plan) -> str:
    """Describe the size of a plan."""
    shape = plan.shape
    return (
        f"{_plural(len(plan.faults), 'fault')}, {_plural(plan.operations, 'operation')} of "
        f"{_plural(len(plan.work), 'client')}, {_plural(shape.controllers, 'controller')} and "
        f"{_plural(shape.brokers, 'broker')}, {plan.duration_ms} ms"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _size(plan: Plan) -> int:
    """Return a number for the size of a plan; each thing that can be removed increases it."""
    nodes = plan.shape.controllers + plan.shape.brokers
    settings = len(plan.shape.overrides) + len(plan.small_sizes)
    return len(plan.faults) + plan.operations + len(plan.work) + nodes + settings


def _reshaped(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with another shape of the cluster. Remove what the shape does not allow: faults of missing nodes,
    faults that the cluster need not tolerate, and changes of configured voters."""
    shape = replace(plan.shape, **changes)
    stay = {0, *shape.node_ids}
    faults = (fault for fault in plan.faults if {fault.node, fault.other} <= stay and allows(shape, fault.kind))
    work = {name: work for name, work in plan.work.items() if name != VOTER_CHANGER or shape.dynamic_voters}
    return replace(plan, shape=shape, faults=tuple(faults), work=work)


def _until(plan: Plan, end_ms: int) -> Plan:
    """Return the plan without the faults and operations after this time."""
    work = {
        client: tuple(operation for operation in operations if operation.at_ms <= end_ms)
        for client, operations in plan.work.items()
    }
    return replace(plan, work=work, faults=tuple(fault for fault in plan.faults if fault.at_ms <= end_ms))


def _sooner(plan: Plan) -> Plan:
    """Return the plan with all times halved."""
    work = {
        client: tuple(replace(operation, at_ms=operation.at_ms // 2) for operation in operations)
        for client, operations in plan.work.items()
    }
    faults = tuple(replace(fault, at_ms=fault.at_ms // 2) for fault in plan.faults)
    return replace(plan, work=work, faults=faults, duration_ms=plan.duration_ms // 2)


def _with_empty_values(plan: Plan) -> Plan:
    """Return the plan with no padding in values. The amounts of operations other than sends are not padding, and
    stay."""
    work = {
        client: tuple(replace(each, amount=0) if each.verb in SENDER_VERBS else each for each in operations)
        for client, operations in plan.work.items()
    }
    return replace(plan, work=work)
