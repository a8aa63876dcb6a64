"""The runs of a campaign in a file, so that one that was cut short goes on where it was.

A line per run that passed, with a digest of all code that it ran and of its settings: what other code did says nothing
about this one, and is passed over. A run that failed is not kept, for it is to be looked at and run again. Processes
begin all the time, so code that changes under a campaign ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import kraft
from kraft.sim.run.fault_coverage import Cell
from kraft.sim.run.run import RunResult, RunSettings


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a campaign adds up of a run. `is_faulty`: its plan has faults. `took_s`: CPU seconds."""

    seed: int
    is_faulty: bool
    took_s: float
    virtual_ms: int
    counters: Mapping[str, int]
    coverage: Mapping[Cell, int]
    unseen: tuple[str, ...]

    @classmethod
    def of(cls, result: RunResult, took_s: float) -> RunFigures:
        return cls(
            result.seed,
            bool(result.plan.faults),
            took_s,
            result.virtual_ms,
            result.counters,
            result.coverage,
            result.unseen,
        )


class CodeChanged(Exception):
    """The code, or a package that it uses, is not what it was when the campaign began."""


class KeptRuns:
    """`found`: by seed, the runs in the file that the same code made with the same settings. A line that was cut short
    counts for nothing. OSError for a file that cannot be written."""

    def __init__(self, path: Path, settings: RunSettings) -> None:
        self.path = path
        self.found: dict[int, RunFigures] = {}
        self._settings = settings
        self._code = digest_of(settings)
        path.touch()
        text = path.read_text()
        for line in text.splitlines():
            self._read(line)
        if text and not text.endswith("\n"):
            self._write("\n")

    def _read(self, line: str) -> None:
        try:
            row = json.loads(line)
            if row.pop("code") == self._code:
                run = _parsed(row)
                self.found[run.seed] = run
        except (ValueError, KeyError, TypeError, AttributeError):
            return

    def keep(self, run: RunFigures) -> None:
        """Write down a run that passed. CodeChanged if nobody knows what code it ran."""
        if digest_of(self._settings) != self._code:
            raise CodeChanged(f"the code has changed while seed {run.seed} ran: begin again, and leave the code alone")
        coverage = [[*cell, count] for cell, count in run.coverage.items()]
        row = {
            "code": self._code,
            "seed": run.seed,
            "is_faulty": run.is_faulty,
            "took_s": round(run.took_s, 3),
            "virtual_ms": run.virtual_ms,
            "counters": dict(run.counters),
            "coverage": coverage,
            "unseen": run.unseen,
        }
        self._write(json.dumps(row) + "\n")

    def _write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)


def _parsed(row: dict[str, Any]) -> RunFigures:
    """TypeError or ValueError for what `keep` has not written."""
    coverage = Counter({(str(kind), str(state)): int(count) for kind, state, count in row.pop("coverage")})
    return RunFigures(coverage=coverage, counters=Counter(row.pop("counters")), unseen=tuple(row.pop("unseen")), **row)


def digest_of(settings: RunSettings) -> str:
    """Of every Python file of the package, of Python and all that is installed beside it, and of these settings."""
    installed = sorted({f"{each.name} {each.version}" for each in distributions()})
    found = hashlib.sha256(f"{sys.version} {installed} {settings}".encode())
    for root in kraft.__path__:
        for folder, folders, names in os.walk(root, followlinks=True):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    file = Path(folder, name)
                    found.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return found.hexdigest()[:16]
