"""Two clusters that run in turn, with the other one frozen, and the rounds of measurements on them.

The two clusters have the same settings, with which sessions and ISR membership survive however long a cluster is
frozen. The controllers of a cluster hold a new election when it resumes, because their timeouts are the defaults. (With
longer timeouts, a quorum that is started on a busy machine may wait for a leader that has resigned.) So a cluster
counts as awake when it has accepted records for a new topic.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException

from tests.bench import frames
from tests.bench.contest import BARE, KAFKA, Contest, Results
from tests.bench.kafka import kafka_running, pause, resume, wait_serving
from tests.bench.own import Amounts
from tests.stages.started_clusters import LocalCluster, running

PATIENCE_MS = 3_600_000
PATIENT = tuple(f"{key}={PATIENCE_MS}" for key in ("broker.session.timeout.ms", "replica.lag.time.max.ms"))
ON_BOTH = (*PATIENT, "min.insync.replicas=1")
"""Settings of both clusters that are Kafka's defaults, but that `kraft up` uses only with --profile kafka."""
CANARY_REQUESTS = 200
SETTLE_S = 1.0
AWAKE_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two clusters. It is frozen except while its `awake` context is open."""

    name: str
    cluster: LocalCluster

    @contextmanager
    def awake(self) -> Iterator[LocalCluster]:
        """Let the cluster run within the `with` block. Before the block starts, the frozen cluster's pending writes are
        on disk, and this cluster has answered produce requests."""
        os.sync()
        resume(self.cluster.folder)
        try:
            self._wait_awake()
            yield self.cluster
        finally:
            pause(self.cluster.folder)

    def _wait_awake(self) -> None:
        wait_serving(self.cluster.bootstrap, len(self.cluster.broker_pids))
        deadline = time.monotonic() + AWAKE_SECONDS_MAX
        while True:
            try:
                self._fill_a_topic()
            except (KafkaException, frames.RequestRefused, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                break
        time.sleep(SETTLE_S)

    def _fill_a_topic(self) -> None:
        topic, replicas = f"awake-{secrets.token_hex(4)}", len(self.cluster.broker_pids)
        self.cluster.create_topic(topic, partitions=1, replication_factor=replicas)
        self.cluster.wait_in_sync(topic, replicas)
        frame = frames.produce_frame(topic, b"awake", acks=-1)
        frames.run(self.cluster.leader_address(topic), frame, connections=1, window=1, total=CANARY_REQUESTS)


@contextmanager
def both(names: Iterable[str], *, is_single: bool) -> Iterator[list[Side]]:
    """Start the named clusters one after the other, and freeze each."""
    sides = []
    with ExitStack() as stack:
        for name in names:
            cluster = stack.enter_context(_started(name, is_single))
            pause(cluster.folder)
            stack.callback(resume, cluster.folder)
            sides.append(Side(name, cluster))
        yield sides


def _started(name: str, is_single: bool) -> AbstractContextManager[LocalCluster]:
    if name == KAFKA:
        return kafka_running(is_single=is_single, settings=ON_BOTH)
    return running(combined=1 if is_single else 0, settings=ON_BOTH)


def play(contests: Iterable[Contest], sides: list[Side], amounts: Amounts, rounds: int, results: Results) -> None:
    """Run the rounds of every contest: the bare loop, one cluster, the other cluster; in reverse order in every second
    round. A failure is recorded in the results, and the next contest continues."""
    for contest in contests:
        with results.noting_failure(contest.key, contest.rows):
            _play_one(contest, sides, amounts, rounds, results)


def _play_one(contest: Contest, sides: list[Side], amounts: Amounts, rounds: int, results: Results) -> None:
    if contest.prepare is not None:
        for side in sides:
            with side.awake() as cluster:
                contest.prepare(cluster, amounts)
    for index in range(min(rounds, contest.rounds_max or rounds)):
        for side in sides if index % 2 == 0 else reversed(sides):
            with side.awake() as cluster:
                figures = contest.measure(cluster, amounts)
            results.add(contest.rows, side.name, figures)
            told = ", ".join(f"{key} {figure:,.4g}" for key, figure in figures.items())
            print(f"round {index + 1}: {side.name}: {told}", file=sys.stderr, flush=True)
            if contest.bare is not None:
                results.add(contest.rows, BARE, contest.bare(amounts))
