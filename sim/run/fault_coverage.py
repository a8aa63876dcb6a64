"""Which faults met which states: fault class × {election, ISR change, truncation, snapshot install, rebalance,
reassignment}.

A fault that nobody came across (bytes that rot, and are not read before they are mended) meets nothing. Any other fault
meets a state that goes on when it strikes, or that begins while it lasts or within some seconds after it, if it hits a
node that takes part in the state; a fault of a link, if both its ends do. A cell of the table counts faults, each at
most once; a cell of zero was never met, and says that the campaign proves
nothing for it. The row of a class adds up those of its kinds: every cell of those must be met by a campaign that is
large enough, while a kind of its own may be too rare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kraft.broker.partition.partition_states import TRANSITIONS, LogState, Transition
from kraft.sim.cluster.chronicle import STATES, Chronicle, FaultWindow, StateSpan
from kraft.sim.nemesis.plan import FAULT_CLASSES, FAULT_KINDS, LINK_KINDS

AFTERMATH_MS = 3_000
NEVER = "-never-"
INDENT = "  "
TRANSITION = "transition: "
"""How the counts of transitions begin among a run's counters."""

Cell = tuple[str, str]
"""(kind of fault, state)."""


def covered_by(chronicle: Chronicle) -> Counter[Cell]:
    """How many faults of each kind met each state in one run."""
    spans: dict[str, list[StateSpan]] = {}
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


def _concerns(window: FaultWindow, span: StateSpan) -> bool:
    """Whether the fault is one of those who take part in the state."""
    hit = set(window.nodes)
    return hit <= span.nodes if window.kind in LINK_KINDS else bool(hit & span.nodes)


def never_met(coverage: Mapping[Cell, int]) -> tuple[list[Cell], int]:
    """The empty cells of the table, and how many cells it has."""
    cells = [(kind, state) for kind in FAULT_KINDS for state in STATES]
    return [cell for cell in cells if not coverage.get(cell)], len(cells)


def classes_never_met(coverage: Mapping[Cell, int]) -> list[Cell]:
    """(class of faults, state) that no fault of that class ever met."""
    classes = by_class(coverage)
    return [(name, state) for name in FAULT_CLASSES for state in STATES if not classes[name, state]]


def by_class(coverage: Mapping[Cell, int]) -> Counter[Cell]:
    """(class of faults, state) → how many faults of that class met that state."""
    return Counter(
        {
            (name, state): sum(coverage.get((kind, state), 0) for kind in kinds)
            for name, kinds in FAULT_CLASSES.items()
            for state in STATES
        }
    )


def coverage_table(coverage: Mapping[Cell, int]) -> Iterator[str]:
    """The table, line by line, for a terminal: each class, and under it its kinds."""
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
    """How often each transition of a replica's states was taken in one run, also those that never were."""
    total: Counter[Transition] = Counter()
    for life in lives:
        total.update(life)
    return {f"{TRANSITION}{_name(transition)}": total[transition] for transition in TRANSITIONS}


def transitions_never_taken(counters: Mapping[str, int]) -> list[str]:
    """The names of the transitions that no run took."""
    names = map(_name, TRANSITIONS)
    return [name for name in names if not counters.get(f"{TRANSITION}{name}")]


def _name(transition: Transition) -> str:
    state, event = transition
    return f"{'log' if isinstance(state, LogState) else 'appends'} {state.value} + {event.value}"
