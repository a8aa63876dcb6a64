"""What `kraft perf` computes from what it measured."""

from __future__ import annotations

import pytest

from kraft.deploy.cli.perf import _latency, _values, percentile


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (50, 50), (50.5, 51), (95, 95), (99, 99), (99.9, 100), (100, 100)]
)
def test_a_percentile_is_the_value_that_so_many_are_at_or_below(percent: float, expected: int) -> None:
    assert percentile(list(range(1, 101)), percent) == expected


def test_latencies_are_told_in_milliseconds() -> None:
    told = _latency([0.002, 0.001, 0.003])["latency_ms"]
    assert told == {"avg": 2.0, "p50": 2.0, "p95": 3.0, "p99": 3.0, "p99.9": 3.0, "max": 3.0}


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_values_have_the_size_that_was_asked_for_and_are_not_all_the_same(size: int) -> None:
    values = _values(size)
    assert {len(value) for value in values} == {size}
    assert len(set(values)) > 10
    assert values == _values(size)
