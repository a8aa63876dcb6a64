"""Nodes survive responses that they do not understand because they come from another release: unknown error codes, and
bodies that do not parse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.api.context import Handler
from kraft.broker.api.table import HANDLERS, HandlerParts
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.controller.controller import Controller
from kraft.controller.request_handlers import REQUESTS
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.fetch_response import encode_fetch_response
from kraft.wire.rpc import InternalKey, RpcMessage, decode_rpc_request, encode_rpc, response_classes
from kraft.wire.rpc.controller_messages import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ForwardRequest,
    ForwardResponse,
)
from kraft.wire.server import Request
from tests.stages.plane import Plane, batch, run
from tests.stages.tables import replace_row

LATER_CODE = 9_999

Answer = Callable[[Any], RpcMessage]


def refused(key: InternalKey) -> Answer:
    return lambda asked: response_classes()[key](error_code=LATER_CODE)  # type: ignore[call-arg]


def refused_partitions(asked: AlterPartitionRequest) -> RpcMessage:
    rows = [
        AlteredPartition(topic_id=one.topic_id, partition_id=one.partition_id, error_code=LATER_CODE)
        for one in asked.partitions
    ]
    return AlterPartitionResponse(partitions=tuple(rows))


def refused_topics(asked: ForwardRequest) -> RpcMessage:
    key, version = asked.forwarded_key, asked.forwarded_version
    row = messages.nested_class(messages.response_class(key), "topics")
    response = messages.build(
        messages.response_class(key), topics=(messages.build(row, name="orders", error_code=LATER_CODE),)
    )
    return ForwardResponse(body=messages.encode_response(key, version, response))


def rubbish(asked: ForwardRequest) -> RpcMessage:
    return ForwardResponse(body=b"\xff")


ANSWERS: dict[InternalKey, tuple[Answer, ...]] = {
    InternalKey.HEARTBEAT: (refused(InternalKey.HEARTBEAT),),
    InternalKey.REGISTER_CONTROLLER: (refused(InternalKey.REGISTER_CONTROLLER),),
    InternalKey.ALTER_PARTITION: (refused(InternalKey.ALTER_PARTITION), refused_partitions),
    InternalKey.ALLOCATE_PRODUCER_IDS: (refused(InternalKey.ALLOCATE_PRODUCER_IDS),),
    InternalKey.ASSIGN_REPLICAS_TO_DIRS: (refused(InternalKey.ASSIGN_REPLICAS_TO_DIRS),),
    InternalKey.FORWARD: (refused(InternalKey.FORWARD), refused_topics, rubbish),
}
"""API → responses that the active controller gives first, one after the other."""


@pytest.mark.parametrize("key", ANSWERS)
def test_a_node_survives_unknown_error_codes_and_unparsable_responses_of_a_controller(
    key: InternalKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = list(ANSWERS[key])
    handle = REQUESTS[key]

    def answer(controller: Controller, request: Request) -> None:
        if answers and controller.queue.is_active:
            asked = decode_rpc_request(key, request.api_version, request.body)
            request.respond(encode_rpc(answers.pop(0)(asked)))
        else:
            handle(controller, request)

    async def test(plane: Plane) -> None:
        client = await plane.client(1)

        async def ask_until_done(api_key: ApiKey, error_of: Callable[[Any], int], **fields: Any) -> None:
            version = messages.newest_version(api_key)
            while error_of(await client.ask(api_key, version, **fields)):
                await plane.world.sleep_ms(20)

        topics = ({"topic_id": None, "name": "orders"},)
        await ask_until_done(ApiKey.METADATA, lambda told: int(told.topics[0].error_code), topics=topics)
        await ask_until_done(ApiKey.INIT_PRODUCER_ID, lambda told: int(told.error_code), transactional_id=None)
        await plane.until(lambda: plane.hosts(1, "orders"))
        plane.world.kill("b2")
        await plane.until(lambda: _in_sync(plane) == [1])
        plane.world.restart("b2")
        await plane.until(lambda: _in_sync(plane) == [1, 2])
        plane.cluster.node(1).broker.broker.replicas.assignments.report(plane.partition("orders"), UUID(int=7 << 64))
        await plane.until(lambda: not answers)
        await plane.world.sleep_ms(1_000)

    replace_row(monkeypatch, REQUESTS, key, answer)
    run(test, controllers=2, brokers=2, default_replication_factor="2")


def _in_sync(plane: Plane) -> list[int]:
    topic = plane.cluster.node(1).publisher.image.topics.get("orders")
    return sorted(topic.partition(0).isr) if topic is not None else []


def test_a_follower_survives_unknown_error_codes_and_unparsable_responses_of_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[list[Any]] = []

    def make(parts: HandlerParts) -> Handler:
        handle = make_real(parts)

        def answer(request: Request, session: Session) -> Steps | None:
            if len(answers) < 2 and request.client_id.endswith("-fetcher"):
                answers.append(encode_fetch_response(request.api_version, (), error_code=LATER_CODE))
                request.respond(*answers[-1])
                return None
            return handle(request, session)

        return answer

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.until(lambda: len(answers) == 2)
        produced = await plane.produce("orders", batch("a"))
        assert produced.error_code == 0

    make_real = HANDLERS[ApiKey.FETCH]
    replace_row(monkeypatch, HANDLERS, ApiKey.FETCH, make)  # type: ignore[arg-type]
    run(test, controllers=1, brokers=2)
