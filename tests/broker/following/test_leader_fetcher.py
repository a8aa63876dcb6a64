"""LeaderFetcher and FollowedPartition with a scripted leader: which requests are sent, and how responses are
applied."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kraft.broker.following.followed_partition import FetcherContext
from kraft.broker.following.leader_fetcher import FETCH_VERSION, FetcherSettings, LeaderFetcher
from kraft.broker.replica.follower import FollowerStatus
from kraft.config import NodeConfig
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchRequest, FetchResult, decode_fetch_request
from kraft.wire.messages.fetch_response import encode_fetch_response
from tests.stages.broker_harness import PROPERTIES
from tests.stages.part_stage import TOPIC_ID, PartStage, follower_batch, play, replica

SELF, LEADER, EPOCH, BROKER_EPOCH, SESSION = 1, 2, 4, 7, 99


class FakeConnection:
    """A connection that records the requests to the leader; `answer` answers the oldest one."""

    def __init__(self, on_closed: Callable[..., None]) -> None:
        self.is_closed = False
        self.requests: list[FetchRequest] = []
        self.replies: list[Callable[[memoryview | None], None]] = []
        self.closed_because: list[str] = []
        self._on_closed = on_closed

    def send(self, key: int, version: int, body: list[bytes], on_reply: Any) -> None:
        self.requests.append(decode_fetch_request(FETCH_VERSION, b"".join(body)))
        self.replies.append(on_reply)

    def close(self, why: str, *_: Any) -> None:
        self.closed_because.append(why)

    def answer(self, *results: FetchResult, error: int = 0) -> None:
        topics = [(None, TOPIC_ID, list(results))] if results else []
        chunks = encode_fetch_response(FETCH_VERSION, topics, error_code=error, session_id=SESSION)
        self.replies.pop(0)(memoryview(b"".join(bytes(chunk) for chunk in chunks)))


class Scripted:
    """A fetcher with a scripted leader, which records the calls on its partitions."""

    def __init__(self, stage: PartStage) -> None:
        self.stage = stage
        self.connections: list[FakeConnection] = []
        self.cuts: list[tuple[int, bool]] = []
        self.held_back = False
        leaders: Any = SimpleNamespace(
            endpoint=lambda broker_id: SimpleNamespace(name="PLAINTEXT"),
            incarnation=lambda broker_id: None,
            dial=self._dial,
        )
        quota: Any = SimpleNamespace(holds_back=lambda *_: self.held_back, record=lambda size: None)
        following = FetcherContext(
            SELF, quota, SimpleNamespace(), SimpleNamespace(truncate=self._truncate), lambda one: None
        )  # type: ignore[arg-type]
        settings = FetcherSettings.of(NodeConfig.parse(PROPERTIES))
        self.fetcher = LeaderFetcher(stage.loop, LEADER, settings, leaders, following, lambda: BROKER_EPOCH)
        stage.loop.start_task(self.fetcher.run)

    async def _dial(self, broker_id: int, endpoint: Any, client_id: str, on_closed: Any) -> Any:
        await self.stage.world.sleep_ms(1)
        self.connections.append(FakeConnection(on_closed))
        return self.connections[-1]

    async def _truncate(self, partition: Any, offset: int, *, fully: bool) -> bool:
        self.cuts.append((offset, fully))
        return False

    @property
    def leader(self) -> FakeConnection:
        return self.connections[-1]

    def follow(self, index: int = 0, *, records: int = 0) -> Any:
        """Create a partition and have the fetcher fetch it."""
        log = self.stage.open_log(f"/data/orders-{index}", records=records)
        partition = replica(
            log,
            index=index,
            key=(TOPIC_ID, index),
            high_watermark=0,
            follower_throttled=False,
            waits_for_disk=False,
            flush_records=10,
            active_segment=log.active,
            state=None,
            host=SimpleNamespace(changed={}),
            meters=SimpleNamespace(replication_bytes_in=SimpleNamespace(count=0)),
        )
        partition.truncation_begun = lambda: setattr(partition, "is_truncating", True)
        partition.set_high_watermark = lambda mark: setattr(partition, "high_watermark", mark)
        self.fetcher.add(partition, EPOCH)
        self.fetcher.nudge()
        return partition


def asked(request: FetchRequest) -> list[tuple[int, int]]:
    """Return the (partition, fetch offset) pairs of a request."""
    return [(one.partition, one.fetch_offset) for _, _, partitions in request.topics for one in partitions]


def test_a_partition_is_fetched_from_its_log_end_and_the_response_is_appended() -> None:
    async def test(stage: PartStage) -> None:
        scripted = Scripted(stage)
        partition = scripted.follow(records=2)
        await stage.finish_tasks()
        (request,) = scripted.leader.requests
        assert (asked(request), request.replica_id, request.replica_epoch) == ([(0, 2)], SELF, BROKER_EPOCH)
        scripted.leader.answer(FetchResult(0, 0, 3, 3, 0, None, -1, (follower_batch(2),)))
        assert (partition.log.log_end_offset, partition.high_watermark) == (3, 3)
        assert partition.meters.replication_bytes_in.count > 0
        assert [asked(one) for one in scripted.leader.requests] == [[(0, 2)], [(0, 3)]]
        assert scripted.leader.requests[1].session_id == SESSION

    play(test)


def test_a_partition_added_during_a_long_poll_is_fetched_at_once() -> None:
    async def test(stage: PartStage) -> None:
        scripted = Scripted(stage)
        scripted.follow()
        await stage.finish_tasks()
        scripted.leader.answer(FetchResult(0, 0, 0, 0, 0))
        scripted.follow(1)
        assert [asked(one) for one in scripted.leader.requests] == [[(0, 0)], [], [(1, 0)]]

    play(test)


def test_a_fetch_response_for_a_partition_removed_after_the_request_is_dropped() -> None:
    async def test(stage: PartStage) -> None:
        scripted = Scripted(stage)
        partition = scripted.follow()
        await stage.finish_tasks()
        scripted.fetcher.remove(partition)
        scripted.leader.answer(FetchResult(0, 0, 1, 1, 0, None, -1, (follower_batch(0),)))
        assert partition.log.log_end_offset == 0

    play(test)


def test_a_throttled_replica_is_omitted_from_fetch_requests_until_the_rate_allows_it() -> None:
    async def test(stage: PartStage) -> None:
        scripted = Scripted(stage)
        scripted.held_back = True
        partition = scripted.follow()
        partition.follower_throttled = True
        await stage.finish_tasks()
        assert scripted.leader.requests == []
        scripted.held_back = False
        await stage.finish_tasks()
        assert asked(scripted.leader.requests[0]) == [(0, 0)]

    play(test)


def test_a_log_that_diverges_from_its_leader_is_truncated_and_not_fetched_meanwhile() -> None:
    async def test(stage: PartStage) -> None:
        scripted = Scripted(stage)
        partition = scripted.follow(records=3)
        await stage.finish_tasks()
        scripted.leader.answer(FetchResult(0, 0, 1, 1, 0, diverging_epoch=(0, 1)))
        await stage.finish_tasks()
        assert (scripted.cuts, partition.is_truncating) == ([(1, False)], True)
        followed = scripted.fetcher.followed(partition)
        assert followed is not None
        assert followed.state.status is FollowerStatus.BACKOFF

    play(test)


def test_a_top_level_fetch_error_closes_the_connection_to_the_leader() -> None:
    async def test(stage: PartStage) -> None:
        scripted = Scripted(stage)
        scripted.follow()
        await stage.finish_tasks()
        scripted.leader.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        assert scripted.leader.closed_because == ["the leader refuses this fetcher"]

    play(test)
