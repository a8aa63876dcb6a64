"""The kraft command with --bootstrap-controller, on a cluster of one controller and two brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.deploy.launch.folder import ClusterFolder
from tests.stages.kraft_command import Command


@pytest.fixture
def controller(up: Command, home: Path) -> str:
    """Address of the only controller."""
    layout, _ = ClusterFolder(home / "data").read()
    return next(f"127.0.0.1:{plan.controller_port}" for plan in layout.nodes() if plan.controller_port is not None)


def levels(up: Command, controller: str) -> dict[str, str]:
    rows = up.json("configs", "describe", "--loggers", "101", "--bootstrap-controller", controller)
    return {row["key"]: row["value"] for row in rows}


def test_loggers_of_a_node_that_is_only_a_controller_are_shown_and_set(up: Command, controller: str) -> None:
    there = ("--loggers", "101", "--bootstrap-controller", controller)
    assert levels(up, controller)["kraft.quorum"] == "INFO"
    up.run("configs", "alter", *there, "--set", "kraft.quorum=DEBUG")
    assert levels(up, controller)["kraft.quorum"] == "DEBUG"
    of_broker = {row["key"]: row["value"] for row in up.json("configs", "describe", "--loggers", "1")}
    assert of_broker["kraft.quorum"] == "INFO"
    up.run("configs", "alter", *there, "--delete", "kraft.quorum")
    assert levels(up, controller)["kraft.quorum"] == "INFO"


def test_loggers_of_a_controller_are_the_same_through_brokers(up: Command, controller: str) -> None:
    through = {row["key"]: row["value"] for row in up.json("configs", "describe", "--loggers", "101")}
    assert through == levels(up, controller)


def test_loggers_of_a_node_unknown_to_brokers_give_advice_to_use_bootstrap_controller(up: Command) -> None:
    assert "--bootstrap-controller" in up.run("configs", "describe", "--loggers", "107", code=4)


def test_quorum_and_features_are_the_same_through_controllers_and_brokers(up: Command, controller: str) -> None:
    there = ("--bootstrap-controller", controller)
    assert up.json("features", "describe", *there) == up.json("features", "describe")
    assert up.json("quorum", *there)["leader"] == up.json("quorum")["leader"] == 101


def test_configs_other_than_loggers_are_refused_for_controllers_before_any_request(up: Command) -> None:
    nowhere = ("--bootstrap-controller", "127.0.0.1:1")
    said = up.run("configs", "describe", "--broker", "1", *nowhere, code=2)
    assert "--loggers" in said
    said = up.run("quorum", "-b", "127.0.0.1:2", *nowhere, code=2)
    assert "expected one of them" in said
