"""The comparisons with Apache Kafka on clusters that run through all rounds: throughput, requests, latency, curves."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack

from tests.bench import bare, clients, cold, frames, java_tools, metadata
from tests.bench.contest import Contest, Figures, Goal, Row
from tests.bench.own import KILOBYTE, PARTITIONS, Alone, Amounts, Chains
from tests.bench.share_groups import share_consumers
from tests.bench.table import percentile
from tests.bench.transactional import load
from tests.stages.started_clusters import LocalCluster

LESS = False
"""The value of `Row.more_is_better` for figures of which the lower one is better."""
SMALL_BYTES = 100
SMALL_SHARE = 5
"""Factor by which fewer small records are sent, because they take the client longer."""
WARM_BATCHES = {"batch.size": 131_072, "linger.ms": 5}
WARM_MEGABYTES, WARM_SMALL_MEGABYTES = 2_000, 400
READ_TOPIC = "read"
RATE = 2_000
PARTITION_CURVE = (1, 10, 100, 1_000)
CONNECTION_CURVE = (1, 8, 64, 250, 1_000)
CURVE_SHARE = 4
SHARE_CONSUMERS = (1, 3)

Amount = Callable[[Amounts], int]


def replicas_of(cluster: LocalCluster) -> int:
    """Return the cluster's number of brokers, which is the replication factor of the topics."""
    return len(cluster.broker_pids)


def acks_of(cluster: LocalCluster) -> str:
    return "all" if replicas_of(cluster) > 1 else "1"


def fresh_topic(cluster: LocalCluster, *, partitions: int) -> str:
    """Create a topic with replicas on all brokers, and wait until it has leaders and is in sync."""
    name = f"bench-{secrets.token_hex(4)}"
    cluster.create_topic(name, partitions=partitions, replication_factor=replicas_of(cluster))
    cluster.wait_in_sync(name, replicas_of(cluster))
    return name


def warm(cluster: LocalCluster, amounts: Amounts) -> None:
    """Run the work that a new JVM needs before its figures are meaningful: large batches, small records, single
    requests."""
    share = amounts.megabytes / Amounts().megabytes
    for size, megabytes in ((KILOBYTE, WARM_MEGABYTES), (SMALL_BYTES, WARM_SMALL_MEGABYTES)):
        clients.produce(
            cluster,
            fresh_topic(cluster, partitions=PARTITIONS),
            size=size,
            megabytes=max(5, int(megabytes * share)),
            acks=acks_of(cluster),
            partitions=PARTITIONS,
            settings=WARM_BATCHES,
        )
    for connections, window, total in ((1, 200, amounts.pipelined // 4), (64, 1, amounts.many), (1, 1, amounts.alone)):
        _request_rate(cluster, connections, window, total)


# throughput


def _bulk_figures(key: str, bulk: bare.Bulk) -> Figures:
    return {key: bulk.megabytes_per_second, f"{key}-cpu": bulk.cpu_seconds_per_gigabyte}


def _bulk_rows(key: str, name: str, rate: Goal | None, cpu: Goal | None) -> tuple[Row, ...]:
    return (Row(key, name, "MB/s", goal=rate), Row(f"{key}-cpu", f"{name}: broker CPU", "s/GB", LESS, cpu))


def _replicated(amounts: Amounts) -> int:
    return amounts.replicated_megabytes


def _small(amounts: Amounts) -> int:
    return max(5, amounts.replicated_megabytes // SMALL_SHARE)


def _whole(amounts: Amounts) -> int:
    return amounts.megabytes


def _produce(key: str, size: int, amount: Amount) -> Callable[[LocalCluster, Amounts], Figures]:
    """Produce with librdkafka's defaults. Memory is touched before, as before the bare loop."""

    def measure(cluster: LocalCluster, amounts: Amounts) -> Figures:
        topic, megabytes, acks = fresh_topic(cluster, partitions=PARTITIONS), amount(amounts), acks_of(cluster)
        bare.touch_memory(11 * megabytes * replicas_of(cluster) // 10)
        bulk = clients.produce(cluster, topic, size=size, megabytes=megabytes, acks=acks, partitions=PARTITIONS)
        return _bulk_figures(key, bulk)

    return measure


def _bare(key: str, loop: Callable[[int], bare.Bulk], amount: Amount, copies: int) -> Callable[[Amounts], Figures]:
    def measure(amounts: Amounts) -> Figures:
        bare.touch_memory(11 * amount(amounts) * copies // 10)
        return _bulk_figures(key, loop(amount(amounts)))

    return measure


def _java_produce(cluster: LocalCluster, amounts: Amounts) -> Figures:
    topic, megabytes = fresh_topic(cluster, partitions=PARTITIONS), amounts.replicated_megabytes
    bare.touch_memory(11 * megabytes * replicas_of(cluster) // 10)
    bulk = java_tools.produce(cluster, topic, size=KILOBYTE, megabytes=megabytes, acks=acks_of(cluster))
    return _bulk_figures("java-produce", bulk)


def _transactions_contest(key: str, name: str, commits: load.Commits) -> Contest:
    """Write transactions with the Java client: for a fixed time if commits are timed, else a fixed amount of data. One
    more run warms each cluster, because `warm` has no transactions."""

    def measure(cluster: LocalCluster, amounts: Amounts) -> Figures:
        topic = fresh_topic(cluster, partitions=PARTITIONS)
        bare.touch_memory(11 * amounts.replicated_megabytes * replicas_of(cluster) // 10)
        found = load.write(
            cluster,
            topic,
            partitions=PARTITIONS,
            size=KILOBYTE,
            commits=commits,
            megabytes=load.UNBOUNDED if commits.are_timed else amounts.replicated_megabytes,
            seconds=amounts.rated_s if commits.are_timed else load.SECONDS_MAX,
        )
        times = {f"{key}-p50": found.commit_p50_ms, f"{key}-p99": found.commit_p99_ms}
        return _bulk_figures(key, found.bulk) | times

    def warm_up(cluster: LocalCluster, amounts: Amounts) -> None:
        measure(cluster, amounts)

    rows = _bulk_rows(key, f"{name}, RF 3, 1 KB, Java", None, None)
    rows += tuple(Row(f"{key}-{one}", f"{name}: commit {one}", "ms", LESS) for one in ("p50", "p99"))
    return Contest(key, rows, measure, prepare=warm_up)


def _prepare_reads(cluster: LocalCluster, amounts: Amounts) -> None:
    cluster.create_topic(READ_TOPIC, partitions=PARTITIONS, replication_factor=replicas_of(cluster))
    acks, megabytes = acks_of(cluster), amounts.megabytes
    clients.produce(cluster, READ_TOPIC, size=KILOBYTE, megabytes=megabytes, acks=acks, partitions=PARTITIONS)


def _consume(cluster: LocalCluster, amounts: Amounts) -> Figures:
    """Consume the same records twice: with librdkafka by assignment, and with Java as the only member of a group."""
    suffix = f"rf{replicas_of(cluster)}"
    bare.touch_memory(11 * amounts.megabytes // 10)
    ours = clients.consume(cluster, READ_TOPIC, partitions=PARTITIONS, size=KILOBYTE)
    bare.touch_memory(11 * amounts.megabytes // 10)
    java = java_tools.consume(cluster, READ_TOPIC, size=KILOBYTE, megabytes=amounts.megabytes)
    return _bulk_figures(f"consume-{suffix}", ours) | _bulk_figures(f"java-consume-{suffix}", java)


def _consume_contest(replicas: int) -> Contest:
    key, rate, cpu = f"consume-rf{replicas}", Goal(1.0, of_kafka=True), Goal(0.8, of_kafka=True)
    rows = _bulk_rows(key, f"consume RF {replicas}, 1 KB, librdkafka", rate, cpu)
    rows += _bulk_rows(f"java-{key}", f"consume RF {replicas}, 1 KB, Java", rate, cpu)
    return Contest(key, rows, _consume, _prepare_reads, _bare(key, bare.sendfile, _whole, 1))


def _share_contest() -> Contest:
    """Consume the same records in share groups of one and of three Java consumers. One more run warms each cluster,
    because `warm` has no share groups."""
    topic = "share-read"

    def prepare(cluster: LocalCluster, amounts: Amounts) -> None:
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=replicas_of(cluster))
        acks, megabytes = acks_of(cluster), amounts.megabytes
        clients.produce(cluster, topic, size=KILOBYTE, megabytes=megabytes, acks=acks, partitions=PARTITIONS)
        measure(cluster, amounts)

    def measure(cluster: LocalCluster, amounts: Amounts) -> Figures:
        found: Figures = {}
        for count in SHARE_CONSUMERS:
            bare.touch_memory(11 * amounts.megabytes // 10)
            bulk = share_consumers.consume(cluster, topic, size=KILOBYTE, megabytes=amounts.megabytes, consumers=count)
            found |= _bulk_figures(f"share-consume-{count}", bulk)
        return found

    rows = tuple(
        row
        for count in SHARE_CONSUMERS
        for row in _bulk_rows(
            f"share-consume-{count}",
            f"share group of {count} consumer{'s' if count > 1 else ''}, RF 3, 1 KB, Java",
            None,
            None,
        )
    )
    return Contest("share-consume", rows, measure, prepare)


# requests


def _request_rate(cluster: LocalCluster, connections: int, window: int, total: int) -> float:
    topic = fresh_topic(cluster, partitions=1)
    frame = frames.produce_frame(topic, bytes(SMALL_BYTES), acks=-1 if acks_of(cluster) == "all" else 1)
    address = cluster.leader_address(topic)
    frames.run(address, frame, connections=1, window=1, total=100)
    return frames.run(address, frame, connections=connections, window=window, total=total).requests_per_second


def _requests_contest(replicas: int, pipelined: Goal, many: Goal) -> Contest:
    key, name = f"requests-rf{replicas}", f"prebuilt requests RF {replicas}, 100 B"

    def measure(cluster: LocalCluster, amounts: Amounts) -> Figures:
        return {
            f"{key}-pipelined": _request_rate(cluster, 1, 200, amounts.pipelined),
            f"{key}-many": _request_rate(cluster, 64, 1, amounts.many),
        }

    def bare_rates(amounts: Amounts) -> Figures:
        with ExitStack() as stack:
            chains = Chains(stack)
            return {
                f"{key}-pipelined": chains.rate(replicas, connections=1, window=200, total=amounts.pipelined),
                f"{key}-many": chains.rate(replicas, connections=64, window=1, total=amounts.many),
            }

    rows = (
        Row(f"{key}-pipelined", f"{name}, 1 connection, 200 in flight", "/s", goal=pipelined),
        Row(f"{key}-many", f"{name}, 64 connections, 1 in flight", "/s", goal=many),
    )
    return Contest(key, rows, measure, bare=bare_rates)


def _bare_alone(amounts: Amounts) -> Alone:
    with ExitStack() as stack:
        return Chains(stack).alone(amounts.alone)


def _bare_single(amounts: Amounts) -> Figures:
    found = _bare_alone(amounts)
    return {"single-p50": found.p50_ms, "single-p99": found.p99_ms}


def _bare_rated(amounts: Amounts) -> Figures:
    found = _bare_alone(amounts)
    return {"rated-p50": found.p50_ms, "rated-core": 100 * RATE * found.cpu_us / 1e6}


def _one_in_flight(cluster: LocalCluster, amounts: Amounts) -> Figures:
    topic = fresh_topic(cluster, partitions=1)
    seconds = clients.one_in_flight(cluster, topic, size=KILOBYTE, count=amounts.alone)
    return {"single-p50": 1000 * percentile(seconds, 0.5), "single-p99": 1000 * percentile(seconds, 0.99)}


def _rated(cluster: LocalCluster, amounts: Amounts) -> Figures:
    topic = fresh_topic(cluster, partitions=1)
    rated = clients.at_rate(cluster, topic, size=KILOBYTE, per_second=RATE, duration_s=amounts.rated_s)
    return {"rated-p50": 1000 * percentile(rated.seconds, 0.5), "rated-core": 100 * rated.core_share}


# curves


def _partitions(cluster: LocalCluster, amounts: Amounts) -> Figures:
    """Produce the same records to an increasing number of partitions."""
    found: Figures = {}
    for count in PARTITION_CURVE:
        topic, megabytes = fresh_topic(cluster, partitions=count), max(5, amounts.replicated_megabytes // CURVE_SHARE)
        bulk = clients.produce(cluster, topic, size=KILOBYTE, megabytes=megabytes, acks="all", partitions=count)
        found[f"partitions-{count}"] = bulk.megabytes_per_second
        found[f"partitions-cpu-{count}"] = bulk.cpu_seconds_per_gigabyte
    return found


def _connections_contest(replicas: int) -> Contest:
    key = f"connections-rf{replicas}"

    def measure(cluster: LocalCluster, amounts: Amounts) -> Figures:
        total = max(2 * CONNECTION_CURVE[-1], amounts.many // CURVE_SHARE)
        return {f"{key}-{count}": _request_rate(cluster, count, 1, total) for count in CONNECTION_CURVE}

    rows = tuple(
        Row(f"{key}-{count}", f"prebuilt requests RF {replicas}, 100 B, {count:,} connections", "/s")
        for count in CONNECTION_CURVE
    )
    return Contest(key, rows, measure)


ONE_BROKER = (
    Contest(
        "produce-rf1",
        _bulk_rows("produce-rf1", "produce RF 1 acks=1, 1 KB", Goal(1.6, of_kafka=True), None),
        _produce("produce-rf1", KILOBYTE, _whole),
        bare=_bare("produce-rf1", bare.receive_check_append, _whole, 1),
    ),
    _consume_contest(1),
    _requests_contest(1, Goal(60_000), Goal(50_000)),
    _connections_contest(1),
)
"""Contests on one node that is both controller and broker."""

THREE_BROKERS = (
    Contest(
        "produce-rf3",
        _bulk_rows("produce-rf3", "produce RF 3 acks=all, 1 KB", Goal(2, of_kafka=True), Goal(0.333, of_kafka=True)),
        _produce("produce-rf3", KILOBYTE, _replicated),
        bare=_bare("produce-rf3", bare.replicate, _replicated, 3),
    ),
    Contest(
        "small-rf3",
        _bulk_rows("small-rf3", "produce RF 3 acks=all, 100 B", Goal(1.8, of_kafka=True), None),
        _produce("small-rf3", SMALL_BYTES, _small),
        bare=_bare("small-rf3", bare.replicate, _small, 3),
    ),
    Contest("java-produce", _bulk_rows("java-produce", "produce RF 3 acks=all, 1 KB, Java", None, None), _java_produce),
    _transactions_contest("transactions-records", "transactions of 1,000 records", load.Commits(records=1_000)),
    _transactions_contest("transactions-ms", "transactions of 100 ms", load.Commits(age_ms=100)),
    _consume_contest(3),
    _share_contest(),
    _requests_contest(3, Goal(40_000), Goal(35_000)),
    Contest(
        "single",
        (
            Row("single-p50", "single synchronous produces RF 3, p50", "ms", LESS, Goal(0.35)),
            Row("single-p99", "single synchronous produces RF 3, p99", "ms", LESS, Goal(1)),
        ),
        _one_in_flight,
        bare=_bare_single,
    ),
    Contest(
        "rated",
        (
            Row("rated-p50", f"{RATE:,} records/s, linger 0, RF 3: ack p50", "ms", LESS, Goal(0.5)),
            Row("rated-core", f"{RATE:,} records/s, linger 0, RF 3: CPU", "% of a core", LESS, Goal(70)),
        ),
        _rated,
        bare=_bare_rated,
    ),
    Contest(
        "partitions",
        tuple(
            row
            for count in PARTITION_CURVE
            for row in (
                Row(f"partitions-{count}", f"produce RF 3, 1 KB, over {count:,} partitions", "MB/s"),
                Row(f"partitions-cpu-{count}", f"produce RF 3, 1 KB, over {count:,} partitions: CPU", "s/GB", LESS),
            )
        ),
        _partitions,
    ),
    _connections_contest(3),
    Contest("metadata", metadata.SMALL_ROWS, metadata.small_figures),
    Contest("cold", cold.ROWS, cold.measure, rounds_max=1),
)
"""Contests on three controllers and three brokers; contests that use much disk space come last."""
