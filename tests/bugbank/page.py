"""docs/bugbank.md: results of the last campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bugbank.bank import NOT_OPEN
from tests.bugbank.campaign import Kill, Verdict, name_of
from tests.bugbank.mutation import Mutation
from tests.sim.cluster.test_rules_of_failure_detection import CLAUSES

PAGE = Path(__file__).parents[2] / "docs" / "bugbank.md"

HEAD = """# Bug bank

Known errors in consensus, replication, groups and clients, each planted alone into this code, and the checks that
caught it. A mutation replaces functions by others that are in `tests/bugbank`; the code itself has no trace of it. Each
mutation has a *directed* schedule that exposes it. Most also have a *swarm*: random runs by seed, of which the first
that fails counts. The same runs pass without the bug.

`make bugbank` runs the campaign and writes this page. An interrupted campaign continues if no code has changed.
`make bugbank RANGES=5` takes five ranges of seeds for each mutation, and `make bugbank ONLY=B01,B06` runs only these
mutations. The campaign fails if a mutation is missed, if a check fails on the code without a bug, or if none of the
checks that the bank names for a mutation fails in its directed schedule.

`python -m tests.bugbank --matrix` plants the mutations into whole nodes, and runs the default swarm of `kraft sim` with
only its checks. A swarm of the bank is often a smaller setup with its own assertions, so `kraft sim` may miss a bug
that the swarm of the bank catches. The matrix takes half an hour and adds a section to this page.

`tests/bugbank/digests.json` holds a digest of the source that each twin replaces, also for the twins of tests. A twin
is not planted if that source has changed. In this case check whether the twin is still the same bug, and then run
`python -m tests.bugbank --digests`, which records the present source if the bug is still caught.

Each rule of fast failure detection has planted bugs, which are listed below. `make bugbank` plants them after the bank,
and `make test` does too.

The checks are those of the simulator: R the metadata quorum, M the controller, D partition data, T idempotence and
transactions, G groups, S share groups, C clients, K failure detection, L liveness, N nodes and harness. N1 means that a
node was stopped by its own invariant. L without a number means that something that must happen did not happen.
"""


def render(mutations: Sequence[Mutation], verdicts: Sequence[Verdict]) -> str:
    """Render the whole page."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    parts = [HEAD, _summary(mutations, verdicts)]
    for part in dict.fromkeys(mutation.part for mutation in mutations):
        parts.append(_table(part, [(one, by_id[one.id]) for one in mutations if one.part == part]))
    parts += [_clauses(), _matrix(verdicts), _weak(mutations, by_id), _not_open()]
    return "\n".join(parts)


def _summary(mutations: Sequence[Mutation], verdicts: Sequence[Verdict]) -> str:
    caught = [verdict for verdict in verdicts if verdict.is_caught]
    needed = [kill.seeds for verdict in verdicts for kill in verdict.swarm if kill.seeds]
    searched = [mutation for mutation in mutations if mutation.swarm is not None]
    lines = [
        f"\n{len(caught)} of {len(verdicts)} mutations are caught; "
        f"{sum(verdict.directed.seeds > 0 for verdict in verdicts)} by their directed schedule, "
        f"{sum(any(kill.seeds for kill in verdict.swarm) for verdict in verdicts)} of the {len(searched)} that have a "
        "swarm by seeds"
    ]
    if needed:
        lines.append(f" (seeds needed: median {median(needed):g}, worst {max(needed)})")
    missed = [verdict.id for verdict in verdicts if not verdict.is_caught]
    lines.append(f".\n\n**Missed: {', '.join(missed)}.**\n" if missed else ".\n")
    return "".join(lines)


def _table(part: str, rows: Sequence[tuple[Mutation, Verdict]]) -> str:
    lines = [
        f"\n## {part}\n",
        "| | mutation | named by the bank | directed | caught by | swarm | caught by | seeds | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for mutation, verdict in rows:
        kills = [kill for kill in verdict.swarm if kill.seeds]
        cells = [
            mutation.id,
            mutation.title,
            ", ".join(mutation.expected),
            name_of(mutation.directed).partition(".")[2],
            _checks(verdict.directed),
            "" if mutation.swarm is None else name_of(mutation.swarm).partition(".")[2],
            _checks(kills[0]) if kills else ("" if mutation.swarm is None else "**nothing**"),
            _seeds(verdict, kills),
            f"{sum(kill.cpu_seconds for kill in (verdict.directed, *verdict.swarm)):.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _seeds(verdict: Verdict, kills: Sequence[Kill]) -> str:
    """Return the median number of seeds over the ranges. If the bug was not caught in some ranges, also return in how
    many it was caught."""
    if not kills:
        return ""
    found = f"{median(kill.seeds for kill in kills):g}"
    return found if len(kills) == len(verdict.swarm) else f"{found} ({len(kills)} of {len(verdict.swarm)} ranges)"


def _checks(kill: Kill) -> str:
    return ", ".join(kill.checks) if kill.seeds else "**nothing**"


def _clauses() -> str:
    """Render the table of fast failure detection, with one row per rule."""
    lines = [
        "\n## Fast failure detection\n",
        f"{len(CLAUSES)} rules, each with a bug that breaks it and that a test catches ([what they are",
        "for](deviations.md)).\n",
        "| rule | the bugs, and where they are planted |",
        "|---|---|",
    ]
    for clause, bugs in CLAUSES.items():
        planted = "; ".join(f"`{name}` in [{file}](../tests/{file})" for file, name in bugs)
        lines.append(f"| {clause} | {planted} |")
    return "\n".join(lines) + "\n"


def _matrix(verdicts: Sequence[Verdict]) -> str:
    """Render the table of the checks that fail first, each with the number of mutations."""
    first = Counter(kill.checks[0] for verdict in verdicts for kill in (verdict.directed, *verdict.swarm) if kill.seeds)
    cells = ", ".join(f"{check} {count}" for check, count in sorted(first.items()))
    return f"\n## Which check fired first\n\nOver all directed and swarm runs: {cells}.\n"


def _weak(mutations: Sequence[Mutation], by_id: dict[str, Verdict]) -> str:
    lines = ["\n## Without a kill by seeds\n", "Their directed schedules catch them; random search does not, or has no"]
    lines[-1] += " way to:\n"
    for mutation in mutations:
        verdict = by_id[mutation.id]
        if any(kill.seeds for kill in verdict.swarm):
            continue
        why = mutation.no_swarm or "no seed of the range reaches it"
        lines.append(f"- {mutation.id}: {why}.")
    return "\n".join(lines) + "\n"


def _not_open() -> str:
    lines = ["\n## Not open\n"] + [f"- {number}: {why}." for number, why in NOT_OPEN.items()]
    return "\n".join(lines) + "\n"
