"""Statistics and texts that `kraft perf` prints."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.records import perf
from kraft.deploy.cli.records.perf import _latency, _values, percentile


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (50, 50), (50.5, 51), (95, 95), (99, 99), (99.9, 100), (100, 100)]
)
def test_a_percentile_is_a_measured_value_that_this_share_does_not_exceed(percent: float, expected: int) -> None:
    assert percentile(list(range(1, 101)), percent) == expected


def test_kraft_perf_reports_latencies_in_milliseconds() -> None:
    told = _latency([0.002, 0.001, 0.003])["latency_ms"]
    assert told == {"avg": 2.0, "p50": 2.0, "p95": 3.0, "p99": 3.0, "p99.9": 3.0, "max": 3.0}


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_the_values_that_kraft_perf_generates_have_the_requested_size_and_differ(size: int) -> None:
    values = _values(size)
    assert {len(value) for value in values} == {size}
    assert len(set(values)) > 10
    assert values == _values(size)


@pytest.mark.parametrize(
    ("rate", "as_json", "is_told"), [(None, False, True), (100, False, False), (None, True, False)]
)
def test_kraft_perf_without_a_rate_reports_that_latency_is_mostly_queue_time(
    monkeypatch: pytest.MonkeyPatch, rate: int | None, as_json: bool, is_told: bool
) -> None:
    measured = {**perf._throughput("produce", 1, 1, 1), **_latency([1.0])}
    monkeypatch.setattr(ClusterConnection, "run_async", lambda _connection, _work: measured)
    arguments = ["produce", *(["--rate", str(rate)] if rate else []), *(["--json"] if as_json else [])]
    said = CliRunner().invoke(perf.app, arguments).output
    assert ("in the producer's own queue" in said) == is_told


def test_kraft_perf_reports_partitions_and_replicas_of_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"topic": "orders", "partitions": 3, "replicas": 1}
    measured = {**perf._throughput("produce", 1, 1, 1), **shape, **_latency([1.0])}
    monkeypatch.setattr(ClusterConnection, "run_async", lambda _connection, _work: measured)
    assert "into orders: 3 partitions, 1 replica each\n" in CliRunner().invoke(perf.app, ["produce"]).output


def test_the_values_that_kraft_perf_generates_have_a_limited_total_size() -> None:
    assert sum(map(len, _values(3 << 20))) <= perf.VALUES_BYTES_MAX
    assert len(_values(perf.VALUES_BYTES_MAX + 1)) == 1


def test_kraft_perf_refuses_a_record_size_that_no_broker_accepts() -> None:
    done = CliRunner().invoke(perf.app, ["produce", "--record-size", "99999999999"])
    assert (done.exit_code, "--record-size" in done.output) == (2, True)
