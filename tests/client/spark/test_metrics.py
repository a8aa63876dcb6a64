"""Tests of the table `metrics`, against exporters that listen on loopback."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import TableSettings
from kraft.client.spark.state import StateError, StateRequest, rows_of
from tests.client.spark.exporters import exporter

TEXT = """# HELP kafka_log_size Size of the log.
# TYPE kafka_log_size gauge
kafka_log_size{broker_id="2",topic="or\\"ders"} 12.5
# TYPE requests_total counter
requests_total 3
"""
COLUMNS = ("endpoint", "broker_id", "name", "labels", "value", "type", "help", "as_of_offset")


def read(*endpoints: str) -> list[tuple[Any, ...]]:
    settings = TableSettings(table="metrics", connection=None, metrics=endpoints)
    return list(rows_of(StateRequest("metrics", COLUMNS, Bounds(), settings)))


def test_table_metrics_has_a_row_per_sample_of_each_endpoint() -> None:
    with exporter(TEXT) as one, exporter("up 1\n") as two:
        labels = {"broker_id": "2", "topic": 'or"ders'}
        assert read(one, f"http://{two}/metrics") == [
            (one, 2, "kafka_log_size", labels, 12.5, "gauge", "Size of the log.", None),
            (one, None, "requests_total", {}, 3.0, "counter", "", None),
            (f"http://{two}/metrics", None, "up", {}, 1.0, "unknown", "", None),
        ]


def test_table_metrics_error_for_an_endpoint_that_does_not_respond_names_the_endpoint() -> None:
    with exporter(TEXT) as one, socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # the bound port is given to no other process, and nothing listens on it
        silent = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(StateError, match=f"endpoint http://{silent}/metrics does not answer"):
            read(one, silent)
    with exporter(TEXT, status=500) as broken, pytest.raises(StateError, match="500"):
        read(broken)


def test_table_metrics_error_for_a_response_that_is_not_prometheus_text_names_the_endpoint() -> None:
    with exporter("<html>no</html>\n") as page, pytest.raises(StateError, match=f"{page}/metrics does not answer with"):
        read(page)


def test_table_metrics_without_endpoint_or_with_another_url_scheme_is_rejected() -> None:
    with pytest.raises(StateError, match="needs option metrics"):
        read()
    with pytest.raises(StateError, match="give HOST:PORT"):
        read("file:///etc/passwd")
