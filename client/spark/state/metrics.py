"""Synchronous: the table `metrics`, from any HTTP exporter of Prometheus metrics.

If an endpoint does not respond, an error names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.client import HTTPException
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from kraft.client.spark.state.cells import whole
from kraft.client.spark.state.request import Getter, Moment, StateError, StateRequest, make_rows

TIMEOUT_SECONDS = 10
BYTES_MAX = 64 * 1024 * 1024
AT_ONCE_MAX = 16
BROKER_LABELS = ("broker_id", "broker", "node_id")


class Sample(NamedTuple):
    """One value of a metric, with its labels, as an endpoint reports it."""

    endpoint: str
    name: str
    labels: Mapping[str, str]
    value: float
    type: str
    help: str

    @property
    def broker_id(self) -> int | None:
        """The broker id: the first of the usual labels for it that has a number as value; None without such a label."""
        numbers = (whole(self.labels.get(name)) for name in BROKER_LABELS)
        return next((number for number in numbers if number is not None), None)


GETTERS: Mapping[str, Getter] = MappingProxyType(
    {
        "endpoint": attrgetter("endpoint"),
        "broker_id": attrgetter("broker_id"),
        "name": attrgetter("name"),
        "labels": lambda sample: dict(sample.labels),
        "value": attrgetter("value"),
        "type": attrgetter("type"),
        "help": attrgetter("help"),
    }
)


def metrics_rows(request: StateRequest) -> Iterable[tuple[Any, ...]]:
    """Return a row for each sample of each endpoint of option `metrics`."""
    endpoints = request.settings.metrics
    if not endpoints:
        raise StateError("table metrics needs option metrics: HOST:PORT,... of what exports Prometheus metrics")
    with ThreadPoolExecutor(min(len(endpoints), AT_ONCE_MAX)) as pool:
        samples = [sample for found in pool.map(read_endpoint, endpoints) for sample in found]
    moment = Moment(datetime.now(UTC), None)
    return make_rows(request, GETTERS, samples, moment, lambda _name: lambda _source: None)


def read_endpoint(endpoint: str) -> list[Sample]:
    """Return the samples of an endpoint, given as HOST:PORT (with the path /metrics) or as URL. Raises StateError if
    the endpoint does not respond."""
    url = endpoint if "://" in endpoint else f"http://{endpoint}/metrics"
    if not url.startswith(("http://", "https://")):
        raise StateError(f"metrics endpoint {endpoint}: give HOST:PORT, or a URL of http or https")
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_SECONDS) as answer:
            body = answer.read(BYTES_MAX + 1)
    except (OSError, HTTPException, ValueError) as problem:
        raise StateError(f"metrics endpoint {url} does not answer: {problem}") from problem
    if len(body) > BYTES_MAX:
        raise StateError(f"metrics endpoint {url} answers with more than {BYTES_MAX} bytes")
    try:
        return list(parse_samples(endpoint, body.decode()))
    except ValueError as problem:
        raise StateError(f"metrics endpoint {url} does not answer with Prometheus text: {problem}") from problem


def parse_samples(endpoint: str, text: str) -> Iterator[Sample]:
    """Parse the samples in a text of Prometheus' exposition format. Raises ValueError for other texts."""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            yield Sample(endpoint, one.name, one.labels, float(one.value), family.type, family.documentation)
