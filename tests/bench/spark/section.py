"""The section of docs/benchmarks.md on Spark, made from docs/spark-figures.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from tests.bench.page import PAGE, machine

KEPT = PAGE.with_name("spark-figures.json")
HEADING = "## Spark beside its own connector\n"
_INTRODUCTION = """
`make bench-spark` runs each query of both sides in turn, in one session (`local[2]`), on a broker of
pykraft, {rounds} rounds after one that is dropped, and takes medians. A rate is rows per CPU second of the JVM and its
Python workers; the broker is not counted. The ratio is the first side over the second.

{machine} pyspark {pyspark} with connector {pyspark}, pyarrow {pyarrow}, Python {python}.

"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a line for each side: median, minimum and maximum of rows per CPU second and of rows per wall clock
    second."""

    name: str
    rows: int
    target: float
    rates: dict[str, float]
    walls: dict[str, float]
    spread: dict[str, tuple[float, float]]

    @property
    def ratio(self) -> float:
        first, second = self.rates.values()
        return first / second


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of our tables alone. `most` is its target, a maximum."""

    name: str
    value: float
    unit: str
    most: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All lines and figures of a run, with machine and versions."""

    rounds: int
    machine: str
    pyspark: str
    pyarrow: str
    python: str
    lines: tuple[Measured, ...]
    alone: tuple[Figure, ...]

    @classmethod
    def of(cls, lines: Sequence[Measured], alone: Sequence[Figure], *, rounds: int) -> Figures:
        """Return these lines as figures measured now on this machine."""
        versions = version("pyspark"), version("pyarrow"), platform.python_version()
        return cls(rounds, machine(), *versions, tuple(lines), tuple(alone))

    @classmethod
    def kept(cls, path: Path = KEPT) -> Figures:
        """Return the figures that are stored in the repository."""
        told = json.loads(path.read_text())
        lines, alone = (Measured(**one) for one in told["lines"]), (Figure(**one) for one in told["alone"])
        return cls(**{**told, "lines": tuple(lines), "alone": tuple(alone)})


def render(figures: Figures) -> str:
    """Render the section, as Markdown."""
    rows = [
        f"| {line.name} | {line.rows:,} | {_sides(line)} | {line.ratio:.2f} × | {_target(line)} |\n"
        for line in figures.lines
    ]
    introduction = _INTRODUCTION.format(
        rounds=figures.rounds,
        machine=figures.machine,
        pyspark=figures.pyspark,
        pyarrow=figures.pyarrow,
        python=figures.python,
    )
    head = "| what | rows | thousand rows per CPU second (least to most) | ratio | target |\n|---|---:|---|---:|---|\n"
    alone = "".join(
        f"| {one.name} | {one.value:.3g} {one.unit} | ≤ {one.most:.3g}: {_verdict(one.value <= one.most)} |\n"
        for one in figures.alone
    )
    alone_head = "\n| what | figure | target |\n|---|---:|---|\n"
    return f"{HEADING}{introduction}{head}{''.join(rows)}{alone_head}{alone}"


def write(figures: Figures) -> None:
    """Store the figures, and put the section into the benchmark page, where it replaces an older section."""
    KEPT.write_text(json.dumps(asdict(figures), indent=1) + "\n")
    restore()


def restore() -> None:
    """Put the section, made from the stored figures, into the benchmark page, which was written again without it."""
    PAGE.write_text(with_section(PAGE.read_text(), render(Figures.kept())))


def with_section(page: str, section: str) -> str:
    """Return the page with this section at its end, instead of an older section."""
    head = page.split(HEADING)[0].rstrip("\n")
    return f"{head}\n\n{section}"


def _sides(line: Measured) -> str:
    return ", ".join(
        f"{side} {rate / 1000:,.0f} ({line.spread[side][0] / 1000:,.0f} to {line.spread[side][1] / 1000:,.0f})"
        for side, rate in line.rates.items()
    )


def _target(line: Measured) -> str:
    return f"≥ {line.target:g} ×: {_verdict(line.ratio >= line.target)}"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**not met**"
