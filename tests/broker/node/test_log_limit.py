"""The limit on log lines that clients cause: one line per client and minute, then a count of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from kraft.node.log_limit import CLIENTS_MAX, INTERVAL_MS, LogLimit
from kraft.wire.api_keys import ApiKey
from tests.stages.broker_harness import BrokerHarness, StillClock

log = structlog.get_logger("test")


class Limit:
    def __init__(self) -> None:
        self.clock = StillClock()
        self.limit = LogLimit(self.clock)  # type: ignore[arg-type]

    def warn(self, client: str, why: str = "bad") -> None:
        self.limit.warning(log, "closed", client=client, why=why)

    def pass_time(self, duration_ms: int = INTERVAL_MS) -> None:
        self.clock.now_ms += duration_ms
        self.limit.report()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def told(lines: list[Any]) -> list[tuple[str, int]]:
    return [(line["why"], line.get("repeated", 0)) for line in lines]


def test_the_first_limited_log_line_is_written_at_once_and_repetitions_as_a_count_after_a_minute(
    logs: list[Any],
) -> None:
    limit = Limit()
    for number in range(6_400):
        limit.warn("10.0.0.1", f"bad {number}")
    limit.pass_time(INTERVAL_MS - 1)
    assert told(logs) == [("bad 0", 0)]
    limit.pass_time(1)
    assert told(logs) == [("bad 0", 0), ("bad 6399", 6_399)]


def test_a_client_that_repeats_an_error_causes_one_log_line_per_minute(logs: list[Any]) -> None:
    limit = Limit()
    for minute in range(4):
        for _ in range(100):
            limit.warn("10.0.0.1", f"minute {minute}")
        limit.pass_time()
    assert told(logs) == [("minute 0", 0), *((f"minute {n}", 99 if not n else 100) for n in range(4))]


def test_the_log_limit_forgets_a_client_after_a_minute_without_errors(logs: list[Any]) -> None:
    limit = Limit()
    limit.warn("10.0.0.1", "once")
    limit.pass_time()
    limit.warn("10.0.0.1", "again")
    assert told(logs) == [("once", 0), ("again", 0)]


def test_log_lines_are_limited_per_client_up_to_a_maximum_number_of_clients(logs: list[Any]) -> None:
    limit = Limit()
    for number in range(CLIENTS_MAX + 50):
        limit.warn(f"10.0.0.{number}")
    assert len(logs) == CLIENTS_MAX + 1
    limit.pass_time()
    assert told(logs[CLIENTS_MAX + 1 :]) == [("bad", 49)]


def test_a_client_that_retries_an_unserved_api_without_pause_causes_one_log_line_per_minute(logs: list[Any]) -> None:
    harness = BrokerHarness()
    for _ in range(1_000):
        client = harness.connect()
        client.send(ApiKey.CREATE_DELEGATION_TOKEN, 3, b"\0" * 20)
        assert client.transport.closed_for is not None
        client.connection.closed(client.transport.closed_for)
    harness.clock.now_ms += INTERVAL_MS
    harness.broker.log_limit.report()
    assert [line.get("repeated", 0) for line in logs] == [0, 999]
    assert all(line["event"] == "connection closed" and "38" in line["why"] for line in logs)
