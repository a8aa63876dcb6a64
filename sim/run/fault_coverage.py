"""Which faults coincided with which states of the cluster: classes of faults × {election, ISR change, truncation,
snapshot install, rebalance, reassignment}.

A fault without any effect (corrupt bytes that are not read before they are repaired) coincides with nothing. Any other
fault coincides with a state that is active when the fault begins, or that starts during the fault or within some
seconds after it. The fault must also affect a node that takes part in the state; a fault of a link must affect two such
nodes.

A cell of the table counts faults, each at most once. A cell of zero was never met: the campaign proves nothing for it.
The row of a class adds up the rows of its kinds. A large campaign must meet every cell of a class, while a single kind
may be too rare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kraft.broker.partition.partition_states import TRANSITIONS, LogState, Transition
from kraft.sim.cluster.chronicle import STATES, Chronicle, ObservedFault, ObservedState
from kraft.sim.nemesis.plan import FAULT_CLASSES, FAULT_KINDS, LINK_KINDS

AFTERMATH_MS = 3_000
NEVER = "-never-"
INDENT = "  "
TRANSITION = "transition: "
"""Prefix of the names under which a run counts transitions of replica states."""

Cell = tuple[str, str]
"""Cell of the coverage table: (kind of fault, state)."""


def covered_by(chronicle: Chronicle) -> Counter[Cell]:
    """Return how many faults of each kind coincided with each state in one run."""
    spans: dict[str, list[ObservedState]] = {}
    for span in chronicle.spans:
        spans.setdefault(span.kind, []).append(span)
    met: Counter[Cell] = Counter()
    for window in chronicle.windows:
        if not window.is_met:
            continue
        end_ms = AFTERMATH_MS + (window.at_ms if window.end_ms is None else window.end_ms)
        for state, lasting in spans.items():
            met[window.kind, state] += any(
                span.at_ms <= end_ms
                and (span.end_ms is None or span.end_ms >= window.at_ms)
                and _concerns(window, span)
                for span in lasting
            )
    return met


def _concerns(window: ObservedFault, span: ObservedState) -> bool:
    """Return whether the fault affects nodes that take part in the state."""
    hit = set(window.nodes)
    return hit <= span.nodes if window.kind in LINK_KINDS else bool(hit & span.nodes)


def never_met(coverage: Mapping[Cell, int]) -> tuple[list[Cell], int]:
    """Return the cells of the table that are zero, and the number of all cells."""
    cells = [(kind, state) for kind in FAULT_KINDS for state in STATES]
    return [cell for cell in cells if not coverage.get(cell)], len(cells)


def classes_never_met(coverage: Mapping[Cell, int]) -> list[Cell]:
    """Return each (class of faults, state) such that no fault of the class coincided with the state."""
    classes = by_class(coverage)
    return [(name, state) for name in FAULT_CLASSES for state in STATES if not classes[name, state]]


def by_class(coverage: Mapping[Cell, int]) -> Counter[Cell]:
    """Return (class of faults, state) → number of faults of the class that coincided with the state."""
    return Counter(
        {
            (name, state): sum(coverage.get((kind, state), 0) for kind in kinds)
            for name, kinds in FAULT_CLASSES.items()
            for state in STATES
        }
    )


def coverage_table(coverage: Mapping[Cell, int]) -> Iterator[str]:
    """Return the lines of the table, for a terminal: each class of faults, followed by its kinds."""
    classes = by_class(coverage)
    width = len(INDENT) + max(map(len, FAULT_KINDS))
    yield " " * width + "".join(f"  {state:>16}" for state in STATES)
    for name, kinds in FAULT_CLASSES.items():
        yield f"{name:<{width}}{_cells(classes, name)}"
        yield from (f"{INDENT + kind:<{width}}{_cells(coverage, kind)}" for kind in kinds)


def _cells(coverage: Mapping[Cell, int], row: str) -> str:
    return "".join(f"  {coverage.get((row, state)) or NEVER:>16}" for state in STATES)


# transitions of replicas


def transitions_taken(lives: Iterable[Mapping[Transition, int]]) -> dict[str, int]:
    """Return how often each transition of a replica's states happened in one run, including zeros."""
    total: Counter[Transition] = Counter()
    for life in lives:
        total.update(life)
    return {f"{TRANSITION}{_name(transition)}": total[transition] for transition in TRANSITIONS}


def transitions_never_taken(counters: Mapping[str, int]) -> list[str]:
    """Return the names of the transitions that happened in no run."""
    names = map(_name, TRANSITIONS)
    return [name for name in names if not counters.get(f"{TRANSITION}{name}")]


def _name(transition: Transition) -> str:
    state, event = transition
    return f"{'log' if isinstance(state, LogState) else 'appends'} {state.value} + {event.value}"
