"""When MarkerSender sends a marker again: after an error of its leader, and while its partition has no leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kraft.broker.coordinator.marker_sender import MarkerSender
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.txn.step import Markers
from kraft.image import events
from kraft.image.delta import ImageDelta
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.images import DIRECTORY, image_of, three_brokers
from tests.stages.part_stage import PartStage, play

KEY = ApiKey.WRITE_TXN_MARKERS
TOPIC_ID = UUID(int=5)
PARTITIONS = 8
PRODUCER_ID = 7


class Sending:
    """The MarkerSender of broker 1, with its requests recorded. `leader` is the broker that leads all partitions of the
    topic; -1 means that they have no leader. Each dispatch of markers reads the image once."""

    def __init__(self, stage: PartStage, leader: int) -> None:
        self.clock = stage.loop.clock
        self.sent: list[tuple[int, Any, Callable[[Any], None]]] = []
        self.dispatches = 0
        self.lead(leader)
        self.marked: list[tuple[str, int]] = []
        connections: Any = SimpleNamespace(send=self._send, metadata_published=lambda image: None)
        self.sender = MarkerSender(
            stage.loop, 1, self._newest_image, connections, lambda *arguments: None, timeout_ms=1_000
        )
        machine = SimpleNamespace(marked=lambda name, attempt, partition, now: self.marked.append(partition))
        self.shard: Any = SimpleNamespace(
            state=ShardState.ACTIVE, leader_epoch=1, machine=machine, run_now=lambda operation: operation(None)
        )
        stage.loop.start_task(stage.loop.deadlines.run)

    def lead(self, leader: int) -> None:
        """Make this broker the leader of all partitions."""
        partitions = [
            events.Partition(TOPIC_ID, index, (2,), (2,), leader=leader, leader_epoch=1, directories=(DIRECTORY,))
            for index in range(PARTITIONS)
        ]
        self.image = image_of(*three_brokers(), events.Topic("orders", TOPIC_ID), *partitions)

    def _newest_image(self) -> Any:
        self.dispatches += 1
        return self.image

    def _send(
        self, broker: int, key: int, version: int, message: Any, on_outcome: Callable[[Any], None], *, timeout_ms: int
    ) -> None:
        self.sent.append((self.clock.monotonic_ms(), message, on_outcome))

    def begin(self) -> None:
        """Begin to write the markers of a transaction that has all partitions."""
        partitions = frozenset(("orders", index) for index in range(PARTITIONS))
        self.sender.send(self.shard, Markers("a", 1, PRODUCER_ID, 0, True, partitions, 2))

    async def answer(self, *written: int) -> tuple[int, list[int]]:
        """Wait for the next request. Answer that the markers of these partitions are written, and the others not.
        Return the time of the request in ms, and its partitions."""
        while not self.sent:
            await self.clock.sleep_ms(1)
        sent_ms, message, on_outcome = self.sent.pop(0)
        (topic,) = message.markers[0].topics
        indexes = sorted(topic.partition_indexes)
        rows = [
            {
                "partition_index": index,
                "error_code": ErrorCode.NONE if index in written else ErrorCode.NOT_ENOUGH_REPLICAS,
            }
            for index in indexes
        ]
        marker = {"producer_id": PRODUCER_ID, "topics": [{"name": "orders", "partitions": rows}]}
        on_outcome(messages.build(messages.response_class(KEY), markers=[marker]))
        return sent_ms, indexes


def sending(leader: int, test: Callable[[PartStage, Sending], Awaitable[None]]) -> None:
    async def main(stage: PartStage) -> None:
        await test(stage, Sending(stage, leader))

    play(main)


def test_the_failed_markers_of_a_request_are_sent_again_together_and_count_as_one_failure() -> None:
    async def test(stage: PartStage, sending: Sending) -> None:
        sending.begin()
        first_ms, everything = await sending.answer()
        second_ms, again = await sending.answer()
        third_ms, _ = await sending.answer()
        assert everything == again == list(range(PARTITIONS))
        assert second_ms - first_ms < 80, "20 ms, and the precision of the timer"
        assert third_ms - second_ms < 100, "40 ms, and the precision of the timer"

    sending(2, test)


def test_a_written_marker_resets_the_delay_before_other_markers_of_its_transaction_are_sent_again() -> None:
    async def test(stage: PartStage, sending: Sending) -> None:
        sending.begin()
        times = [(await sending.answer())[0] for _ in range(6)]
        slow_ms, _ = await sending.answer(0, 1)
        assert slow_ms - times[-1] > 500
        after_ms, left = await sending.answer(*range(2, PARTITIONS))
        assert left == list(range(2, PARTITIONS))
        assert after_ms - slow_ms < 80
        assert sorted(sending.marked) == [("orders", index) for index in range(PARTITIONS)]

    sending(2, test)


def test_a_marker_without_a_leader_waits_for_new_metadata_and_is_rarely_tried_before() -> None:
    async def test(stage: PartStage, sending: Sending) -> None:
        sending.begin()
        await stage.world.sleep_ms(10_000)
        assert not sending.sent
        assert sending.dispatches <= 11
        old = sending.image
        sending.lead(2)
        sending.sender.metadata_published(sending.image, ImageDelta.between(old, sending.image))
        began_ms = sending.clock.monotonic_ms()
        sent_ms, _ = await sending.answer()
        assert sent_ms - began_ms < 20

    sending(-1, test)
