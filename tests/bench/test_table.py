"""Alarms: a figure raises an alarm only if it is past its alarm value and the machine is not just slow."""

from collections.abc import Callable, Iterable

import pytest

from tests.bench.__main__ import ATTEMPTS, quick
from tests.bench.table import Line, calmest_of, median_of, render


def rate(figure: float, bare: float | None = 1000, reference: float | None = 1000) -> Line:
    return Line("produce", "MB/s", figure, target=800, alarm=500, bare=bare, reference=reference)


def time(figure: float, bare: float | None = 0.1, reference: float | None = 0.1) -> Line:
    return Line("p50", "ms", figure, 0.3, 0.45, more_is_better=False, bare=bare, reference=reference)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (rate(800), "ok"),
        (rate(799), "below target"),
        (rate(500), "below target"),
        (rate(499), "ALARM"),
        (rate(499, bare=500), "slow machine"),
        (rate(249, bare=500), "ALARM"),
        (rate(499, bare=None), "ALARM"),
        (rate(499, bare=500, reference=None), "ALARM"),
        (time(0.3), "ok"),
        (time(0.4), "below target"),
        (time(0.46), "ALARM"),
        (time(0.46, bare=0.2), "slow machine"),
        (time(0.91, bare=0.2), "ALARM"),
    ],
)
def test_a_benchmark_figure_raises_an_alarm_only_if_it_is_past_both_the_fixed_and_the_scaled_alarm_value(
    line: Line, verdict: str
) -> None:
    assert line.verdict == verdict
    assert line.is_alarming == (verdict == "ALARM")


@pytest.mark.parametrize("line", [rate(600, bare=4000), time(0.4, bare=0.01)])
def test_a_fast_machine_does_not_make_the_alarm_value_of_a_benchmark_line_stricter(line: Line) -> None:
    assert line.scaled_alarm == line.alarm
    assert line.verdict == "below target"


def test_a_benchmark_line_without_an_alarm_value_never_raises_an_alarm() -> None:
    assert Line("core", "%", 500, 60, None, more_is_better=False, bare=1, reference=1).verdict == "below target"


def test_medians_of_benchmark_figures_and_of_bare_loop_figures_are_computed_separately() -> None:
    found = median_of([rate(700, bare=3000), rate(300, bare=1000), rate(900, bare=2000)])
    assert (found.figure, found.bare, found.alarm) == (700, 2000, 500)


def test_the_benchmark_table_shows_both_alarm_values() -> None:
    head, row = render([rate(400, bare=500)]).splitlines()
    assert head.split("  ")[-1] == "of bare"
    assert row.split() == ["produce", "400", "MB/s", "800", "500", "250", "80", "%", "slow", "machine"]


def measuring(*rounds: list[Line]) -> tuple[Callable[[], list[Line]], list[list[Line]]]:
    """Return a function that returns these rounds one by one, and the list of the rounds that it has not returned
    yet."""
    left = list(rounds)
    return lambda: left.pop(0), left


CALM, SLOW, SLOWER = rate(700, bare=None), rate(450, bare=None), rate(300, bare=None)


@pytest.mark.parametrize(
    ("rounds", "figure", "unused"),
    [
        ((CALM, SLOW, SLOW), 700, 2),
        ((SLOW, CALM, SLOW), 700, 1),
        ((SLOWER, SLOW, CALM), 700, 0),
        ((SLOWER, SLOW, SLOWER, CALM), 450, 1),
    ],
)
def test_a_benchmark_alarm_counts_only_if_it_occurs_in_every_attempt(
    rounds: Iterable[Line], figure: float, unused: int
) -> None:
    measure, left = measuring(*([one] for one in rounds))
    (line,) = quick(measure)
    assert (line.figure, len(left)) == (figure, unused)
    assert line.is_alarming == (figure == 450)


def test_alarms_of_two_benchmark_lines_in_different_attempts_do_not_count() -> None:
    measure, left = measuring([SLOW, time(0.3)], [CALM, time(0.9)], [SLOW, time(0.9)])
    lines = quick(measure)
    assert [line.verdict for line in lines] == ["below target", "ok"]
    assert len(left) == ATTEMPTS - 2


def test_the_figure_of_several_attempts_is_the_best_one_that_raised_no_alarm() -> None:
    explained, accused = rate(300, bare=500), rate(450, bare=1000)
    assert calmest_of([accused, explained]) is explained
    assert calmest_of([time(0.4), time(0.3), time(0.5)]) == time(0.3)
