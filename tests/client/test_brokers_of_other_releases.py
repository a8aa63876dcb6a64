"""Clients continue after responses that they cannot interpret: error codes of a later release, bodies that do not
parse.
"""

from __future__ import annotations

import pytest
import trio

from kraft.broker.api.context import Handler
from kraft.broker.api.table import HANDLERS, HandlerParts
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.client import DeliveryFailed, KafkaError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from kraft.wire.server import Request
from tests.stages.clients_in_world import PLACE, Stage, run
from tests.stages.tables import replace_row

LATER_CODE = 9_999


def test_a_record_fails_if_init_producer_id_fails_and_the_next_record_is_delivered() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        stage.fault(api_key=ApiKey.INIT_PRODUCER_ID, action=ReplyAction.ERROR, error=LATER_CODE, times=1)
        async with stage.producer() as producer:
            with pytest.raises(DeliveryFailed) as failed:
                await producer.send("orders", b"a")
            assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            await producer.send("orders", b"b")
        assert await stage.values() == [b"b"]

    run(test)


def test_a_producer_retries_metadata_requests_after_an_invalid_response() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer() as producer:
            await producer.send("orders", b"a")
            stage.fault(api_key=ApiKey.METADATA, action=ReplyAction.ERROR, error=LATER_CODE, times=2)
            moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.ERROR, error=moved, times=1)
            await producer.send("orders", b"b")
        assert await stage.values() == [b"a", b"b"]

    run(test)


def test_a_consumer_retries_metadata_requests_after_an_invalid_response() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer() as producer, stage.consumer() as consumer:
            await producer.send("orders", b"a")
            await consumer.assign([PLACE], at="earliest")
            stage.fault(api_key=ApiKey.METADATA, action=ReplyAction.ERROR, error=LATER_CODE, times=2)
            moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
            stage.fault(api_key=ApiKey.FETCH, action=ReplyAction.ERROR, error=moved, times=1)
            assert [record.value for record in await consumer.poll()] == [b"a"]

    run(test)


def test_a_send_raises_kafka_error_if_the_broker_rejects_api_versions() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        stage.fault(api_key=ApiKey.API_VERSIONS, action=ReplyAction.ERROR, error=LATER_CODE, times=1)
        async with stage.producer() as producer:
            with pytest.raises(KafkaError, match="rejected ApiVersions") as refused:
                await producer.send("orders", b"a")
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


@pytest.mark.parametrize(
    "key",
    [
        *[ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT],
        *[ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.LIST_OFFSETS],
    ],
)
def test_a_group_member_survives_responses_that_do_not_parse(key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    make_real = HANDLERS[key]

    def make(parts: HandlerParts) -> Handler:
        handle = make_real(parts)

        def answer(request: Request, session: Session) -> Steps | None:
            nonlocal asked
            asked += 1
            if asked <= 2:
                request.respond(b"\xff")
                return None
            return handle(request, session)

        return answer

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        settings = {"auto_commit_interval_ms": 200, "heartbeat_interval_ms": 300, "auto_offset_reset": "earliest"}
        async with stage.producer() as producer, stage.consumer(group_id="billing", **settings) as consumer:
            await consumer.subscribe(["orders"])
            for value in (b"a", b"b"):
                await producer.send("orders", value)
                with trio.fail_after(30):
                    assert [record.value for record in await consumer.poll()] == [value]
                await consumer.poll(timeout_ms=2_000)
        assert asked > 2

    replace_row(monkeypatch, HANDLERS, key, make)  # type: ignore[arg-type]
    run(test, offsets_topic_replication_factor="1", group_initial_rebalance_delay_ms="0")


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.API_VERSIONS])
@pytest.mark.parametrize("answered_before", range(3))
def test_a_producer_survives_responses_that_do_not_parse(
    key: ApiKey, answered_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the first responses are invalid, or later ones on another connection of the producer."""
    asked = 0
    make_real = HANDLERS[key]

    def make(parts: HandlerParts) -> Handler:
        handle = make_real(parts)

        def answer(request: Request, session: Session) -> Steps | None:
            nonlocal asked
            asked += request.client_id == "victim"
            if request.client_id == "victim" and answered_before < asked <= answered_before + 2:
                request.respond(b"\xff")
                return None
            return handle(request, session)

        return answer

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(client_id="victim") as producer:
            for value in (b"a", b"b"):
                moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
                stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.ERROR, error=moved, times=1)
                await producer.send("orders", value)
        assert asked
        assert await stage.values() == [b"a", b"b"]

    replace_row(monkeypatch, HANDLERS, key, make)  # type: ignore[arg-type]
    run(test)
