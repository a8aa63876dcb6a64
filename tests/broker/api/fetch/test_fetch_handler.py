"""FetchHandler without a broker: with a Loop, one led replica and a few functions."""

from __future__ import annotations

from typing import Any

from kraft.broker.api.fetch.handle_fetch import FetchHandler
from kraft.broker.api.fetch.pending_fetch import FetchPorts
from kraft.broker.api.fetch.sessions import FetchSessionCache
from kraft.broker.partition.replication_quota import ReplicationQuota
from kraft.config import NodeConfig
from kraft.image.image import EMPTY_IMAGE
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_fetch_request,
)
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.records import read_header
from tests.stages.broker_harness import PROPERTIES, SecretTopic
from tests.stages.led_replica import TOPIC, LedReplica, OneConnection
from tests.stages.part_stage import PartStage, play
from tests.stages.plane import batch

VERSION = 12
PARTITION_BYTES = 1 << 20


class Fetching:
    """A consumer, and the fetch handler that gets its requests; the handler has one replica."""

    def __init__(self, stage: PartStage, *, selects_by_rack: bool = False, **replica: Any) -> None:
        self.replica = made = LedReplica(stage, **replica)
        made.make_ready()
        self.woken: dict[Any, None] = {}
        secret: Any = SecretTopic()
        ports = FetchPorts(
            loop=stage.loop,
            gates=made.gates,
            sessions=FetchSessionCache(10, stage.loop.random.stream("fetch sessions")),
            metadata_topic=secret,
            woken=self.woken,
            leader_quota=ReplicationQuota(
                NodeConfig.parse(PROPERTIES), stage.loop.clock, "leader.replication.throttled.rate"
            ),
            find=made.find,
            locate=made.locate,
            newest_image=lambda: EMPTY_IMAGE,
            await_role=lambda entry: False,
            disk_failed_at=made.failures.append,
            records_read=lambda partition, reader, offset, size_bytes: None,
            finish=made.finish,
            continue_in_steps=lambda request, steps: None,
            answer_later=lambda request, function, *arguments: stage.loop.start_task(function, *arguments),
        )
        handler = FetchHandler(ports, bytes_max=1 << 20, selects_by_rack=selects_by_rack)
        self._client = OneConnection(handler.handle)

    def append(self) -> None:
        """Append one record that every replica has at once."""
        partition, data = self.replica.partition, batch("a")
        partition.append_as_leader(memoryview(data), read_header(data), self.replica.loop.clock.wall_ms())
        assert partition.log is not None
        partition.set_high_watermark(partition.log.log_end_offset)

    def send(self, offset: int, *, topic: str = TOPIC, max_wait_ms: int = 0, rack_id: str = "") -> Any:
        partition = FetchPartition(0, -1, offset, -1, -1, PARTITION_BYTES)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[(topic, None, [partition])],
            rack_id=rack_id,
        )
        return self._client.send(ApiKey.FETCH, VERSION, b"".join([encode_fetch_request(VERSION, request)]))

    def end_pass(self) -> None:
        """Settle the partition and check the fetches that were woken, as a broker does at the end of a pass."""
        self.replica.end_pass()
        woken = list(self.woken)
        self.woken.clear()
        for fetch in woken:
            fetch.check_again()

    def results(self) -> list[FetchResult]:
        """Return the results in the responses received since the last call."""
        answers = [decode_fetch_response(VERSION, body) for body in self._client.answers()]
        return [answer.topics[0][2][0] for answer in answers]


def test_a_fetch_of_available_records_is_answered_within_the_handler_call() -> None:
    async def test(stage: PartStage) -> None:
        fetching = Fetching(stage)
        fetching.append()
        fetching.send(0)
        (result,) = fetching.results()
        assert (result.error_code, result.high_watermark, len(result.records)) == (ErrorCode.NONE, 1, 1)

    play(test)


def test_a_fetch_at_the_log_end_is_answered_at_the_end_of_the_pass_with_the_next_append() -> None:
    async def test(stage: PartStage) -> None:
        fetching = Fetching(stage)
        fetching.send(0, max_wait_ms=5_000)
        fetching.end_pass()
        assert (fetching.results(), len(stage.loop.deadlines)) == ([], 1)
        fetching.append()
        assert fetching.results() == []
        fetching.end_pass()
        (result,) = fetching.results()
        assert (result.high_watermark, len(result.records)) == (1, 1)
        assert len(stage.loop.deadlines) == 0

    play(test)


def test_a_fetch_without_new_records_gets_an_empty_response_at_its_deadline() -> None:
    async def test(stage: PartStage) -> None:
        fetching = Fetching(stage)
        fetching.send(0, max_wait_ms=100)
        await stage.world.sleep_ms(200)
        stage.loop.deadlines.expire_due()
        (result,) = fetching.results()
        assert (result.error_code, result.records) == (ErrorCode.NONE, ())

    play(test)


def test_a_fetch_of_a_topic_that_this_broker_does_not_host_is_rejected() -> None:
    async def test(stage: PartStage) -> None:
        fetching = Fetching(stage)
        fetching.send(0, topic="payments", max_wait_ms=5_000)
        assert [result.error_code for result in fetching.results()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    play(test)


def test_a_consumer_is_sent_to_a_replica_in_its_rack_only_if_the_broker_selects_by_rack() -> None:
    async def test(stage: PartStage) -> None:
        for selects_by_rack, preferred in ((False, -1), (True, 2)):
            fetching = Fetching(stage, selects_by_rack=selects_by_rack)
            fetching.replica.host.racks.update({1: "here", 2: "there"})
            fetching.replica.partition.follower_fetched(2, 0, 0, 0, 12)
            fetching.send(0, rack_id="there")
            (result,) = fetching.results()
            assert result.preferred_read_replica == preferred

    play(test)
