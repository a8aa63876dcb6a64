"""Comparisons in which clusters start or lose a broker: the time of a start, and the cost of a broker's death.

No other cluster runs meanwhile. Our cluster and Kafka's have their default timeouts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from confluent_kafka import Producer

from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from kraft.sim.chaos.apache.kafka_nodes import KafkaNodes
from tests.bench import members
from tests.bench.contest import KAFKA, Figures, Goal, Results, Row
from tests.bench.kafka import free_port, installed, kafka_running, wait_serving
from tests.stages.started_clusters import LocalCluster, held_folder, launched, running

LESS = False
GAP_TOPIC = "gap"
PER_SECOND = 200
KILL_AFTER_S = 2.0
ACKNOWLEDGED_AFTER_S = 3.0
GAP_SECONDS_MAX = 40.0
VALUE = bytes(1000)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Rows that are measured together on one cluster, ours or Kafka's."""

    key: str
    rows: tuple[Row, ...]
    measure: Callable[[str], Figures]


def _start(side: str) -> Figures:
    return {
        "start-three": _started_s(side, is_single=False),
        "start-one": _started_s(side, is_single=True),
    }


def _started_s(side: str, *, is_single: bool) -> float:
    """Return the time from the start command until every broker reports all brokers. Kafka's folders are formatted
    before the start command."""
    brokers = 1 if is_single else 3
    port = free_port()
    bootstrap = ",".join(f"127.0.0.1:{port + index}" for index in range(brokers))
    if side == KAFKA:
        with held_folder("kafka-") as (folder, leash):
            layout = KafkaLayout.plain(port, is_single=is_single)
            nodes = KafkaNodes(folder, layout, {}, libraries=installed(), leash=leash)
            try:
                nodes.format()
                return _timed(nodes.start_all, bootstrap, brokers)
            finally:
                nodes.close()
    with launched(["--port", str(port), *(["--combined", "1"] if is_single else [])]) as (_, up):
        return _timed(up, bootstrap, brokers)


def _timed(start: Callable[[], None], bootstrap: str, brokers: int) -> float:
    began = time.monotonic()
    start()
    wait_serving(bootstrap, brokers)
    return time.monotonic() - began


def _gap(side: str) -> Figures:
    with kafka_running(is_single=False) if side == KAFKA else running() as cluster:
        cluster.create_topic(GAP_TOPIC, partitions=1, replication_factor=3)
        cluster.wait_in_sync(GAP_TOPIC, 3)
        return {"failover-gap": 1000 * max(after - before for before, after in pairwise(_acknowledged(cluster)))}


def _acknowledged(cluster: LocalCluster) -> list[float]:
    """Kill the partition's leader during a steady stream of records. Return the time at which each record was
    acknowledged. The stream ends three seconds after acknowledgements resume.

    The producer does not linger. If its only connection ends while no request is in flight, librdkafka 2.16 marks its
    metadata as outdated, but requests new metadata only at its next timer of 1 s."""
    times: list[float] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        times.append(time.monotonic())

    leader, began, killed = cluster.leader(GAP_TOPIC), time.monotonic(), None
    sent = 0
    while killed is None or len([at for at in times[-600:] if at > killed]) < ACKNOWLEDGED_AFTER_S * PER_SECOND:
        now = time.monotonic()
        if now - began > GAP_SECONDS_MAX:
            raise TimeoutError(f"{len(times)} records were acknowledged within {GAP_SECONDS_MAX:.0f} s")
        if killed is None and now - began > KILL_AFTER_S:
            cluster.kill(leader)
            killed = now
        if now >= began + sent / PER_SECOND:
            producer.produce(GAP_TOPIC, VALUE, on_delivery=on_delivery)
            sent += 1
        producer.poll(0.001)
    producer.flush(10)
    return times


def _members(side: str) -> Figures:
    with kafka_running(is_single=False) if side == KAFKA else running() as cluster:
        return members.measure(cluster)


LIFECYCLES = (
    Lifecycle(
        "start",
        (
            Row("start-three", "start of 3 controllers and 3 brokers", "s", LESS),
            Row("start-one", "start of one node", "s", LESS),
        ),
        _start,
    ),
    Lifecycle(
        "failover",
        (Row("failover-gap", "kill -9 of a leader, RF 3: longest gap in acknowledgements", "ms", LESS, Goal(500)),),
        _gap,
    ),
    Lifecycle(
        "members",
        (
            Row("members-join", "200 members join a consumer group: until stable", "s", LESS, Goal(0.5, of_kafka=True)),
            Row(
                "members-killed",
                "its coordinator dies, 20 join: until stable",
                "s",
                LESS,
                Goal(0.5, of_kafka=True),
            ),
        ),
        _members,
    ),
)


def play(lifecycles: Iterable[Lifecycle], names: list[str], rounds: int, results: Results) -> None:
    """Measure one cluster after the other, in reverse order in every second round. Failures are recorded in the
    results."""
    for lifecycle in lifecycles:
        for index in range(rounds):
            for side in names if index % 2 == 0 else reversed(names):
                with results.noting_failure(f"{lifecycle.key}, {side}", lifecycle.rows):
                    figures = lifecycle.measure(side)
                    results.add(lifecycle.rows, side, figures)
                    print(f"round {index + 1}: {side}: {figures}", file=sys.stderr, flush=True)
