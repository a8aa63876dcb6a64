"""Evidence that each fault took effect. If a fault has none, the run proves nothing.

`SIGNS` are the names that a scenario may give as evidence, besides `fact:NAME` (see `signs.fact`). `NEEDED` lists the
evidence for a kind of fault if the scenario names none. The rule is strict: it is not enough that a node was killed,
the cluster must have noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kraft.sim.chaos.judge import FaultEffect, signs
from kraft.sim.chaos.judge.signs import FaultCase, ObservedRun, case_of
from kraft.sim.chaos.run.run_folder import FaultRecord
from kraft.sim.nemesis import plan

FACT = "fact:"
SIGNS: Mapping[str, Callable[[FaultCase], str | None]] = MappingProxyType(
    {
        "isr": signs.isr,
        "leader": signs.leader,
        "controller": signs.controller,
        "elections": signs.elections,
        "voters": signs.voters,
        "fenced": signs.fenced,
        "process": signs.process,
        "follower controller": signs.follower_controller,
        "between samples": signs.between_samples,
        "refusals": signs.refusals,
        "slower": signs.slower,
        "gap": signs.gap,
        "rebalances": signs.rebalances,
        "topics": signs.topics,
        "silent": signs.silent,
    }
)
"""Name of a sign → the function that searches for it and returns a description of it, or None."""

Needs = tuple[tuple[tuple[str, ...], ...], ...]
"""Evidence that a kind of fault needs: a list of alternatives. Each alternative is a list of groups of signs. It is met
if at least one sign of each group is found."""

NOTICED = ("isr", "leader", "controller", "fenced")
"""Signs that show that the cluster noticed the fault."""
_STOPPED: Needs = ((("process",), NOTICED), (("process",), ("follower controller",)), (("between samples",), NOTICED))
_PAUSED: Needs = ((("process",), (*NOTICED, "gap", "slower")), (("process",), ("follower controller",)))
_PROBES = ("fact:unanswered probes", "fact:held probes")
_PARTED: Needs = (((*NOTICED, "gap", "refusals", "silent", "fact:packets into a cut", *_PROBES),),)
_SLOWED = ("slower", "gap", "isr", "refusals", "fact:added round trip ms by 15")
_DEGRADED: Needs = ((_SLOWED,),)
_CUT_DOWN: Needs = ((("fact:connections ended", "fact:unanswered probes", "gap", "refusals", *NOTICED),),)
_DISK: Needs = (((*NOTICED, "process", "refusals"),),)
NEEDED: Mapping[str, Needs] = MappingProxyType(
    {
        **dict.fromkeys((*plan.CRASH_KINDS, "stumble", "flap", plan.ROLLING, plan.BLACKOUT), _STOPPED),
        plan.EMPTY_DISK: ((("process",), (*NOTICED, "voters")), (("process",), ("follower controller",))),
        "pause": _PAUSED,
        **dict.fromkeys((plan.CUT, plan.CUT_ONE_WAY, plan.ISOLATE, "stall"), _PARTED),
        **dict.fromkeys((plan.HALVES, plan.BRIDGE, plan.RING, plan.CONTROLLERS_CUT), _PARTED),
        plan.CLIENTS_CUT: ((("gap", "refusals", "silent", "fact:packets into a cut", *_PROBES),),),
        **dict.fromkeys((plan.LATENCY, plan.SLOW_LINK, plan.SLICER), _DEGRADED),
        plan.BYTE_LIMIT: (((*_SLOWED, "fact:connections ended"),),),
        plan.SLOW_CLOSE: ((("fact:added close ms by 100",),),),
        **dict.fromkeys((plan.TIMEOUT, plan.RESET_PEER), _CUT_DOWN),
        "reset": ((("fact:connections ended", "gap", *NOTICED),),),
        "clock": ((("fact:clock offset ms by 100",),),),
        "slow disk": ((("slower", "gap", "isr", "fact:slow syncs"),),),
        "full disk": (((f"{FACT}free bytes under 10%", *NOTICED, "process", "refusals"),),),
        **dict.fromkeys(("failing sync", plan.DIRECTORY, *plan.WEAR_KINDS), _DISK),
    }
)
"""Kind of fault → the evidence that it needs."""


def is_evidence(name: str) -> bool:
    """Return whether a scenario may name this as evidence."""
    return name in SIGNS or (name.startswith(FACT) and len(name) > len(FACT))


def find_effects(observed: ObservedRun, faults: Sequence[FaultRecord]) -> list[FaultEffect]:
    """Determine for each fault whether there is evidence that it took effect. Raises ValueError if a fault names
    evidence that does not exist."""
    return [_effect(observed, faults, number) for number in range(len(faults))]


def _effect(observed: ObservedRun, faults: Sequence[FaultRecord], number: int) -> FaultEffect:
    fault = faults[number]
    if fault.missed:
        return FaultEffect(fault=number, is_seen=False, evidence=f"it did not happen: {fault.missed}")
    needs: Needs = ((fault.evidence,),) if fault.evidence else NEEDED.get(fault.kind, ())
    if not needs:
        text = f"no evidence is defined for a fault of the kind {fault.kind!r}"
        return FaultEffect(fault=number, is_seen=False, evidence=text)
    case = case_of(observed, faults, number)
    found_signs: dict[str, str | None] = {}

    def find(name: str) -> str | None:
        if name not in found_signs:
            found_signs[name] = _find_sign(case, name)
        return found_signs[name]

    for groups in needs:
        found = [next((seen for name in group if (seen := find(name)) is not None), None) for group in groups]
        if None not in found:
            return FaultEffect(fault=number, is_seen=True, evidence="; ".join(filter(None, found)))
    return FaultEffect(fault=number, is_seen=False, evidence=_missing_evidence(case, needs, found_signs))


def _find_sign(case: FaultCase, name: str) -> str | None:
    if name.startswith(FACT):
        return signs.fact(case, name.removeprefix(FACT))
    if name not in SIGNS:
        raise ValueError(f"there is no evidence {name!r}: there are {', '.join(SIGNS)}, and {FACT}NAME")
    return SIGNS[name](case)


def _missing_evidence(case: FaultCase, needs: Needs, found_signs: Mapping[str, str | None]) -> str:
    """Describe the signs that were not found, and the found signs that are not sufficient."""
    wanted = " or ".join(" and ".join(_any_of(group) for group in groups) for groups in needs)
    seen = [words for words in found_signs.values() if words is not None]
    only = f"; only this was seen: {'; '.join(seen)}" if seen else ""
    return f"searched for {wanted} from {case.begin_ms / 1000:.2f} to {case.until_of_nodes_ms / 1000:.2f} s{only}"


def _any_of(group: tuple[str, ...]) -> str:
    return group[0] if len(group) == 1 else f"({' | '.join(group)})"
