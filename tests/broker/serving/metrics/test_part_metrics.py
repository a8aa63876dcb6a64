"""The metrics of the data plane, each part tested without a broker: a metric is read from its part when it is
collected.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from kraft.broker.logs.cleaning.cleaner_metrics import register_cleaner_metrics
from kraft.broker.logs.cleaning.log_cleaner import CleanerState, LastRound
from kraft.broker.replica.follower import FollowerStatus
from kraft.broker.roles.log_metrics import register_log_metrics
from kraft.broker.roles.replica_metrics import register_fetcher_metrics, register_rates, register_replica_metrics
from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.broker.serving.metrics.rates import Rates
from kraft.seam.measures import Histogram
from kraft.storage.compaction.round import CleanerStats
from tests.stages.part_stage import PartStage, play, replica


class Hosted(list[Any]):
    """A fake index of replicas."""

    def with_open_logs(self) -> list[Any]:
        return [one for one in self if one.log is not None]


def test_cleaner_metrics_show_the_last_rounds_and_uncleanable_logs() -> None:
    async def test(stage: PartStage) -> None:
        metrics, state = Metrics(), CleanerState(last_run_ms=stage.loop.clock.monotonic_ms())
        directory: Any = SimpleNamespace(path="/data")
        register_cleaner_metrics(metrics, state, [directory], stage.loop.clock)
        stats = CleanerStats()
        stats.bytes_read, stats.bytes_written = 1_000, 250
        state.last_rounds[0] = LastRound(stats, 7_900)
        state.uncleanable[replica(directory=directory)] = 4_096
        await stage.world.sleep_ms(500)

        def value(type: str, name: str, **tags: str) -> float | None:
            return metrics.value("kafka.log", type, name, **tags)

        assert value("LogCleaner", "max-clean-time-secs") == 7
        assert value("LogCleaner", "cleaner-recopy-percent") == 25
        assert value("LogCleanerManager", "uncleanable-bytes", logDirectory="/data") == 4_096
        assert (value("LogCleanerManager", "time-since-last-run-ms") or 0) >= 500

    play(test)


def test_log_metrics_show_offline_directories_and_logs_that_wait_to_be_opened() -> None:
    metrics, flush_ms = Metrics(), Histogram()
    online: Any = SimpleNamespace(path="/data", is_online=True)
    offline: Any = SimpleNamespace(path="/more", is_online=False)
    directories: Any = SimpleNamespace(all=[online, offline], online=[online])
    log = SimpleNamespace(size_bytes=77, log_start_offset=3, log_end_offset=9, segments=[1, 2])
    hosted = Hosted([replica(log), replica(index=1)])  # type: ignore[arg-type]
    register_log_metrics(
        metrics,
        directories,
        open_logs=hosted.with_open_logs,
        waiting_logs=lambda: Counter({"/data": 4}),
        flush_ms=flush_ms,
    )
    assert metrics.value("kafka.log", "LogManager", "OfflineLogDirectoryCount") == 1
    assert metrics.value("kafka.log", "LogManager", "LogDirectoryOffline", logDirectory="/more") == 1
    assert metrics.value("kafka.log", "LogManager", "remainingLogsToRecover", dir="/data") == 4
    assert metrics.value("kafka.log", "Log", "Size", topic="orders", partition="0") == 77
    assert metrics.value("kafka.log", "Log", "NumLogSegments", topic="orders", partition="0") == 2
    assert metrics.value("kafka.log", "Log", "Size", topic="orders", partition="1") is None


def test_replica_metrics_show_hosted_replicas_and_waiting_requests() -> None:
    metrics = Metrics()
    log = SimpleNamespace(producers=SimpleNamespace(entries={7: None, 8: None}))
    hosted: Any = Hosted([replica(log, state=None), replica(index=1, is_offline=True, state=None)])  # type: ignore[arg-type]
    proposals: Any = SimpleNamespace(shrinks=2, expands=3, failed=4)
    sessions: Any = type("Sessions", (), {"__len__": lambda self: 5, "partitions": 6, "evictions": 7})()
    deadlines: Any = SimpleNamespace(kinds=lambda: Counter({"Fetch": 8}))
    register_replica_metrics(metrics, hosted, proposals, sessions, deadlines)

    def value(name: str, type: str = "ReplicaManager", **tags: str) -> float | None:
        return metrics.value("kafka.server", type, name, **tags)

    assert [value(name) for name in ("PartitionCount", "OfflineReplicaCount", "ProducerIdCount")] == [2, 1, 2]
    assert [value(name) for name in ("IsrShrinksPerSec", "IsrExpandsPerSec", "FailedIsrUpdatesPerSec")] == [2, 3, 4]
    assert value("NumIncrementalFetchSessions", "FetchSessionCache") == 5
    purgatory = "DelayedOperationPurgatory"
    assert value("PurgatorySize", purgatory, delayedOperation="Fetch") == 8
    assert value("PurgatorySize", purgatory, delayedOperation="Produce") == 0


class FakeFetcher:
    """A fetcher of broker 2, with one partition that is 5 records behind and one that has stopped."""

    leader_id = 2
    client_id = "broker-1-fetcher"
    requests = 0
    answer_bytes = 300

    def __init__(self) -> None:
        status = FollowerStatus
        self.all_followed = [
            SimpleNamespace(partition=replica(), lag=5, state=SimpleNamespace(status=status.FETCHING)),
            SimpleNamespace(partition=replica(index=1), lag=0, state=SimpleNamespace(status=status.STOPPED)),
        ]

    def __len__(self) -> int:
        return len(self.all_followed)


def test_fetcher_metrics_show_lag_and_followed_leaders() -> None:
    async def test(stage: PartStage) -> None:
        metrics, fetchers = Metrics(), [FakeFetcher()]
        leaders: Any = SimpleNamespace(endpoint=lambda broker_id: SimpleNamespace(host="two", port=9092))
        register_fetcher_metrics(metrics, fetchers, leaders)  # type: ignore[arg-type]
        manager = "ReplicaFetcherManager"
        assert metrics.value("kafka.server", manager, "MaxLag", clientId="Replica") == 5
        assert metrics.value("kafka.server", manager, "FailedPartitionsCount", clientId="Replica") == 1
        labels = {"brokerHost": "two", "brokerPort": "9092", "clientId": "broker-1-fetcher"}
        assert metrics.value("kafka.server", "FetcherStats", "BytesPerSec", **labels) == 300

    play(test)


def test_the_rates_of_the_slowest_fetcher_and_of_the_throttles_are_measured() -> None:
    async def test(stage: PartStage) -> None:
        metrics, rates, fetcher = Metrics(), Rates(stage.loop.clock), FakeFetcher()
        leading, following = SimpleNamespace(measured_rate=10.0), SimpleNamespace(measured_rate=20.0)
        register_rates(metrics, rates, [fetcher], leading, following)  # type: ignore[arg-type]
        for _ in range(3):
            await stage.world.sleep_ms(1_000)
            fetcher.requests += 4
            rates.second_over()
        manager = "ReplicaFetcherManager"
        assert (metrics.value("kafka.server", manager, "MinFetchRate", clientId="Replica") or 0) > 0
        assert metrics.value("kafka.server", "LeaderReplication", "byte-rate") == 10
        assert metrics.value("kafka.server", "FollowerReplication", "byte-rate") == 20

    play(test)
