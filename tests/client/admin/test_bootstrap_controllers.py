"""An admin client connected to controllers, without a broker in between."""

from __future__ import annotations

import pytest

from kraft.client import KafkaError
from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kraft.client.core.configs import ConfigError
from kraft.sim.cluster.shape import CONTROLLER_PORT, host_name
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage, play

CONTROLLERS = (101, 102, 103)


def controllers(stage: Stage, *nodes: int) -> Admin:
    """Return an admin client with these controllers as bootstrap addresses."""
    addresses = [f"{host_name(node)}:{CONTROLLER_PORT}" for node in nodes]
    return Admin(bootstrap_controllers=addresses, timeout_ms=10_000, seam=stage.cluster.world.node("tool"))


def level_of(entries: object, logger: str) -> str:
    assert isinstance(entries, tuple)
    return str({entry.name: entry.value for entry in entries}[logger])


def test_loggers_of_each_controller_are_available_through_any_bootstrap_controller() -> None:
    async def work(stage: Stage) -> None:
        async with controllers(stage, 102) as admin:
            for node in CONTROLLERS:
                loggers = ConfigResource(ResourceType.BROKER_LOGGER, str(node))
                before = level_of(await admin.configs.describe(loggers), "kraft.quorum")
                change = ConfigChange(ConfigOperation.SET, "kraft.quorum", before)
                await admin.configs.alter(loggers, [change], validate_only=True)
            with pytest.raises(KafkaError, match=r"controller 1 is not there, or not up \(up: 101, 102, 103\)"):
                await admin.configs.describe(ConfigResource(ResourceType.BROKER_LOGGER, "1"))

    play(work, controllers=3)


@pytest.mark.parametrize("known", CONTROLLERS)
def test_quorum_and_feature_requests_reach_the_active_controller_from_any_bootstrap_controller(known: int) -> None:
    async def work(stage: Stage) -> None:
        async with controllers(stage, known) as admin:
            found = await admin.nodes.quorum()
            assert found.leader in CONTROLLERS
            assert [voter.node_id for voter in found.voters] == list(CONTROLLERS)
            levels = {one.name: one.level for one in await admin.nodes.features()}
            level = levels["metadata.version"]
            await admin.nodes.update_features({"metadata.version": level})

    play(work, controllers=3)


def test_controllers_answer_admin_requests_without_brokers_and_after_the_active_controller_crashed() -> None:
    async def work(stage: Stage) -> None:
        async with controllers(stage, *CONTROLLERS) as admin:
            leader = (await admin.nodes.quorum()).leader
            assert leader is not None
            for node in (1, 2, leader):
                stage.cluster.crash(node, lose_power=False, is_noticed=True)
            assert (await admin.nodes.quorum()).leader in {*CONTROLLERS} - {leader}

    play(work, controllers=3)


def test_using_a_broker_as_bootstrap_controller_fails_and_the_error_says_so() -> None:
    async def work(stage: Stage) -> None:
        seam = stage.cluster.world.node("tool")
        async with Admin(bootstrap_controllers=stage.bootstrap_servers, seam=seam) as admin:
            with pytest.raises(KafkaError, match="this is a broker's listener") as refused:
                await admin.nodes.quorum()
            assert refused.value.code is ErrorCode.MISMATCHED_ENDPOINT_TYPE

    play(work)


def test_giving_both_bootstrap_servers_and_bootstrap_controllers_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="expected one of them"):
        Admin(bootstrap_servers="a:1", bootstrap_controllers="b:1")
