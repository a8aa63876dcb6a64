"""Results of a comparison's rounds: medians, ratios, goals, and the page that is written from them."""

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.contest import BARE, KAFKA, OURS, Goal, Outcome, Results, Row
from tests.bench.page import kafka_version, render
from tests.bench.picture import draw, times_ahead

RATE = Row("rate", "produce", "MB/s", goal=Goal(2, of_kafka=True))
COST = Row("cost", "produce: CPU", "s/GB", more_is_better=False, goal=Goal(0.5, of_kafka=True))
TIME = Row("time", "p50", "ms", more_is_better=False, goal=Goal(0.35))


def outcome(row: Row, ours: list[float], theirs: list[float]) -> Outcome:
    return Outcome(row, {OURS: ours, KAFKA: theirs})


@pytest.mark.parametrize(
    ("found", "is_met"),
    [
        (outcome(RATE, [100, 220, 900], [100, 110, 90]), True),
        (outcome(RATE, [100, 190, 900], [100, 110, 90]), False),
        (outcome(COST, [0.5], [1.0]), True),
        (outcome(COST, [0.6], [1.0]), False),
        (outcome(COST, [0.6], []), None),
        (outcome(TIME, [0.35], []), True),
        (outcome(TIME, [0.36], [10.0]), False),
        (outcome(TIME, [], [10.0]), None),
        (outcome(Row("free", "no goal", "s"), [1.0], [1.0]), None),
    ],
)
def test_a_benchmark_goal_is_judged_by_the_medians(found: Outcome, is_met: bool | None) -> None:
    assert found.is_met is is_met


def test_a_benchmark_ratio_above_one_means_that_ours_is_faster_or_cheaper() -> None:
    assert times_ahead(outcome(RATE, [300], [100])) == 3
    assert times_ahead(outcome(COST, [1], [4])) == 4
    assert times_ahead(outcome(TIME, [1], [])) is None


def results() -> Results:
    found = Results()
    for figure in (200.0, 300.0, 250.0):
        found.add((RATE, COST), OURS, {"rate": figure, "cost": 1.0})
        found.add((RATE, COST), KAFKA, {"rate": 100.0, "cost": 4.0})
        found.add((RATE, COST), BARE, {"rate": 1000.0})
    for count in (1, 10, 100):
        for side in (OURS, KAFKA):
            found.add((Row(f"partitions-{count}", "curve", "MB/s"),), side, {f"partitions-{count}": 400.0 / count})
    return found


def test_a_benchmark_curve_has_only_the_rows_whose_key_begins_with_its_prefix() -> None:
    found = results()
    found.add((Row("partitions-cpu-1", "curve", "s"),), OURS, {"partitions-cpu-1": 5.0})
    assert list(found.curve("partitions-", OURS)) == [(1, 400.0), (10, 40.0), (100, 4.0)]


def test_a_failed_benchmark_measurement_is_recorded_and_the_others_continue() -> None:
    found = Results()
    with found.noting_failure("cold"):
        raise OSError("no space left")
    assert found.failures == ["cold: OSError: no space left"]
    assert "cold: OSError: no space left" in found.render()
    assert "- cold: OSError: no space left" in render(found, rounds=1)


def test_a_benchmark_target_that_was_not_measured_stays_on_the_page_as_not_met() -> None:
    found = results()
    with found.noting_failure("single", (TIME, RATE)):
        raise OSError("no space left")
    text = render(found, rounds=1)
    assert "| p50, ms |  |  |  |  |  | ≤ 0.35 | not measured |" in text
    assert "Of 3 targets, 2 are met, 1 not measured. What is not met is explained in [performance]" in text


def test_a_benchmark_line_whose_measurement_failed_keeps_the_figure_of_an_earlier_run() -> None:
    earlier, later = Results(), Results()
    earlier.add((TIME,), OURS, {"time": 0.3})
    with later.noting_failure("single", (TIME,)):
        raise OSError("no space left")
    later.take_over(json.loads(json.dumps(earlier.as_json(1.0))))
    assert later.outcomes["time"].rounds == {OURS: [0.3]}
    assert later.has_taken_over


def test_a_benchmark_figure_without_a_unit_is_shown_without_a_comma_after_its_name() -> None:
    assert outcome(Row("files", "open files", ""), [31.0], []).cells()[0] == "open files"


def test_a_programming_error_in_a_benchmark_is_not_swallowed() -> None:
    with pytest.raises(TypeError), Results().noting_failure("cold"):
        raise TypeError("a bug")


def test_the_benchmark_page_has_each_figure_with_ratio_target_and_verdict() -> None:
    text = render(results(), rounds=3)
    assert "| produce, MB/s | 250 | 100 | 2.50 × | 1,000 | 0.25 × | ≥ 2 × Kafka | yes |" in text
    assert "| produce | 200 / 250 / 300 | 100 / 100 / 100 | 1,000 / 1,000 / 1,000 |" in text
    assert "Of 2 targets, 2 are met." in text
    assert f"Apache Kafka {kafka_version()}" in text


@pytest.mark.slow
def test_equal_benchmark_results_give_equal_pictures(tmp_path: Path) -> None:
    draw(results(), tmp_path / "one.svg")
    draw(results(), tmp_path / "other.svg")
    assert (tmp_path / "one.svg").read_text() == (tmp_path / "other.svg").read_text()
    assert "<svg" in (tmp_path / "one.svg").read_text()


def test_benchmark_figures_of_an_earlier_run_are_kept_unless_measured_again() -> None:
    earlier, later = Results(), Results()
    earlier.add((RATE, COST), OURS, {"rate": 100.0, "cost": 4.0})
    earlier.add((RATE, TIME), KAFKA, {"rate": 40.0, "time": 7.0})
    later.add((RATE,), OURS, {"rate": 300.0})
    later.take_over(json.loads(json.dumps(earlier.as_json(1.0))))
    assert later.outcomes["rate"].rounds == {OURS: [300.0]}
    assert later.outcomes["cost"].rounds == {OURS: [4.0]}
    assert later.outcomes["time"].rounds == {KAFKA: [7.0]}
    assert later.outcomes["time"].row == TIME
    assert later.outcomes["cost"].row == COST


def test_benchmark_figures_of_trial_and_full_runs_are_not_mixed_on_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(Results().as_json(0.05)))
    with pytest.raises(SystemExit):
        main(["--keep", str(kept)])
    assert "has figures of 5% of each line's work, and --share asks for 100%" in capsys.readouterr().err


def test_the_benchmark_page_shows_the_spread_of_several_rounds() -> None:
    results = Results()
    results.add((RATE,), OURS, {"rate": 100.0})
    assert "## Spread" not in render(results, 1)
    results.add((RATE,), OURS, {"rate": 300.0})
    assert "| 100 / 200 / 300 |" in render(results, 2)
