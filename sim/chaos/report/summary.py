"""The runs of a campaign by scenario and cluster: number of each verdict, gaps, throughput."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID, RunVerdict
from kraft.sim.chaos.judge.availability import BEFORE, WHOLE_RUN
from kraft.sim.chaos.report.formats import NOTHING, format_rate, longest_gap
from kraft.sim.chaos.run.run_folder import RunInfo

Run = tuple[RunInfo, RunVerdict, str]
"""A run, its verdict, and the relative link to its report."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Mean acknowledged records per second in three periods: before the first fault, from then until the heal, and from
    the heal until the clients end. None: the period contains no whole second."""

    before: float | None
    during: float | None
    after: float | None


def throughput_of(info: RunInfo, verdict: RunVerdict) -> Throughput:
    """Return the throughput of a run. The seconds in which the first fault began or the heal happened belong to the
    middle period. Without faults, all seconds belong to the first period."""
    has_faults = any(phase.phase != WHOLE_RUN for phase in verdict.phases)
    calm = [phase.end_ms for phase in verdict.phases if phase.phase == BEFORE]
    begin_ms = min(calm, default=0.0) if has_faults else info.duration_ms
    healed_ms = info.healed_ms if has_faults else info.duration_ms
    seconds = [(at_ms, rate) for at_ms, rate in verdict.throughput if at_ms + 1000 <= info.duration_ms]
    return Throughput(
        _mean(rate for at_ms, rate in seconds if at_ms + 1000 <= begin_ms),
        _mean(rate for at_ms, rate in seconds if at_ms + 1000 > begin_ms and at_ms < healed_ms),
        _mean(rate for at_ms, rate in seconds if at_ms >= healed_ms and at_ms + 1000 > begin_ms),
    )


def _mean(rates: Iterable[float | None]) -> float | None:
    found = [rate for rate in rates if rate is not None]
    return fmean(found) if found else None


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The runs of one scenario on one cluster. Gaps are each run's longest, of sends if there are any."""

    scenario: str
    title: str
    cluster: str
    runs: tuple[Run, ...]

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(verdict.verdict for _, verdict, _ in self.runs)

    @property
    def gaps_ms(self) -> list[float]:
        found = (longest_gap(verdict.gaps) for _, verdict, _ in self.runs)
        return [gap.gap_ms for gap in found if gap is not None]

    @property
    def endless(self) -> int:
        """Number of runs in which a gap had not ended when the run did."""
        found = (longest_gap(verdict.gaps) for _, verdict, _ in self.runs)
        return sum(gap is not None and gap.first_success_ms is None for gap in found)

    @property
    def gap_median_ms(self) -> float | None:
        return median(self.gaps_ms) if self.gaps_ms else None

    @property
    def gap_worst_ms(self) -> float | None:
        return max(self.gaps_ms, default=None)

    @property
    def throughput(self) -> Throughput:
        found = [throughput_of(info, verdict) for info, verdict, _ in self.runs]
        return Throughput(
            _mean(each.before for each in found),
            _mean(each.during for each in found),
            _mean(each.after for each in found),
        )


def summary_rows(runs: Sequence[Run]) -> list[SummaryRow]:
    """Return the rows in the order in which scenarios and clusters first appear."""
    groups: dict[tuple[str, str], list[Run]] = {}
    scenarios: dict[str, int] = {}
    for run in runs:
        scenarios.setdefault(run[0].scenario, len(scenarios))
        groups.setdefault((run[0].scenario, run[0].cluster), []).append(run)
    ordered = sorted(groups.items(), key=lambda group: scenarios[group[0][0]])
    return [SummaryRow(scenario, found[0][0].title, cluster, tuple(found)) for (scenario, cluster), found in ordered]


HEADINGS = (
    "Scenario",
    "Cluster",
    "Runs",
    "Valid",
    "Invalid",
    "Unknown",
    "Gap, median (ms)",
    "Gap, worst (ms)",
    "Records/s before",
    "during",
    "after",
)


def summary_table_markdown(runs: Sequence[Run]) -> str:
    """Return a Markdown table, one row for each scenario and cluster, with a final line end. A gap that did not end is
    marked with >."""
    lines = [_line(HEADINGS), _line("---" if number < 2 else "---:" for number in range(len(HEADINGS)))]
    return "\n".join([*lines, *(_line(_cells(row)) for row in summary_rows(runs))]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


def _cells(row: SummaryRow) -> Iterable[str]:
    verdicts, throughput = row.verdicts, row.throughput
    yield row.scenario
    yield row.cluster
    yield str(len(row.runs))
    yield from (str(verdicts[verdict]) for verdict in (VALID, INVALID, UNKNOWN))
    yield _whole(row.gap_median_ms)
    yield (">" if row.endless else "") + _whole(row.gap_worst_ms)
    yield from (format_rate(rate) for rate in (throughput.before, throughput.during, throughput.after))


def _whole(value_ms: float | None) -> str:
    return NOTHING if value_ms is None else f"{value_ms:.0f}"
