"""The lines of the quick benchmark: figures of our brokers and of bare loops, each with its target and its alarm value.

The bare loop of a line runs right before and right after the line, because the machine's speed varies. Targets and
alarm values are part of the design; `REFERENCE` has the bare loop's figures for which the alarm values were set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from tests.bench import bare, chain, clients, frames
from tests.bench.table import Line, percentile
from tests.stages.started_clusters import LocalCluster, running

PARTITIONS = 6
KILOBYTE = 1000
LESS_IS_BETTER = False
CHAIN_MORE = 4
"""Factor by which a bare chain gets more pipelined requests; it would otherwise finish in a tenth of a second."""
LARGE_ROUNDS = 7
"""Number of short rounds in which requests of 1 MB are measured."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Reference:
    """The bare loops' figures on the machine for which the alarm values were set. Where none was recorded, the figure
    is the best one of machines of its kind."""

    append: bare.Bulk
    replicate: bare.Bulk
    sendfile: bare.Bulk
    pipelined: dict[int, float]
    many: dict[int, float]
    p50_ms: float
    p99_ms: float
    cpu_us: float


REFERENCE = Reference(
    append=bare.Bulk(3_190, 0.29),
    replicate=bare.Bulk(1_230, 1.35),
    sendfile=bare.Bulk(2_890, 0.27),
    pipelined={1: 1_500_000, 3: 620_000},
    many={1: 47_000, 3: 43_000},
    p50_ms=0.07,
    p99_ms=0.135,
    cpu_us=75,
)


@dataclass(frozen=True, slots=True)
class Bulk:
    """A benchmark of throughput: how the data are produced, the loop of plain system calls that it is compared with,
    and the values for target and alarm."""

    replicas: int
    acks: str
    loop: Callable[[int], bare.Bulk]
    reference: bare.Bulk
    target: bare.Bulk
    alarm: bare.Bulk


ONE_REPLICA = Bulk(
    1, "1", bare.receive_check_append, REFERENCE.append, target=bare.Bulk(800, 0.5), alarm=bare.Bulk(500, 0.8)
)
THREE_REPLICAS = Bulk(
    3, "all", bare.replicate, REFERENCE.replicate, target=bare.Bulk(400, 2.4), alarm=bare.Bulk(300, 3.5)
)


def _first(megabytes: int) -> int:
    """Return the data that is produced before this bulk line is measured."""
    return max(1, megabytes // 7)


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amount of work in each line."""

    megabytes: int = 700
    replicated_megabytes: int = 400
    pipelined: int = 120_000
    many: int = 60_000
    alone: int = 3_000
    large: int = 1_000
    rated_s: float = 8

    def scaled(self, share: float) -> Amounts:
        """Return smaller amounts of work, for a trial run."""
        return Amounts(
            max(20, int(self.megabytes * share)),
            max(20, int(self.replicated_megabytes * share)),
            max(1_000, int(self.pipelined * share)),
            max(1_000, int(self.many * share)),
            max(300, int(self.alone * share)),
            max(40, int(self.large * share)),
            max(0.5, self.rated_s * share),
        )


@dataclass(frozen=True, slots=True)
class Alone:
    """Figures of a run with one request in flight: the seconds of each request, and CPU microseconds per request."""

    p50_ms: float
    p99_ms: float
    cpu_us: float


class Chains:
    """Two bare leaders, one without followers and one with two. They are idle until they get requests."""

    def __init__(self, stack: ExitStack) -> None:
        self._frame = frames.produce_frame("bare", bytes(100), acks=-1)
        size, answer = len(self._frame.request), self._frame.answer
        self._running = {rf: stack.enter_context(chain.running(size, answer, followers=rf - 1)) for rf in (1, 3)}
        for one in self._running.values():
            frames.run(one.address, self._frame, connections=1, window=50, total=5_000)

    def rate(self, replicas: int, *, connections: int, window: int, total: int) -> float:
        address = self._running[replicas].address
        return frames.run(address, self._frame, connections=connections, window=window, total=total).requests_per_second

    def alone(self, total: int) -> Alone:
        one = self._running[3]
        return alone(one.cpu_seconds, one.address, self._frame, total)


def alone(cpu_seconds: Callable[[], float], address: tuple[str, int], frame: frames.Frame, total: int) -> Alone:
    """Send one request at a time in a loop, and return the figures."""
    cpu_s = cpu_seconds()
    times = [1000 * one for one in frames.run(address, frame, connections=1, window=1, total=total).latencies]
    return Alone(percentile(times, 0.5), percentile(times, 0.99), 1e6 * (cpu_seconds() - cpu_s) / total)


def between(loop: Callable[[], float], measure: Callable[[], float]) -> tuple[float, float]:
    """Run `measure` between two runs of a bare loop. Return the figure of `measure`, and the mean of the loop's
    figures."""
    before = loop()
    measured = measure()
    return measured, (before + loop()) / 2


def between_chains(chains: Chains, total: int, measure: Callable[[], Result]) -> tuple[Result, Alone]:
    """Run `measure` between two runs of the bare chain, each with one request in flight."""
    before = chains.alone(total)
    measured = measure()
    after = chains.alone(total)
    return measured, Alone(
        (before.p50_ms + after.p50_ms) / 2, (before.p99_ms + after.p99_ms) / 2, (before.cpu_us + after.cpu_us) / 2
    )


class Own:
    """Measures all lines in one round."""

    def __init__(self, amounts: Amounts, chains: Chains) -> None:
        self._amounts = amounts
        self._chains = chains

    def lines(self) -> Iterator[Line]:
        with running(combined=1) as cluster:
            yield from self._bulk(cluster, ONE_REPLICA, self._amounts.megabytes)
            yield self._consumed(cluster, self._amounts.megabytes + _first(self._amounts.megabytes))
            yield from self._requests(cluster, 1, targets=(60_000, 50_000), alarms=(35_000, 30_000))
            yield self._large(cluster)
        with running() as cluster:
            yield from self._bulk(cluster, THREE_REPLICAS, self._amounts.replicated_megabytes)
            yield from self._requests(cluster, 3, targets=(50_000, 35_000), alarms=(25_000, 20_000))
            yield from self._prebuilt_alone(cluster)
            yield from self._client_alone(cluster)
            yield from self._rated(cluster)

    def _bulk(self, cluster: LocalCluster, kind: Bulk, megabytes: int) -> Iterator[Line]:
        """Produce records of 1 KB with the client's defaults."""
        cluster.create_topic("bulk", partitions=PARTITIONS, replication_factor=kind.replicas)

        def produce(amount: int) -> bare.Bulk:
            return clients.produce(
                cluster, "bulk", size=KILOBYTE, megabytes=amount, acks=kind.acks, partitions=PARTITIONS
            )

        produce(_first(megabytes))
        bulk, beside = bare.beside(kind.loop, megabytes, lambda: produce(megabytes), copies=kind.replicas)
        name = f"RF {kind.replicas} acks={kind.acks}, 1 KB"
        yield Line(
            f"{name}, client default",
            "MB/s",
            bulk.megabytes_per_second,
            kind.target.megabytes_per_second,
            kind.alarm.megabytes_per_second,
            bare=beside.megabytes_per_second,
            reference=kind.reference.megabytes_per_second,
        )
        yield Line(
            f"{name}: broker CPU",
            "s/GB",
            bulk.cpu_seconds_per_gigabyte,
            kind.target.cpu_seconds_per_gigabyte,
            kind.alarm.cpu_seconds_per_gigabyte,
            LESS_IS_BETTER,
            beside.cpu_seconds_per_gigabyte,
            kind.reference.cpu_seconds_per_gigabyte,
        )

    def _consumed(self, cluster: LocalCluster, megabytes: int) -> Line:
        def consume() -> bare.Bulk:
            return clients.consume(cluster, "bulk", partitions=PARTITIONS, size=KILOBYTE)

        bulk, beside = bare.beside(bare.sendfile, megabytes, consume)
        return Line(
            "consumer, RF 1, 1 KB",
            "MB/s",
            bulk.megabytes_per_second,
            1000,
            700,
            bare=beside.megabytes_per_second,
            reference=REFERENCE.sendfile.megabytes_per_second,
        )

    def _requests(
        self, cluster: LocalCluster, replicas: int, *, targets: tuple[float, float], alarms: tuple[float, float]
    ) -> Iterator[Line]:
        """Send prebuilt frames: pipelined on one connection, and one in flight on each of 64 connections."""
        topic = f"requests-rf{replicas}"
        cluster.create_topic(topic, partitions=1, replication_factor=replicas)
        cluster.wait_in_sync(topic, replicas)
        address = cluster.leader_address(topic)
        frame = frames.produce_frame(topic, bytes(100), acks=1 if replicas == 1 else -1)
        frames.run(address, frame, connections=1, window=50, total=5_000)
        shapes = (
            ("1 connection, 200 in flight", 1, 200, self._amounts.pipelined, REFERENCE.pipelined),
            ("64 connections, 1 in flight", 64, 1, self._amounts.many, REFERENCE.many),
        )
        for (shape, connections, window, total, limits), target, alarm in zip(shapes, targets, alarms, strict=True):

            def loop(connections: int = connections, window: int = window, total: int = total) -> float:
                more = CHAIN_MORE if window > 1 else 1
                return self._chains.rate(replicas, connections=connections, window=window, total=more * total)

            def measure(connections: int = connections, window: int = window, total: int = total) -> float:
                return frames.run(
                    address, frame, connections=connections, window=window, total=total
                ).requests_per_second

            rate, beside = between(loop, measure)
            name = f"RF {replicas}, 100 B requests, {shape}"
            yield Line(name, "/s", rate, target, alarm, bare=beside, reference=limits[replicas])

    def _large(self, cluster: LocalCluster) -> Line:
        """Send requests of 1 MB, and divide the rate by that of the bare loop. Because the figure is a ratio already,
        its alarm value is not scaled. The figure is the median of short rounds: a round in which the host must provide
        memory pages is several times slower."""
        cluster.create_topic("large", partitions=1, replication_factor=1)
        frame = frames.produce_frame("large", bytes(1_000_000), acks=1)
        address = cluster.leader_address("large")
        total = max(10, self._amounts.large // LARGE_ROUNDS)
        frames.run(address, frame, connections=1, window=4, total=total)

        def measure() -> bare.Bulk:
            rate = frames.run(address, frame, connections=1, window=4, total=total).requests_per_second
            return bare.Bulk(rate * len(frame.request) / 1e6, 0)

        rounds = (bare.beside(bare.receive_check_append, total, measure) for _ in range(LARGE_ROUNDS))
        share = median(100 * bulk.megabytes_per_second / loop.megabytes_per_second for bulk, loop in rounds)
        return Line("RF 1, 1 MB requests, of the bare loop", "%", share, 85, 70)

    def _prebuilt_alone(self, cluster: LocalCluster) -> Iterator[Line]:
        """Measure prebuilt requests, one in flight at a time, without the cost of a client library."""
        cluster.create_topic("alone", partitions=1, replication_factor=3)
        cluster.wait_in_sync("alone", 3)
        frame, address = frames.produce_frame("alone", bytes(100), acks=-1), cluster.leader_address("alone")
        frames.run(address, frame, connections=1, window=1, total=500)
        total = self._amounts.alone
        ours, beside = between_chains(self._chains, total, lambda: alone(cluster.cpu_seconds, address, frame, total))
        name = "RF 3, 100 B requests, one in flight"
        yield Line(f"{name}: p50", "ms", ours.p50_ms, None, None, LESS_IS_BETTER, beside.p50_ms)
        yield Line(f"{name}: p99", "ms", ours.p99_ms, None, None, LESS_IS_BETTER, beside.p99_ms)
        yield Line(f"{name}: broker CPU", "us", ours.cpu_us, None, None, LESS_IS_BETTER, beside.cpu_us)

    def _client_alone(self, cluster: LocalCluster) -> Iterator[Line]:
        cluster.create_topic("single", partitions=1, replication_factor=3)
        cluster.wait_in_sync("single", 3)
        total = self._amounts.alone
        seconds, beside = between_chains(
            self._chains, total, lambda: clients.one_in_flight(cluster, "single", size=KILOBYTE, count=total)
        )
        for share, target, alarm, bare_ms, reference_ms in (
            (0.5, 0.30, 0.45, beside.p50_ms, REFERENCE.p50_ms),
            (0.99, 0.6, 2, beside.p99_ms, REFERENCE.p99_ms),
        ):
            figure = 1000 * percentile(seconds, share)
            name = f"RF 3, 1 KB, one in flight: p{100 * share:.0f}"
            yield Line(name, "ms", figure, target, alarm, LESS_IS_BETTER, bare_ms, reference_ms)

    def _rated(self, cluster: LocalCluster) -> Iterator[Line]:
        """Send 2,000 records a second, each in a separate request, to the topic of the lines measured before."""
        rated, beside = between_chains(
            self._chains,
            self._amounts.alone,
            lambda: clients.at_rate(
                cluster, "single", size=KILOBYTE, per_second=2000, duration_s=self._amounts.rated_s
            ),
        )
        p50, core = 1000 * percentile(rated.seconds, 0.5), 100 * rated.core_share
        yield Line(
            "RF 3, 2,000 a second: ack p50", "ms", p50, 0.35, 0.6, LESS_IS_BETTER, beside.p50_ms, REFERENCE.p50_ms
        )
        yield Line("RF 3, 2,000 a second: broker CPU", "% of a core", core, 60, None, LESS_IS_BETTER, beside.cpu_us / 5)


def one_round(amounts: Amounts) -> list[Line]:
    """Measure every line once."""
    with ExitStack() as stack:
        return list(Own(amounts, Chains(stack)).lines())
