"""Write docs/invariants.md: every invariant with its code, its statement, and the file that checks it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from kraft.sim.check.base import Check
from kraft.sim.check.group_members import ProcessedRecords, member_checks
from kraft.sim.check.groups import group_checks
from kraft.sim.check.histories.client_histories import ANOMALIES
from kraft.sim.check.histories.metadata_histories import HistoryChecks
from kraft.sim.check.invariants import JUDGED_ELSEWHERE, RUN_JUDGES
from kraft.sim.check.suite import Suite
from kraft.sim.cores.runs import KNOWN_CHECKS

_HEAD = """# Invariants

What must hold in every run of the [simulator](simulator.md), by its code, and which file judges it of whole nodes
(`kraft sim`). Those with a name in the last column are also judged of cores alone (`kraft sim cores`). A run counts for
each check how often it had input that could have broken it.

This page is generated: `make docs`.
"""

PARTS = {
    "R": "The metadata quorum",
    "M": "Controllers and metadata",
    "D": "Partitions",
    "T": "Producers and transactions",
    "K": "Fast failure detection, eligible leader replicas",
    "G": "Groups",
    "S": "Share groups",
    "C": "Clients",
    "L": "Progress",
    "N": "Nodes and the simulator itself",
}
_CODE = re.compile(r"([A-Z])(\d+)(\w*)")


def codes() -> set[str]:
    """Return the codes of all invariants, including those that are checked outside of the simulator."""
    return {check.id for check in checks_of_runs()} | set(RUN_JUDGES) | set(JUDGED_ELSEWHERE)


def checks_of_runs() -> list[Check]:
    """Return every check that the simulator makes in runs of whole nodes."""
    sets = (Suite(frozenset({1})).checks, group_checks(), member_checks(ProcessedRecords(), 1), HistoryChecks())
    return list(chain.from_iterable(each.checks for each in sets))


def render_invariants() -> str:
    """Render the whole page."""
    parts = [_HEAD]
    every = sorted(codes(), key=_order)
    for letter, title in PARTS.items():
        parts.append(f"## {title}\n\n| | what must hold | judged by | cores alone |\n|---|---|---|---|")
        parts += [row for code in every if code[0] == letter for row in _rows(code)]
        parts.append("")
    return "\n".join(parts)


def _order(code: str) -> tuple[str, int, str]:
    found = _CODE.fullmatch(code)
    assert found is not None, code
    return found[1], int(found[2]), found[3]


def _rows(code: str) -> Iterator[str]:
    cores = ", ".join(what for what, known in KNOWN_CHECKS.items() if code in known)
    for statement, judge in _judges(code):
        yield f"| {code} | {statement} | {judge} | {cores} |"


def _judges(code: str) -> Iterator[tuple[str, str]]:
    """Yield the statement of each invariant, and where the invariant is checked."""
    for check in checks_of_runs():
        if check.id == code:
            yield _sentence(check.statement), _link("/".join(type(check).__module__.split(".")[1:]) + ".py")
    if code in RUN_JUDGES:
        yield RUN_JUDGES[code].statement, _link(RUN_JUDGES[code].file)
    if code in JUDGED_ELSEWHERE:
        yield JUDGED_ELSEWHERE[code].statement, JUDGED_ELSEWHERE[code].who
    for name, (broken, words) in ANOMALIES.items():
        if broken == code and code not in RUN_JUDGES:
            yield f"There is no {name}: {words}.", _link("sim/check/histories/client_histories.py")


def _sentence(statement: str) -> str:
    is_setting = "=" in statement.split(" ")[0]
    return (statement if is_setting else statement[0].upper() + statement[1:]).rstrip(".") + "."


def _link(file: str) -> str:
    return f"[{file.rpartition('/')[2]}](../{file})"
