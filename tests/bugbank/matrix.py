"""The kill matrix: bugs of the bank planted into whole nodes, with the default swarm of the simulator, and the checks
that catch each bug. A directed schedule may have its own assertions; here only the checks of `kraft sim` count.

Seeds are tried one after the other, each first without the bug, until a check has identified the bug. Some failures
identify nothing: a node stopped by its own invariant (N1), missing progress (L1 to L13), or a run that took too long.
They are recorded, and the search continues. Results are stored in `build/bugbank-matrix.json` under a digest of all the
code, so that an interrupted matrix can continue. `python -m tests.bugbank --matrix` writes the matrix into
docs/bugbank.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bugbank.campaign import FalseAlarm, code_digest, say_now
from tests.bugbank.cluster_schedules import clusters
from tests.bugbank.judging import BROKEN, STOPPED, STUCK, TIMED_OUT, Outcome, judge
from tests.bugbank.mutation import Mutation, Schedule
from tests.bugbank.originals import OriginalChanged

STATE = Path(__file__).parents[2] / "build" / "bugbank-matrix.json"
SEEDS = 20
FIRST_SEED = 1
LOST = "L10"
"""Code of the check that an acknowledged record is not lost. It has the letter of the progress checks (L), but it
checks safety."""
HEADING = "## In whole nodes, under the default swarm"
Judge = Callable[[Schedule, int], Outcome]


@dataclass(slots=True)
class Row:
    """Result of one bug. `seeds` is the number of seeds that were run. `sharp` has the checks that identified the bug,
    in order. `weak` counts the other failures in the runs before. `alarm` is the reason if there is no verdict."""

    id: str
    seeds: int = 0
    sharp: tuple[str, ...] = ()
    weak: dict[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    alarm: str = ""

    @property
    def kind(self) -> str:
        if self.alarm:
            return "no verdict"
        return "caught" if self.sharp else "weak" if self.weak else "nothing"


def is_of_whole_nodes(mutation: Mutation) -> bool:
    """Whether a mutation's twins replace code that whole nodes run: production code, and not the harness or a model."""
    names = [key.partition(" ")[2] for key in mutation.digests()]
    return all(name.startswith(("kraft.", "[")) and not name.startswith("kraft.sim.") for name in names)


def is_sharp(check: str) -> bool:
    """Whether this failure shows what is wrong, and not only that something is wrong."""
    return check == LOST or (check not in (STOPPED, TIMED_OUT, BROKEN) and not check.startswith(STUCK))


class Matrix:
    """Searches for the checks that identify each bug, and stores the results. Tests replace `run_one`."""

    def __init__(
        self, *, state: Path = STATE, say: Callable[[str], None] = say_now, run_one: Judge = judge, fresh: bool = False
    ) -> None:
        self._state = state
        self._say = say
        self._run_one = run_one
        self._code = code_digest()
        known = json.loads(state.read_text()) if state.exists() and not fresh else {}
        if known.get("code") != self._code:
            known = {"clean": {}, "rows": []}
        self._clean: dict[str, list[str]] = known["clean"]
        self._rows = {
            raw["id"]: Row(**{**raw, "sharp": tuple(raw["sharp"]), "weak": raw["weak"]}) for raw in known["rows"]
        }

    def run(self, mutations: Iterable[Mutation], seeds: int) -> list[Row]:
        """Yield a row for each mutation. The search for one ends after this number of seeds."""
        return [self._row(mutation, seeds) for mutation in mutations]

    def _row(self, mutation: Mutation, seeds: int) -> Row:
        row = self._rows.setdefault(mutation.id, Row(mutation.id))
        while row.seeds < seeds and row.kind in ("weak", "nothing"):
            self._try(mutation, row, FIRST_SEED + row.seeds)
            self._save()
        self._say(f"{row.id:5} {row.kind:10} {', '.join(row.sharp) or told(row.weak)} ({row.seeds} seeds) {row.alarm}")
        return row

    def _try(self, mutation: Mutation, row: Row, seed: int) -> None:
        try:
            self._require_clean(seed)
            with mutation.planted():
                outcome = self._run_one(clusters, seed)
        except (FalseAlarm, OriginalChanged) as problem:
            row.alarm = str(problem)
            return
        row.seeds += 1
        row.cpu_seconds = round(row.cpu_seconds + outcome.cpu_seconds, 1)
        if any(is_sharp(check) for check in outcome.checks):
            row.sharp = outcome.checks
        else:
            row.weak = dict(Counter(row.weak) + Counter(outcome.checks))

    def _require_clean(self, seed: int) -> None:
        if str(seed) not in self._clean:
            self._clean[str(seed)] = list(self._run_one(clusters, seed).checks)
        if self._clean[str(seed)]:
            raise FalseAlarm(f"seed {seed} fails without the bug: {self._clean[str(seed)]}")

    def _save(self) -> None:
        self._state.parent.mkdir(exist_ok=True)
        rows = [asdict(row) for row in self._rows.values()]
        self._state.write_text(json.dumps({"code": self._code, "clean": self._clean, "rows": rows}))


def told(weak: dict[str, int]) -> str:
    """Return a text with the counts of recorded failures."""
    return ", ".join(f"{check} ({count})" for check, count in sorted(weak.items()))


# the page


def render(mutations: Sequence[Mutation], rows: Sequence[Row], seeds: int) -> str:
    """Return the part of the page that has the matrix."""
    by_id = {row.id: row for row in rows}
    known = [mutation for mutation in mutations if mutation.id in by_id]
    kinds = Counter(by_id[mutation.id].kind for mutation in known)
    lines = [
        f"{HEADING}\n",
        "Which checks of the simulator catch a bug by seeds of whole clusters (`kraft sim`, ten seconds of faults),",
        "and nothing else: no assertion of a schedule. Written by `python -m tests.bugbank --matrix`, which goes on",
        f"where it was interrupted; `--seeds 5` tries five seeds and not {SEEDS}, `--only B01,B06` some bugs. N1",
        "(a node stopped by itself) and L (something did not happen) do not say what is wrong, so with those alone a",
        "bug is caught but weakly.\n",
        f"Of {len(known)} bugs {kinds['caught']} are caught within {seeds} seeds, {kinds['weak']} weakly, "
        f"{kinds['nothing']} by nothing.\n",
        "| | mutation | checks that fired, the first one first | seeds | CPU s |",
        "|---|---|---|---|---|",
    ]
    for mutation in known:
        row = by_id[mutation.id]
        found = ", ".join(row.sharp) or (f"weak: {told(row.weak)}" if row.weak else "**nothing**")
        cells = (row.id, mutation.title, row.alarm or found, str(row.seeds), f"{row.cpu_seconds:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def with_matrix(page: str, part: str) -> str:
    """Return `page` with this matrix at its end, in place of an earlier one."""
    return f"{page.partition(HEADING)[0].rstrip()}\n\n{part}" if part else page


def matrix_of(page: str) -> str:
    """Return the matrix that this page has; "" if it has none."""
    _, heading, rest = page.partition(HEADING)
    return heading + rest
