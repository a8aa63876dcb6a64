"""Records a campaign's runs in a file, so that an interrupted campaign can continue.

The file has a line for each run that passed, with a digest of the code and the settings. Lines with another digest are
ignored. A failed run is not recorded, because it should be examined and run again. A campaign starts new processes all
the time, so it ends if the code changes meanwhile.
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
    """Numbers of a run that a campaign adds up. `is_faulty`: its plan has faults. `took_s`: CPU seconds."""

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
    """The code, or a package that it uses, has changed since the campaign started."""


class KeptRuns:
    """Runs in the file by seed (`found`), recorded by the same code with the same settings. An incomplete line is
    ignored. Raises OSError if the file cannot be written."""

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
        """Record a run that passed. Raises CodeChanged if the code has changed since the start."""
        if digest_of(self._settings) != self._code:
            raise CodeChanged(
                f"the code has changed while seed {run.seed} ran: start again, and do not change the code meanwhile"
            )
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
    """Parse a line. Raises TypeError or ValueError if it is not a line that `keep` writes."""
    coverage = Counter({(str(kind), str(state)): int(count) for kind, state, count in row.pop("coverage")})
    return RunFigures(coverage=coverage, counters=Counter(row.pop("counters")), unseen=tuple(row.pop("unseen")), **row)


def digest_of(settings: RunSettings) -> str:
    """Return a digest of every Python file of the package, of Python and all installed packages, and of these
    settings."""
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
