"""The names of metrics that dashboards for jmx_exporter read. Each row has the names that public exporter rules give to
a Kafka MBean. The rules are Strimzi's examples/metrics and Confluent's jmx-monitoring-stacks.
"""

from __future__ import annotations

import pytest

from kraft.broker.serving.metrics.metric_registry import MetricKind, Metrics
from kraft.broker.serving.metrics.naming import NAMES
from kraft.broker.serving.metrics.text import text_in_steps
from kraft.seam.measures import Histogram

SERVER, NETWORK, LOG, CONTROLLER = "kafka.server", "kafka.network", "kafka.log", "kafka.controller"
SOCKETS, RAFT = "socket-server-metrics", "raft-metrics"
SOFTWARE = {"clientSoftwareName": "librdkafka", "clientSoftwareVersion": "2", "listener": "PLAINTEXT"}
LEADER = {"clientId": "f", "brokerHost": "b2", "brokerPort": "9092"}
PRODUCE = {"request": "Produce"}

ROWS = [
    # the MBean's group, type and name, kind, tags; the names by Strimzi's rules and by Confluent's rules
    (
        SERVER,
        "BrokerTopicMetrics",
        "BytesInPerSec",
        MetricKind.COUNTER,
        {"topic": "a"},
        'kafka_server_brokertopicmetrics_bytesin_total{topic="a"}',
        'kafka_server_brokertopicmetrics_bytesinpersec{topic="a"}',
    ),
    (
        SERVER,
        "BrokerTopicMetrics",
        "MessagesInPerSec",
        MetricKind.COUNTER,
        {},
        "kafka_server_brokertopicmetrics_messagesin_total",
        "kafka_server_brokertopicmetrics_messagesinpersec",
    ),
    (
        NETWORK,
        "RequestMetrics",
        "RequestsPerSec",
        MetricKind.COUNTER,
        PRODUCE | {"version": "9"},
        'kafka_network_requestmetrics_requests_total{request="Produce",version="9"}',
        'kafka_network_requestmetrics_requestspersec{request="Produce",version="9"}',
    ),
    (
        NETWORK,
        "RequestMetrics",
        "TotalTimeMs",
        MetricKind.HISTOGRAM,
        PRODUCE,
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}',
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}',
    ),
    (
        NETWORK,
        "SocketServer",
        "NetworkProcessorAvgIdlePercent",
        MetricKind.GAUGE,
        {},
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
    ),
    (
        NETWORK,
        "SocketServer",
        "NetworkProcessorAvgIdlePercent",
        MetricKind.GAUGE,
        {},
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
    ),
    (
        SERVER,
        "ReplicaManager",
        "UnderReplicatedPartitions",
        MetricKind.GAUGE,
        {},
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_replicamanager_underreplicatedpartitions",
    ),
    (
        SERVER,
        "ReplicaManager",
        "IsrShrinksPerSec",
        MetricKind.COUNTER,
        {},
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka_server_replicamanager_isrshrinkspersec",
    ),
    (
        SERVER,
        "DelayedOperationPurgatory",
        "PurgatorySize",
        MetricKind.GAUGE,
        {"delayedOperation": "Fetch"},
        'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"}',
        'kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}',
    ),
    (
        SERVER,
        "FetcherStats",
        "BytesPerSec",
        MetricKind.COUNTER,
        LEADER,
        'kafka_server_fetcherstats_bytes_total{broker="b2:9092",clientId="f"}',
        'kafka_server_fetcherstats_bytespersec{broker="b2:9092",clientid="f"}',
    ),
    (
        CONTROLLER,
        "KafkaController",
        "ActiveControllerCount",
        MetricKind.GAUGE,
        {},
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_activecontrollercount",
    ),
    (
        CONTROLLER,
        "ControllerStats",
        "UncleanLeaderElectionsPerSec",
        MetricKind.COUNTER,
        {},
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_controller_controllerstats_uncleanleaderelectionspersec",
    ),
    (
        LOG,
        "LogCleanerManager",
        "max-dirty-percent",
        MetricKind.GAUGE,
        {},
        "kafka_log_logcleanermanager_max_dirty_percent",
        "kafka_log_logcleanermanager_max_dirty_percent",
    ),
    (
        LOG,
        "Log",
        "Size",
        MetricKind.GAUGE,
        {"topic": "a", "partition": "0"},
        'kafka_log_log_size{partition="0",topic="a"}',
        'kafka_log_log_size{partition="0",topic="a"}',
    ),
    (
        SERVER,
        SOCKETS,
        "connection-count",
        MetricKind.GAUGE,
        {"listener": "PLAINTEXT"},
        'kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}',
        'kafka_server_socketservermetrics_connection_count{listener="PLAINTEXT"}',
    ),
    (
        SERVER,
        SOCKETS,
        "connections",
        MetricKind.GAUGE,
        SOFTWARE,
        'kafka_server_socket_server_metrics_connections_software{clientSoftwareName="librdkafka",clientSoftwareVersion="2",listener="PLAINTEXT"}',
        'kafka_server_socketservermetrics_connections{client_software_name="librdkafka",client_software_version="2",listener="PLAINTEXT"}',
    ),
    (
        SERVER,
        RAFT,
        "current-state",
        MetricKind.INFO,
        {"current_state": "leader"},
        'kafka_server_raftmetrics_current_state{current_state="leader"}',
        None,
    ),
    (SERVER, RAFT, "high-watermark", MetricKind.GAUGE, {}, "kafka_server_raftmetrics_high_watermark", None),
    (
        SERVER,
        "raft-channel-metrics",
        "request-total",
        MetricKind.GAUGE,
        {},
        "kafka_server_raftchannelmetrics_request_total",
        None,
    ),
    (
        SERVER,
        "broker-metadata-metrics",
        "last-applied-record-lag-ms",
        MetricKind.GAUGE,
        {},
        "kafka_server_brokermetadatametrics_last_applied_record_lag_ms",
        None,
    ),
]
"""Kafka's metrics and their expected names. The name None means that Confluent's rules omit the metric, so this project
may choose its name."""


@pytest.mark.parametrize(("group", "type_", "name", "kind", "tags", "strimzi", "confluent"), ROWS)
def test_a_metric_has_the_name_and_labels_that_the_public_exporter_rules_give_it(
    group: str, type_: str, name: str, kind: MetricKind, tags: dict[str, str], strimzi: str, confluent: str | None
) -> None:
    metrics = Metrics()
    value = Histogram() if kind is MetricKind.HISTOGRAM else 1
    metrics.enumerate(group, type_, name, kind, lambda: [(tags, value)])
    for family, expected in (("strimzi", strimzi), ("confluent", confluent)):
        text = "".join(text_in_steps(metrics, partitions=False, names=NAMES[family]))
        assert expected is None or f"\n{expected} " in text


def test_a_metric_that_dashboards_read_as_a_fraction_is_never_exported_in_nanoseconds() -> None:
    metrics = Metrics()
    metrics.counter(SERVER, "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", lambda: 5e9)
    for family in ("strimzi", "confluent"):
        assert "".join(text_in_steps(metrics, partitions=False, names=NAMES[family])) == ""
