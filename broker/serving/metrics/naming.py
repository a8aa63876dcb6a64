"""The names under which dashboards read Kafka's metrics: one registry, with a row for each family of names.

The families are `reporter` (Strimzi Metrics Reporter), `strimzi` (the jmx_exporter rules in Strimzi's examples) and
`confluent` (the rules of Confluent's monitoring stacks). Source: Strimzi Metrics Reporter, Strimzi examples,
jmx-monitoring-stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.serving.metrics.metric_registry import MetricFamily, Tags

SUFFIXES = MappingProxyType({"counter": "_total", "info": "_info"})
_PER_SECOND, _PERCENT = "PerSec", "Percent"
_HANDLERS_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
"""Metric of the idle share of Kafka's request handlers. In the `reporter` family it is a counter of nanoseconds; the
other families read a fraction. One event loop does the work of Kafka's network and request threads, so the other
families get the network threads' fraction under both names."""
_NETWORK_IDLE = "kafka_network_socketserver_networkprocessoravgidlepercent"
_STRIMZI_STARTS = MappingProxyType(
    {
        "kafka_server_raft_metrics_": "kafka_server_raftmetrics_",
        "kafka_server_raft_channel_metrics_": "kafka_server_raftchannelmetrics_",
        "kafka_server_broker_metadata_metrics_": "kafka_server_brokermetadatametrics_",
    }
)
_CONFLUENT_STARTS = MappingProxyType({"kafka_server_socket_server_metrics_": "kafka_server_socketservermetrics_"})
_CONNECTIONS = "kafka_server_socket_server_metrics_connections"
"""Metric of the number of connections by client software."""
_SOFTWARE_LABELS = MappingProxyType(
    {"clientSoftwareName": "client_software_name", "clientSoftwareVersion": "client_software_version"}
)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one family. `of_family` returns each name under which a metric's samples are written (for a
    histogram, the name of its percentiles); `of_tags` returns their labels."""

    of_family: Callable[[MetricFamily], tuple[str, ...]]
    of_tags: Callable[[Tags], Tags]


def _reporter(family: MetricFamily) -> tuple[str, ...]:
    return (family.prometheus + SUFFIXES.get(family.kind.value, ""),)


def _strimzi(family: MetricFamily) -> tuple[str, ...]:
    """Apply Strimzi's rules, which recognize `PerSec` and `Percent` by their capitals. Names of Kafka's newer metrics,
    such as max-dirty-percent, stay unchanged."""
    if family.prometheus == _HANDLERS_IDLE:
        return ()
    if family.prometheus == _CONNECTIONS:
        return (_CONNECTIONS + "_software",)
    name = _renamed(family.prometheus, _STRIMZI_STARTS)
    if family.kind.value == "counter":
        return (name.removesuffix(_PER_SECOND.lower()) + "_total",)
    if not family.name.name.endswith(_PERCENT):
        return (name,)
    both = (name, _HANDLERS_IDLE) if name == _NETWORK_IDLE else (name,)
    return tuple(one.removesuffix(_PERCENT.lower()) + "_percent" for one in both)


def _confluent(family: MetricFamily) -> tuple[str, ...]:
    if family.prometheus == _HANDLERS_IDLE:
        return ()
    name = _renamed(family.prometheus, _CONFLUENT_STARTS)
    return (name, _HANDLERS_IDLE + "_total") if name == _NETWORK_IDLE else (name,)


def _renamed(name: str, starts: Mapping[str, str]) -> str:
    for start, new in starts.items():
        if name.startswith(start):
            return new + name.removeprefix(start)
    return name


def _reporter_tags(tags: Tags) -> Tags:
    return tuple((_label(name), value) for name, value in tags)


def _strimzi_tags(tags: Tags) -> Tags:
    return _reporter_tags(_with_broker(tags))


def _confluent_tags(tags: Tags) -> Tags:
    return tuple((_SOFTWARE_LABELS.get(name, _label(name).lower()), value) for name, value in _with_broker(tags))


def _with_broker(tags: Tags) -> Tags:
    """Join host and port of a broker into one label."""
    if not any(name == "brokerHost" for name, _ in tags):
        return tags
    found = dict(tags)
    broker = f"{found.pop('brokerHost')}:{found.pop('brokerPort')}"
    return tuple(sorted({**found, "broker": broker}.items()))


def _label(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


REPORTER = Names(_reporter, _reporter_tags)
NAMES = MappingProxyType(
    {"reporter": REPORTER, "strimzi": Names(_strimzi, _strimzi_tags), "confluent": Names(_confluent, _confluent_tags)}
)
