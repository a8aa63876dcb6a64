"""ProduceHandler without a broker: with a Loop, one led replica and a few functions."""

from __future__ import annotations

from typing import Any

from kraft.broker.api.produce.handle_produce import ProduceHandler
from kraft.broker.api.produce.pending_produce import ProducePorts
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import ProduceResult, decode_produce_response, encode_produce_request
from tests.stages.images import image_of, orders, three_brokers
from tests.stages.led_replica import TOPIC, LedReplica, OneConnection
from tests.stages.part_stage import PartStage, play
from tests.stages.plane import batch

VERSION = 9


class Producing:
    """A client, and the produce handler that gets its requests; the handler has one replica."""

    def __init__(self, stage: PartStage, **replica: Any) -> None:
        self.replica = made = LedReplica(stage, **replica)
        image = image_of(*three_brokers(), *orders())
        ports = ProducePorts(
            loop=stage.loop,
            gates=made.gates,
            find=made.find,
            locate=made.locate,
            newest_image=lambda: image,
            disk_failed=lambda partition, error: made.failures.append(error),
            budget_may_be_full=made.waits_for_budget.append,
            finish=made.finish,
            enrol=lambda request, answered: None,
            verifies_transactions=lambda: True,
        )
        self._client = OneConnection(ProduceHandler(ports).handle)

    def send(self, *values: str, acks: int = -1, timeout_ms: int = 1_000) -> None:
        topics = [(TOPIC, None, [(0, batch(*values))])]
        body = encode_produce_request(VERSION, acks=acks, timeout_ms=timeout_ms, topics=topics)
        self._client.send(ApiKey.PRODUCE, VERSION, b"".join(body))

    def results(self) -> list[ProduceResult]:
        """Return the results in the responses received since the last call."""
        answers = [decode_produce_response(VERSION, body) for body in self._client.answers()]
        return [answer.topics[0][2][0] for answer in answers]


def test_a_plain_produce_with_acks_1_is_answered_within_the_handler_call() -> None:
    async def test(stage: PartStage) -> None:
        producing = Producing(stage)
        producing.replica.make_ready()
        producing.send("a", "b", acks=1)
        (result,) = producing.results()
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
        assert producing.replica.partition.log.log_end_offset == 2  # type: ignore[union-attr]

    play(test)


def test_a_produce_with_acks_all_is_answered_at_the_end_of_the_pass_in_which_the_follower_fetched_it() -> None:
    async def test(stage: PartStage) -> None:
        producing = Producing(stage)
        replica = producing.replica
        replica.make_ready()
        producing.send("a")
        replica.end_pass()
        assert producing.results() == []
        assert len(stage.loop.deadlines) == 1
        replica.partition.follower_fetched(2, 1, 0, 1, 12)
        assert producing.results() == []
        replica.end_pass()
        (result,) = producing.results()
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
        assert len(stage.loop.deadlines) == 0

    play(test)


def test_a_produce_that_is_not_acknowledged_by_its_deadline_gets_request_timed_out() -> None:
    async def test(stage: PartStage) -> None:
        producing = Producing(stage)
        producing.replica.make_ready()
        producing.send("a", timeout_ms=100)
        await stage.world.sleep_ms(200)
        stage.loop.deadlines.expire_due()
        assert [result.error_code for result in producing.results()] == [ErrorCode.REQUEST_TIMED_OUT]

    play(test)


def test_a_produce_waits_until_its_partition_is_appendable() -> None:
    async def test(stage: PartStage) -> None:
        producing = Producing(stage)
        producing.send("a", acks=1)
        assert producing.results() == []
        assert len(producing.replica.partition.pending) == 1
        producing.replica.make_ready()
        assert [result.error_code for result in producing.results()] == [ErrorCode.NONE]

    play(test)


def test_an_acks_all_produce_is_rejected_when_too_few_replicas_are_in_sync() -> None:
    async def test(stage: PartStage) -> None:
        producing = Producing(stage, min_isr=2, isr=(1,))
        producing.replica.make_ready()
        producing.send("a")
        (result,) = producing.results()
        assert result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert producing.replica.partition.log.log_end_offset == 0  # type: ignore[union-attr]

    play(test)
