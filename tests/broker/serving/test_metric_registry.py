"""The metric registry: Kafka's names, cheap updates, output that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.serving.metrics import topics
from kraft.broker.serving.metrics.metric_registry import MetricKind, Metrics, ScanSteps
from kraft.broker.serving.metrics.naming import SUFFIXES
from kraft.broker.serving.metrics.text import HISTOGRAM_COST, LABELS_KEPT_MAX, LINES_PER_STEP, text_in_steps
from kraft.broker.serving.metrics.topics import TopicMetrics
from kraft.seam import InvariantError
from kraft.seam.measures import SAMPLES_KEPT, Histogram


def test_registering_a_metric_name_twice_returns_the_same_meter() -> None:
    metrics = Metrics()
    metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="a").mark(5)
    metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="a").count += 2
    metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="b").mark()
    assert metrics.value("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="a") == 7
    assert metrics.value("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="c") is None


def test_a_deleted_topics_metrics_are_forgotten_and_their_counts_stay_in_the_totals() -> None:
    metrics = Metrics()
    of_topics = topics.TopicMetrics(metrics)
    for topic in ("a", "b"):
        of_topics.of(topic).bytes_in.mark(5)
        of_topics.of(topic).messages_in.mark()
    assert 'topic="a"' in metrics.exposition().decode()
    of_topics.forget("a")
    assert 'topic="a"' not in metrics.exposition().decode()
    assert {name.tags for name, _ in metrics.readings()} == {(), (("topic", "b"),)}
    assert metrics.value("kafka.server", "BrokerTopicMetrics", "BytesInPerSec") == 10
    assert not any((("topic", "a"),) in family.starts for family in metrics._families.values())


def test_prometheus_reads_meters_gauges_and_histograms_under_one_name_each() -> None:
    metrics = Metrics()
    metrics.meter("kafka.server", "BrokerTopicMetrics", "MessagesInPerSec", topic="a").mark(3)
    metrics.meter("kafka.server", "BrokerTopicMetrics", "MessagesInPerSec", topic="b").mark(4)
    metrics.gauge("kafka.server", "ReplicaManager", "PartitionCount", lambda: 12)
    metrics.histogram("kafka.network", "RequestMetrics", "TotalTimeMs", request="Fetch").update(2.5)
    text = metrics.exposition().decode()
    assert 'kafka_server_brokertopicmetrics_messagesinpersec_total{topic="b"} 4.0' in text
    assert "kafka_server_replicamanager_partitioncount 12.0" in text
    assert 'kafka_network_requestmetrics_totaltimems_sum{request="Fetch"} 2.5' in text
    assert text.count("# TYPE kafka_server_brokertopicmetrics_messagesinpersec_total") == 1


def test_a_metric_total_over_topics_is_a_counter_even_before_a_topic_has_counted() -> None:
    metrics = Metrics()
    topics = TopicMetrics(metrics)
    total = "kafka_server_brokertopicmetrics_bytesinpersec_total"
    before = metrics.exposition().decode()
    topics.of("a").bytes_in.mark(5)
    after = metrics.exposition().decode()
    for text, lines in ((before, [f"{total} 0.0"]), (after, [f"{total} 5.0", f'{total}{{topic="a"}} 5.0'])):
        assert f"# TYPE {total} counter" in text
        assert sorted(line for line in text.splitlines() if line.startswith(total)) == lines


def test_prometheus_reads_the_percentiles_of_a_histogram_with_the_label_quantile() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("kafka.network", "RequestMetrics", "TotalTimeMs", request="Fetch")
    for value in range(500):
        histogram.update(value)
    text = metrics.exposition().decode()
    for quantile, value in (("0.50", 250), ("0.99", 495), ("0.999", 499)):
        assert f'kafka_network_requestmetrics_totaltimems{{request="Fetch",quantile="{quantile}"}} {value}.0' in text
    assert 'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 500.0' in text


def test_a_histogram_keeps_only_the_newest_samples() -> None:
    histogram = Histogram()
    for value in range(SAMPLES_KEPT + 100):
        histogram.update(value)
    assert histogram.count == SAMPLES_KEPT + 100
    assert min(histogram.samples) == 100
    assert histogram.percentile(0.5) == 100 + SAMPLES_KEPT // 2
    assert histogram.largest == SAMPLES_KEPT + 99


def test_metric_names_have_the_form_of_kafkas_mbean_names() -> None:
    metrics = Metrics()
    metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="a")
    ((name, _),) = metrics.readings()
    assert name.mbean == "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=a"


def test_gauges_with_a_shared_scan_scan_once_per_reading() -> None:
    metrics, looks = Metrics(), 0

    def look() -> ScanSteps:
        nonlocal looks
        looks += 1
        yield
        return {"LeaderCount": looks, "PartitionCount": 10 * looks}

    metrics.together("kafka.server", "ReplicaManager", ("LeaderCount", "PartitionCount"), look)
    for number in (1, 2):
        assert [value for _, value in metrics.readings()] == [number, 10 * number]
    assert b"kafka_server_replicamanager_partitioncount 30.0" in metrics.exposition()


def test_each_step_of_a_scan_yields_an_empty_piece_of_the_scrape_text() -> None:
    metrics, at = Metrics(), 0

    def look() -> ScanSteps:
        nonlocal at
        while at < 3:
            at += 1
            yield
        return {"LeaderCount": at}

    metrics.together("kafka.server", "ReplicaManager", ("LeaderCount",), look)
    steps = text_in_steps(metrics, partitions=False)
    assert [(next(steps), at) for _ in range(3)] == [("", 1), ("", 2), ("", 3)]
    assert next(steps).endswith("kafka_server_replicamanager_leadercount 3.0\n")
    assert next(steps, None) is None


def test_no_piece_of_the_scrape_text_has_more_lines_than_a_step() -> None:
    metrics = Metrics()
    for number in range(2 * LINES_PER_STEP):
        metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic=f"t{number}")
        metrics.gauge("kafka.server", "ReplicaManager", f"Gauge{number}", lambda: 1)
    for number in range(LINES_PER_STEP // HISTOGRAM_COST + 1):
        metrics.histogram("kafka.network", "RequestMetrics", "TotalTimeMs", request=str(number))
    pieces = list(text_in_steps(metrics, partitions=False))
    samples = [sum(not line.startswith("#") for line in piece.splitlines()) for piece in pieces]
    assert max(samples) <= LINES_PER_STEP
    assert len(pieces) == 6
    assert "".join(pieces).encode() == metrics.exposition()


def test_metrics_may_be_added_and_removed_between_two_pieces_of_the_scrape_text() -> None:
    metrics = Metrics()
    for number in range(2 * LINES_PER_STEP):
        metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic=f"t{number}")
    steps = text_in_steps(metrics, partitions=False)
    next(steps)
    last = f"t{2 * LINES_PER_STEP - 1}"
    metrics.remove("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic=last)
    metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="new")
    assert f'"{last}"' not in "".join(steps)


def test_a_topic_removed_while_the_totals_are_summed_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PIECES_PER_STEP", 1)
    metrics = Metrics()
    kept = topics.TopicMetrics(metrics)
    for name in ("a", "b", "c"):
        kept.of(name).messages_in.count += 10
    steps = text_in_steps(metrics, partitions=False)
    next(steps)
    kept.forget("c")  # not scanned yet
    kept.forget("a")
    assert "kafka_server_brokertopicmetrics_messagesinpersec_total 30.0\n" in "".join(steps)


def test_registering_a_metric_name_with_another_kind_raises() -> None:
    metrics = Metrics()
    metrics.gauge("kafka.log", "Log", "Size", lambda: 1)
    with pytest.raises(InvariantError, match="name=Size is a gauge, not a counter"):
        metrics.meter("kafka.log", "Log", "Size")


def test_metrics_per_partition_are_shown_only_on_request() -> None:
    metrics = Metrics()
    members = [({"topic": "a", "partition": "0"}, 7)]
    metrics.enumerate("kafka.log", "Log", "Size", MetricKind.GAUGE, lambda: members, is_on_demand=True)
    assert b"kafka_log_log_size" not in metrics.exposition()
    assert b'kafka_log_log_size{partition="0",topic="a"} 7.0' in metrics.exposition(partitions=True)


def test_an_info_metric_shows_its_text_as_a_label() -> None:
    metrics = Metrics()
    state = [({"current_state": "leader"}, 1)]
    metrics.enumerate("kafka.server", "raft-metrics", "current-state", MetricKind.INFO, lambda: state)
    assert b'kafka_server_raft_metrics_current_state_info{current_state="leader"} 1.0' in metrics.exposition()


def collected(metrics: Metrics) -> Iterator[Metric]:
    """Return one prometheus-client family per name that has members."""
    for _ in metrics.scan_in_steps():
        pass
    for family in metrics.families_shown(partitions=False):
        name = family.prometheus
        shown = Metric(name, family.name.mbean, family.kind.value)
        for tags, value in family.members():
            labels = dict(tags)
            if isinstance(value, Histogram):
                for share, percentile in value.percentiles().items():
                    shown.add_sample(name, labels | {"quantile": share}, percentile)
                shown.add_sample(name + "_count", labels, value.count)
                shown.add_sample(name + "_sum", labels, value.total)
            else:
                shown.add_sample(name + SUFFIXES.get(family.kind.value, ""), labels, value)
        if shown.samples:
            yield shown


def samples_of(families: Iterable[Metric]) -> dict[tuple[object, ...], float]:
    return {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}


def test_prometheus_client_reads_the_registered_samples_from_the_scrape_text() -> None:
    metrics = Metrics()
    metrics.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic='a"b\\c\nd').mark(3)
    metrics.gauge("kafka.server", "ReplicaManager", "LeaderCount", lambda: float("inf"))
    metrics.gauge("kafka.server", "raft-metrics", "commit-latency-avg", lambda: 1e-9)
    metrics.histogram("kafka.network", "RequestMetrics", "TotalTimeMs", request="Fetch").update(2.5)
    metrics.enumerate("kafka.server", "KafkaServer", "ClusterId", MetricKind.INFO, lambda: [({"cluster_id": "x"}, 1)])
    for _ in range(2):  # the second time, names and labels come from the stored texts
        parsed = list(text_string_to_metric_families(metrics.exposition().decode()))
        assert samples_of(parsed) == samples_of(collected(metrics))
        types = {one.name: one.type for one in parsed}
        assert types["kafka_server_brokertopicmetrics_bytesinpersec"] == "counter"
        assert types["kafka_network_requestmetrics_totaltimems"] == "summary"


def test_the_text_of_client_chosen_labels_is_cached_only_up_to_a_limit() -> None:
    metrics = Metrics()
    for number in range(LABELS_KEPT_MAX + 10):
        metrics.gauge("kafka.server", "socket-server-metrics", "connections", lambda: 1, client=str(number))
    metrics.exposition()
    (family,) = metrics._families.values()
    assert 0 < len(family.starts) <= LABELS_KEPT_MAX
