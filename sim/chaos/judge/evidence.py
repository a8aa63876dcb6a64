"""Whether each fault took effect: a run of which that is not known proves nothing.

`SIGNS` are the names that a scenario may give as evidence, besides `fact:NAME` (see `signs.fact`). `NEEDED` says what a
kind of fault is known by if the scenario does not say it. The rule is strict: that a node was killed is not enough, the
cluster must have noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kraft.sim.chaos.judge import FaultEffect, signs
from kraft.sim.chaos.judge.signs import Case, Observed, case_of
from kraft.sim.chaos.run.run_folder import FaultRecord
from kraft.sim.nemesis import plan

FACT = "fact:"
SIGNS: Mapping[str, Callable[[Case], str | None]] = MappingProxyType(
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
"""Name → the words for what was seen, or None."""

Needs = tuple[tuple[tuple[str, ...], ...], ...]
"""Any of these; of each all; of each of those any."""

NOTICED = ("isr", "leader", "controller", "fenced")
"""The cluster noticed."""
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
"""Kind of a fault → what it is known by."""


def is_evidence(name: str) -> bool:
    """Whether a scenario may name this as evidence."""
    return name in SIGNS or (name.startswith(FACT) and len(name) > len(FACT))


def find_effects(observed: Observed, faults: Sequence[FaultRecord]) -> list[FaultEffect]:
    """For each fault whether it is seen. ValueError if one names evidence that does not exist."""
    return [_effect(observed, faults, number) for number in range(len(faults))]


def _effect(observed: Observed, faults: Sequence[FaultRecord], number: int) -> FaultEffect:
    fault = faults[number]
    if fault.missed:
        return FaultEffect(fault=number, is_seen=False, evidence=f"it did not happen: {fault.missed}")
    needs: Needs = ((fault.evidence,),) if fault.evidence else NEEDED.get(fault.kind, ())
    if not needs:
        text = f"nothing says by what a fault of the kind {fault.kind!r} is seen"
        return FaultEffect(fault=number, is_seen=False, evidence=text)
    case = case_of(observed, faults, number)
    looked: dict[str, str | None] = {}

    def look(name: str) -> str | None:
        if name not in looked:
            looked[name] = _look(case, name)
        return looked[name]

    for groups in needs:
        found = [next((seen for name in group if (seen := look(name)) is not None), None) for group in groups]
        if None not in found:
            return FaultEffect(fault=number, is_seen=True, evidence="; ".join(filter(None, found)))
    return FaultEffect(fault=number, is_seen=False, evidence=_in_vain(case, needs, looked))


def _look(case: Case, name: str) -> str | None:
    if name.startswith(FACT):
        return signs.fact(case, name.removeprefix(FACT))
    if name not in SIGNS:
        raise ValueError(f"there is no evidence {name!r}: there are {', '.join(SIGNS)}, and {FACT}NAME")
    return SIGNS[name](case)


def _in_vain(case: Case, needs: Needs, looked: Mapping[str, str | None]) -> str:
    """What was looked for, and what was not enough."""
    wanted = " or ".join(" and ".join(_any_of(group) for group in groups) for groups in needs)
    seen = [words for words in looked.values() if words is not None]
    only = f"; seen is only that {'; '.join(seen)}" if seen else ""
    return f"looked for {wanted} from {case.begin_ms / 1000:.2f} to {case.until_of_nodes_ms / 1000:.2f} s{only}"


def _any_of(group: tuple[str, ...]) -> str:
    return group[0] if len(group) == 1 else f"({' | '.join(group)})"
