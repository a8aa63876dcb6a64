"""The Spark section of the benchmark page, which is made from the stored figures."""

from __future__ import annotations

from tests.bench.page import PAGE
from tests.bench.spark.section import HEADING, Figures, Measured, render, with_section

LINE = Measured(
    name="batch read",
    rows=1_000,
    target=1.1,
    rates={"ours": 120_000.0, "connector": 100_000.0},
    walls={"ours": 1.0, "connector": 1.0},
    spread={"ours": (110_000.0, 130_000.0), "connector": (90_000.0, 101_000.0)},
)
FIGURES = Figures(3, "a machine", "4.2.0", "26.0.1", "3.11.7", (LINE,), ())


def test_the_spark_benchmark_section_shows_the_ratio_of_medians_and_whether_the_target_is_met() -> None:
    assert "| 1.20 × | ≥ 1.1 ×: met |" in render(FIGURES)
    slower = Figures(3, "a machine", "4.2.0", "26.0.1", "3.11.7", (LINE, _slow()), ())
    assert "| 0.50 × | ≥ 1.1 ×: **not met** |" in render(slower)


def _slow() -> Measured:
    return Measured("slow read", 1_000, 1.1, {"ours": 1.0, "connector": 2.0}, {}, dict.fromkeys(LINE.rates, (1.0, 2.0)))


def test_a_new_spark_benchmark_section_replaces_the_older_one_and_keeps_the_rest_of_the_page() -> None:
    once = with_section("# Page\n\nText.\n", HEADING + "old\n")
    again = with_section(once, HEADING + "new\n")
    assert again == f"# Page\n\nText.\n\n{HEADING}new\n"


def test_the_benchmark_page_has_the_spark_section_made_from_the_stored_figures() -> None:
    assert PAGE.read_text().endswith(render(Figures.kept()))
