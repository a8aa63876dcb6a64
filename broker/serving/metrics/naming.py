"""The names under which dashboards look for Kafka's metrics: one registry, a row for each family of names.

Source: the Strimzi Metrics Reporter (reporter), the rules for jmx_exporter of Strimzi's examples (strimzi) and of
Confluent's jmx-monitoring-stacks (confluent).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.node.metrics import Family

_REPORTER_SUFFIXES = MappingProxyType({"counter": "_total", "info": "_info"})
_PER_SECOND = "persec"
_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
"""The reporter's is a counter of nanoseconds; the other families read a share, which is that of the network thread."""
_STRIMZI_TYPES = MappingProxyType(
    {
        "kafka_server_raft_metrics_": "kafka_server_raftmetrics_",
        "kafka_server_raft_channel_metrics_": "kafka_server_raftchannelmetrics_",
        "kafka_server_broker_metadata_metrics_": "kafka_server_brokermetadatametrics_",
    }
)
_CONFLUENT_TYPES = MappingProxyType({"kafka_server_socket_server_metrics_": "kafka_server_socketservermetrics_"})


@dataclass(frozen=True, slots=True)
class Names:
    """`of_samples` gives the name of a family's samples (of a histogram the one of its percentiles), None to leave the
    family out."""

    of_samples: Callable[[Family], str | None]
    of_label: Callable[[str], str]


def _label(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _reporter(family: Family) -> str:
    return family.prometheus + _REPORTER_SUFFIXES.get(family.kind.value, "")


def _strimzi(family: Family) -> str | None:
    name = _renamed(family.prometheus, _STRIMZI_TYPES)
    if name == _IDLE:
        return None
    if name.endswith("percent") and family.kind.value == "gauge":
        return name.removesuffix("percent") + "_percent"
    return name.removesuffix(_PER_SECOND) + "_total" if family.kind.value == "counter" else name


def _confluent(family: Family) -> str | None:
    return None if family.prometheus == _IDLE else _renamed(family.prometheus, _CONFLUENT_TYPES)


def _renamed(name: str, types: Mapping[str, str]) -> str:
    for start, new in types.items():
        if name.startswith(start):
            return new + name.removeprefix(start)
    return name


REPORTER = Names(_reporter, _label)
NAMES = MappingProxyType(
    {"reporter": REPORTER, "strimzi": Names(_strimzi, _label), "confluent": Names(_confluent, _label)}
)
