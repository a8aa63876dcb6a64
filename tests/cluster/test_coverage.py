"""The coverage table counts what met what, and shows what never did."""

from __future__ import annotations

from kraft.sim.check.shadow import Shadows
from kraft.sim.cluster.chronicle import ELECTION, ISR_CHANGE, STATES, Chronicle
from kraft.sim.cluster.coverage import AFTERMATH_MS, coverage_table, covered_by, never_met
from kraft.sim.cluster.plan import FAULT_KINDS


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_fault_meets_what_begins_while_it_lasts_or_soon_after() -> None:
    clock = Clock()
    chronicle = Chronicle(Shadows(), clock)
    chronicle.note(ELECTION, "before everything")
    clock.now_ms = 1_000
    window = chronicle.begin_fault("cut", (1, 2), "a cut")
    clock.now_ms = 1_500
    chronicle.note(ISR_CHANGE, "while it lasts")
    chronicle.note(ISR_CHANGE, "while it lasts, again")
    clock.now_ms = 2_000
    chronicle.end_fault(window)
    assert covered_by(chronicle) == {("cut", ISR_CHANGE): 1, ("cut", ELECTION): 0}
    clock.now_ms = 2_000 + AFTERMATH_MS
    chronicle.note(ELECTION, "soon after")
    assert covered_by(chronicle)["cut", ELECTION] == 1
    late = Chronicle(Shadows(), clock)
    late.windows.append(window)
    clock.now_ms += 1
    late.note(ELECTION, "too late")
    assert not covered_by(late)["cut", ELECTION]


def test_the_table_has_every_kind_and_marks_what_was_never_met() -> None:
    full = {(kind, state): 3 for kind in FAULT_KINDS for state in STATES}
    assert never_met(full) == ([], len(full))
    full["pause", ELECTION] = 0
    assert never_met(full)[0] == [("pause", ELECTION)]
    lines = list(coverage_table(full))
    assert len(lines) == 1 + len(FAULT_KINDS)
    assert ["never" in line for line in lines].count(True) == 1
    assert next(line for line in lines if "never" in line).startswith("pause ")
