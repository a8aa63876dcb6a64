"""The names under which dashboards look for Kafka's metrics: one registry, a row for each family of names.

The families are `reporter` (Strimzi Metrics Reporter), `strimzi` (the jmx_exporter rules of Strimzi's examples) and
`confluent` (those of Confluent's stacks). Source: Strimzi Metrics Reporter, Strimzi examples, jmx-monitoring-stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.serving.metrics.metric_registry import Family, Tags

SUFFIXES = MappingProxyType({"counter": "_total", "info": "_info"})
_PER_SECOND, _PERCENT = "PerSec", "Percent"
_HANDLERS_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
"""The reporter's is a counter of nanoseconds. The other families read a share; one loop does what Kafka's network and
request threads do, so they get that of the network thread under both names."""
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
"""By client software."""
_SOFTWARE_LABELS = MappingProxyType(
    {"clientSoftwareName": "client_software_name", "clientSoftwareVersion": "client_software_version"}
)


@dataclass(frozen=True, slots=True)
class Names:
    """`of_family` gives each name under which a family's samples are written (of a histogram the name of its
    percentiles); `of_tags` gives their labels."""

    of_family: Callable[[Family], tuple[str, ...]]
    of_tags: Callable[[Tags], Tags]


def _reporter(family: Family) -> tuple[str, ...]:
    return (family.prometheus + SUFFIXES.get(family.kind.value, ""),)


def _strimzi(family: Family) -> tuple[str, ...]:
    """Rules tell `PerSec` and `Percent` by their capitals: names of Kafka's newer metrics, such as max-dirty-percent,
    are left as they are."""
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


def _confluent(family: Family) -> tuple[str, ...]:
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
    """Host and port of a broker as one label."""
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
