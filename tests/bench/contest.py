"""The comparison with Apache Kafka: its figures, the goal of each figure, and the results of its rounds."""

from __future__ import annotations

import statistics
import subprocess
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
from confluent_kafka import KafkaException

from kraft.sim.shapes import ClusterError
from tests.bench.admin import Refused
from tests.bench.frames import RequestRefused
from tests.bench.own import Amounts
from tests.bench.table import aligned, number
from tests.stages.started_clusters import LocalCluster

OURS, KAFKA, BARE = "pykraft", "Apache Kafka", "bare loop"
Figures = dict[str, float]
"""Figures of one measurement, by the key of the row."""
FAILURES = (
    *(OSError, RuntimeError, ValueError, LookupError, ZeroDivisionError),
    *(subprocess.SubprocessError, psutil.Error, KafkaException, RequestRefused, Refused, ClusterError),
)
"""Exceptions that fail one measurement, while the other measurements continue."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for our figure: an absolute value, or a multiple of Kafka's figure in the same run."""

    bound: float
    of_kafka: bool = False

    def text(self, more_is_better: bool) -> str:
        return f"{'≥' if more_is_better else '≤'} {self.bound:,g}{' × Kafka' if self.of_kafka else ''}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the comparison, as a row of its table."""

    key: str
    name: str
    unit: str
    more_is_better: bool = True
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """Rows that are measured together. `prepare` runs once per cluster and is not measured. `bare` is the bare loop
    that does the same work; it is measured between the two clusters."""

    key: str
    rows: tuple[Row, ...]
    measure: Callable[[LocalCluster, Amounts], Figures]
    prepare: Callable[[LocalCluster, Amounts], None] | None = None
    bare: Callable[[Amounts], Figures] | None = None
    rounds_max: int | None = None
    """Maximum number of rounds, for measurements that take long or use much disk space."""


@dataclass(slots=True)
class Outcome:
    """The figures of one row in all rounds, for ours and for Kafka."""

    row: Row
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, side: str, figure: float) -> None:
        self.rounds.setdefault(side, []).append(figure)

    def median(self, side: str) -> float | None:
        found = self.rounds.get(side)
        return statistics.median(found) if found else None

    @property
    def ratio(self) -> float | None:
        """Our figure divided by Kafka's: above 1 is better for a rate, below 1 for a time or a cost."""
        ours, theirs = self.median(OURS), self.median(KAFKA)
        return ours / theirs if ours is not None and theirs else None

    @property
    def of_bare(self) -> float | None:
        ours, bare = self.median(OURS), self.median(BARE)
        return ours / bare if ours is not None and bare else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is no goal, or a figure is missing."""
        goal = self.row.goal
        figure = None if goal is None else self.ratio if goal.of_kafka else self.median(OURS)
        if goal is None or figure is None:
            return None
        return figure >= goal.bound if self.row.more_is_better else figure <= goal.bound

    def cells(self) -> tuple[str, ...]:
        goal = self.row.goal
        return (
            f"{self.row.name}, {self.row.unit}" if self.row.unit else self.row.name,
            number(self.median(OURS)),
            number(self.median(KAFKA)),
            "" if self.ratio is None else f"{self.ratio:.2f} ×",
            number(self.median(BARE)),
            "" if self.of_bare is None else f"{self.of_bare:.2f} ×",
            "" if goal is None else goal.text(self.row.more_is_better),
            {True: "yes", False: "**no**", None: "" if goal is None else "not measured"}[self.is_met],
        )


HEAD = ("what", "pykraft", "Apache Kafka", "ratio", "bare", "of bare", "target", "met")


@dataclass(slots=True)
class Results:
    """All results of a run, in the order of measurement."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """Measurements that failed, each with the reason."""
    has_taken_over: bool = False
    """Whether some rows have figures of an earlier run."""

    def add(self, rows: tuple[Row, ...], side: str, figures: Figures) -> None:
        for row in rows:
            if row.key in figures:
                self.outcomes.setdefault(row.key, Outcome(row)).add(side, figures[row.key])

    @contextmanager
    def noting_failure(self, name: str, rows: Iterable[Row] = ()) -> Iterator[None]:
        """Print and record a failure within the `with` block, and let the run continue. If the block's `rows` have no
        figure, they stay on the page with their goals: a target that was not measured is not met."""
        try:
            yield
        except FAILURES as error:
            traceback.print_exc()
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            for row in rows:
                self.outcomes.setdefault(row.key, Outcome(row))

    def as_json(self, share: float) -> dict[str, object]:
        """Return the JSON that `take_over` reads. `share` is the share of the full amount of work that was done."""
        rows = [{"row": asdict(one.row), "rounds": one.rounds} for one in self.outcomes.values()]
        return {"share": share, "rows": rows}

    def take_over(self, kept: dict[str, Any]) -> None:
        """Add the figures of an earlier run, except for rows that this run has measured."""
        for one in kept["rows"]:
            goal = one["row"]["goal"]
            row = Row(**{**one["row"], "goal": None if goal is None else Goal(**goal)})
            measured = self.outcomes.setdefault(row.key, Outcome(row))
            if not measured.rounds and one["rounds"]:
                self.has_taken_over = True
                measured.rounds = one["rounds"]

    def curve(self, prefix: str, side: str) -> Iterator[tuple[int, float]]:
        """Return the points of a curve: the rows whose key is `prefix` and a number."""
        for key, outcome in self.outcomes.items():
            figure = outcome.median(side)
            if key.startswith(prefix) and key.removeprefix(prefix).isdigit() and figure is not None:
                yield int(key.removeprefix(prefix)), figure

    def render(self) -> str:
        """Return the results as a text table."""
        rows = [HEAD, *(outcome.cells() for outcome in self.outcomes.values())]
        return aligned(rows, left=frozenset({0, 6, 7})) + "".join(f"\nfailed: {text}" for text in self.failures)
