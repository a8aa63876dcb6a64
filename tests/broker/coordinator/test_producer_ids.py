"""InitProducerId without a transactional id: it returns unique ids from blocks that the controller allocates."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kraft.broker.serving.gates import CLUSTER, Authorizer, Operation
from kraft.node.peers import CallOutcome
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.deciding import DecidingController
from tests.stages.images import broker_event, image_of


def broker_with_controller(authorizer: Authorizer | None = None) -> tuple[BrokerHarness, DecidingController]:
    image = image_of(broker_event(1))
    harness = BrokerHarness(image, authorizer=authorizer)
    controller = DecidingController(image, harness.broker.config)
    harness.use_controller(controller)
    return harness, controller


def ask(harness: BrokerHarness, version: int = 4, **fields: Any) -> Any:
    fields.setdefault("transactional_id", None)
    return harness.ask(ApiKey.INIT_PRODUCER_ID, version, **fields)


@pytest.mark.parametrize("version", range(6))
def test_an_idempotent_producer_gets_a_producer_id_with_epoch_0(version: int) -> None:
    harness, _ = broker_with_controller()
    response = ask(harness, version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 0, 0)


def test_producer_ids_are_unique_across_blocks_and_the_next_block_is_prefetched() -> None:
    harness, controller = broker_with_controller()
    ids = [ask(harness).producer_id for _ in range(2_500)]
    assert ids == list(range(2_500))
    assert controller.image.next_producer_id == 3_000
    for _ in range(450):
        ask(harness)
    assert controller.image.next_producer_id == 4_000


def test_two_brokers_never_hand_out_the_same_producer_id() -> None:
    one, controller = broker_with_controller()
    other, _ = broker_with_controller()
    other.use_controller(controller)
    ids = [ask(harness).producer_id for _ in range(1_200) for harness in (one, other)]
    assert len(set(ids)) == len(ids)


def test_an_empty_transactional_id_is_an_invalid_request() -> None:
    harness, _ = broker_with_controller()
    assert ask(harness, transactional_id="").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("producer_id", "producer_epoch", "error"), [(7, -1, 42), (-1, 3, 42), (7, 3, 0), (-1, -1, 0)])
def test_init_producer_id_with_an_id_but_no_epoch_is_an_invalid_request(
    producer_id: int, producer_epoch: int, error: int
) -> None:
    harness, _ = broker_with_controller()
    assert ask(harness, producer_id=producer_id, producer_epoch=producer_epoch).error_code == error


def test_an_unauthorized_init_producer_id_is_rejected() -> None:
    harness, _ = broker_with_controller(Denying((Operation.WRITE, "pay"), (Operation.IDEMPOTENT_WRITE, CLUSTER.name)))
    assert ask(harness, transactional_id="pay").error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(harness).error_code == 0  # allowed, because the client may write to some topic
    harness, _ = broker_with_controller(Denying((Operation.WRITE, "*"), (Operation.IDEMPOTENT_WRITE, CLUSTER.name)))
    response = ask(harness)
    assert (response.error_code, response.producer_id) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)


async def test_init_producer_id_without_a_controller_gives_a_retriable_error(nursery: trio.Nursery) -> None:
    image = image_of(broker_event(1))
    harness = BrokerHarness(image, nursery=nursery)
    controller = DecidingController(image, harness.broker.config)
    harness.use_controller(controller)
    request = messages.build(messages.request_class(ApiKey.INIT_PRODUCER_ID), transactional_id=None)
    for failing, error in ((CallOutcome.REFUSED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (None, ErrorCode.NONE)):
        controller.failing = failing
        client = harness.connect()
        client.send(ApiKey.INIT_PRODUCER_ID, 4, messages.encode_request(ApiKey.INIT_PRODUCER_ID, 4, request))
        await trio.testing.wait_all_tasks_blocked()
        (body,) = client.answers()
        assert messages.decode_response(ApiKey.INIT_PRODUCER_ID, 4, body).error_code == error
