"""The campaign: for each mutation, run its directed schedule, and then its random schedule with one seed after the
other until a run catches the bug. Before each run with the bug, the same run without the bug must succeed.

Results are stored in `build/bugbank.json` under a digest of all the code. So an interrupted campaign continues, and a
campaign after a change of the code starts over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bugbank.judging import Outcome, judge
from tests.bugbank.mutation import Mutation, Schedule
from tests.bugbank.originals import OriginalChanged

ROOT = Path(__file__).parents[2]
STATE = ROOT / "build" / "bugbank.json"
CODE = ("kraft", "broker", "client", "sim", "tests")
SEEDS_CORE, SEEDS_CLUSTER = 40, 8
"""Numbers of seeds in a range, for schedules of raft cores and for schedules of clusters. A run of cores takes a
fraction of a second, a run of clusters takes seconds."""
RANGE_STEP = 10_000
DIRECTED_SEED = 1


class FalseAlarm(Exception):
    """A schedule fails although no bug is planted."""


@dataclass(slots=True)
class Kill:
    """The first run in one seed range that caught the bug. `seeds` is the number of seeds that were needed; 0 if no run
    of the range caught it."""

    seeds: int
    checks: tuple[str, ...] = ()
    cpu_seconds: float = 0.0


@dataclass(slots=True)
class Verdict:
    """Result of one mutation. `alarm` is the reason why a failure does not count as catching the bug. Either the code
    fails without the bug, or the twin does not fit the code, or checks failed in the directed schedule that do not
    guard against this bug."""

    id: str
    directed: Kill
    swarm: list[Kill] = field(default_factory=list)
    alarm: str = ""

    @property
    def is_caught(self) -> bool:
        return not self.alarm and (self.directed.seeds > 0 or any(kill.seeds for kill in self.swarm))

    @property
    def first_checks(self) -> tuple[str, ...]:
        found = (self.directed, *self.swarm)
        return next((kill.checks for kill in found if kill.checks), ())


def say_now(line: str) -> None:
    print(line, flush=True)


class Campaign:
    """Runs the schedules of mutations, decides whether each bug is caught, and stores the verdicts."""

    def __init__(self, *, ranges: int = 1, fresh: bool = False, say: Callable[[str], None] = say_now) -> None:
        self._ranges = ranges
        self._say = say
        self._code = code_digest()
        known: dict[str, Any] = {} if fresh or not STATE.exists() else json.loads(STATE.read_text())
        same = known.get("code") == self._code
        self._clean: dict[str, list[str]] = known["clean"] if same else {}
        self._verdicts: dict[str, Verdict] = {}
        for raw in known["verdicts"] if same else ():
            kills = [Kill(**{**kill, "checks": tuple(kill["checks"])}) for kill in (raw["directed"], *raw["swarm"])]
            self._verdicts[raw["id"]] = Verdict(raw["id"], kills[0], kills[1:], raw["alarm"])

    def run(self, mutations: Iterable[Mutation]) -> list[Verdict]:
        """Yield the verdict of each mutation, in the given order."""
        return [self._verdict(mutation) for mutation in mutations]

    def _verdict(self, mutation: Mutation) -> Verdict:
        wanted = self._ranges if mutation.swarm is not None else 0
        known = self._verdicts.get(mutation.id)
        if known is not None and len(known.swarm) >= wanted:
            return known
        verdict = Verdict(mutation.id, Kill(0))
        try:
            verdict.directed = self._hunt(mutation, mutation.directed, (DIRECTED_SEED,))
            verdict.alarm = unexpected(mutation, verdict.directed.checks)
            for number in range(wanted):
                assert mutation.swarm is not None
                verdict.swarm.append(self._hunt(mutation, mutation.swarm, seed_range(mutation.swarm, number)))
        except (FalseAlarm, OriginalChanged) as problem:
            verdict.alarm = str(problem)
        self._verdicts[mutation.id] = verdict
        self._save()
        self._say(describe(mutation, verdict))
        return verdict

    def _hunt(self, mutation: Mutation, schedule: Schedule, seeds: Iterable[int]) -> Kill:
        """Run the seeds of one range until a run catches the bug."""
        spent = 0.0
        for count, seed in enumerate(seeds, start=1):
            self._require_clean(schedule, seed)
            with mutation.planted():
                outcome = judge(schedule, seed)
            spent += outcome.cpu_seconds
            if outcome.is_caught:
                return Kill(count, outcome.checks, round(spent, 2))
        return Kill(0, (), round(spent, 2))

    def _require_clean(self, schedule: Schedule, seed: int) -> None:
        key = f"{name_of(schedule)} {seed}"
        if key not in self._clean:
            outcome = judge(schedule, seed)
            self._clean[key] = [*outcome.checks, *([outcome.evidence] if outcome.checks else [])]
        if self._clean[key]:
            raise FalseAlarm(f"{name_of(schedule)} with seed {seed} fails without the bug: {self._clean[key]}")

    def _save(self) -> None:
        STATE.parent.mkdir(exist_ok=True)
        verdicts = [asdict(verdict) for verdict in self._verdicts.values()]
        STATE.write_text(json.dumps({"code": self._code, "clean": self._clean, "verdicts": verdicts}))


def unexpected(mutation: Mutation, fired: tuple[str, ...]) -> str:
    """Return a description of an unexpected result: checks failed, and the bank names none of them for this mutation.
    Return "" if the result is as expected."""
    if not fired or set(fired) & set(mutation.expected):
        return ""
    return f"{', '.join(fired)} fired and none of {', '.join(mutation.expected)}: look whether this is the same bug"


def seed_range(schedule: Schedule, number: int) -> range:
    """Return the seeds of range `number`, counted from 0."""
    first = number * RANGE_STEP
    return range(first, first + (SEEDS_CLUSTER if getattr(schedule, "is_slow", False) else SEEDS_CORE))


def slow(schedule: Schedule) -> Schedule:
    """Mark a swarm whose runs take seconds."""
    schedule.is_slow = True  # type: ignore[attr-defined]
    return schedule


def name_of(schedule: Schedule) -> str:
    return f"{schedule.__module__.rpartition('.')[2]}.{schedule.__name__}"


def describe(mutation: Mutation, verdict: Verdict) -> str:
    """Return the verdict as one line for the terminal."""
    if verdict.alarm:
        return f"{mutation.id:5} NO VERDICT {verdict.alarm}"
    word = "caught" if verdict.is_caught else "MISSED"
    parts = [f"directed {_told(verdict.directed)}"]
    if verdict.swarm:
        parts.append("swarm " + ", ".join(_told(kill) for kill in verdict.swarm))
    return f"{mutation.id:5} {word:7} {mutation.title}: " + "; ".join(parts)


def _told(kill: Kill) -> str:
    return f"{'+'.join(kill.checks)} (seed {kill.seeds}, {kill.cpu_seconds} s)" if kill.seeds else "nothing"


def code_digest() -> str:
    """Return a digest of every Python file that a run may execute."""
    found = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parts[-2] not in ("interop", "bench", "docs"):
                found.update(str(path).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def outcome_of(mutation: Mutation) -> tuple[Outcome, Outcome]:
    """Return the outcomes of the directed schedule: without the bug, and with it."""
    clean = judge(mutation.directed, DIRECTED_SEED)
    with mutation.planted():
        return clean, judge(mutation.directed, DIRECTED_SEED)
