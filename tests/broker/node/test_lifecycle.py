"""BrokerLifecycle alone, with a scripted controller: registration, heartbeats, and controlled shutdown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kraft.broker.node.lifecycle import BrokerLifecycle, BrokerState, RegistrationRefused
from kraft.config import NodeConfig
from kraft.image.image import EMPTY_IMAGE
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import HeartbeatRequest
from tests.stages.broker_harness import PROPERTIES
from tests.stages.images import broker_event, image_of
from tests.stages.part_stage import PartStage, play

REGISTRATION: Any = SimpleNamespace(name="registration")
EPOCH = 11


class Registering:
    """A registering broker. `asked` has the requests that the controller received; `error` is the controller's next
    response to a registration."""

    def __init__(self, stage: PartStage) -> None:
        self.asked: list[Any] = []
        self.error = ErrorCode.NONE
        self.may_shut_down = False
        self.image = EMPTY_IMAGE
        self.lifecycle = BrokerLifecycle(
            NodeConfig.parse(PROPERTIES),
            stage.loop.clock,
            newest_image=lambda: self.image,
            find_replica=lambda topic_id, index: None,
            ask_controller=self._ask,
            registration=lambda: REGISTRATION,
        )

    async def _ask(self, message: Any, **_: Any) -> Any:
        self.asked.append(message)
        await trio.lowlevel.checkpoint()
        if message is REGISTRATION:
            return SimpleNamespace(error_code=self.error, broker_epoch=EPOCH, error_message="not you")
        return SimpleNamespace(
            error_code=ErrorCode.NONE,
            should_shut_down=self.may_shut_down,
            is_fenced=True,
            is_caught_up=True,
        )

    def heartbeats(self) -> list[HeartbeatRequest]:
        return [message for message in self.asked if isinstance(message, HeartbeatRequest)]


def test_a_broker_registers_then_asks_to_be_unfenced_once_its_logs_are_loaded() -> None:
    async def test(stage: PartStage) -> None:
        registering = Registering(stage)
        lifecycle = registering.lifecycle
        stage.loop.start_task(lifecycle.run)
        await stage.finish_tasks()
        assert registering.asked[0] is REGISTRATION
        assert lifecycle.broker_epoch == EPOCH
        assert all(heartbeat.want_fence for heartbeat in registering.heartbeats())
        await lifecycle.logs_loaded()
        await stage.finish_tasks()
        assert not registering.heartbeats()[-1].want_fence
        registering.image = image_of(broker_event(1))
        lifecycle.metadata_published(registering.image)
        assert (lifecycle.state, lifecycle.unfenced.is_set()) == (BrokerState.RUNNING, True)

    play(test)


def test_a_broker_ends_when_the_controller_rejects_its_registration() -> None:
    async def test(stage: PartStage) -> None:
        registering = Registering(stage)
        registering.error = ErrorCode.INVALID_REGISTRATION
        with pytest.raises(RegistrationRefused, match="not you"):
            await registering.lifecycle.run()

    play(test)


def test_a_directory_that_went_offline_is_reported_with_the_next_heartbeat() -> None:
    async def test(stage: PartStage) -> None:
        registering = Registering(stage)
        stage.loop.start_task(registering.lifecycle.run)
        await stage.finish_tasks()
        directory_id = stage.loop.random.uuid()
        registering.lifecycle.directory_went_offline("/data", directory_id, "the device is gone")
        await stage.finish_tasks()
        assert registering.heartbeats()[-1].offline_log_dirs == (directory_id,)

    play(test)


def test_a_controlled_shutdown_ends_when_the_controller_allows_it() -> None:
    async def test(stage: PartStage) -> None:
        registering = Registering(stage)
        stage.loop.start_task(registering.lifecycle.run)
        await stage.finish_tasks()
        registering.may_shut_down = True
        assert await registering.lifecycle.controlled_shutdown(timeout_ms=60_000)
        assert registering.heartbeats()[-1].want_shut_down

    play(test)
