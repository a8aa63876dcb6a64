"""Checks of keys in `kraft configs alter` before the cluster is contacted, and the parsing of `kraft up --set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.client.admin import ConfigResource, ResourceType
from kraft.config import ConfigError
from kraft.deploy.cli.configs import _check_names
from kraft.deploy.cli.local.cluster_verbs import _layout_of_up, _settings_of_nodes
from kraft.deploy.launch.folder import ClusterFolder

TOPIC, BROKER = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "1")


def test_a_setting_without_effect_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    _check_names(BROKER, ["background.threads=5", "log.cleaner.threads=2"], [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("background.threads has no effect: ")


def test_deleting_a_key_that_topics_do_not_have_is_refused() -> None:
    _check_names(TOPIC, [], ["retention.ms"])
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        _check_names(TOPIC, [], ["retention.mss"])


def test_configs_alter_leaves_unknown_keys_to_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    _check_names(TOPIC, ["a.key.of.a.later.kafka=1"], [])
    assert capsys.readouterr().err == ""


def test_set_options_for_one_node_are_distinguished_from_set_options_for_all_nodes() -> None:
    entries = ["num.partitions=3", "2:num.partitions=9", "2:broker.rack=a=b", "101:log.retention.ms=5"]
    assert _settings_of_nodes(entries) == (
        {"num.partitions": "3"},
        {"2": {"num.partitions": "9", "broker.rack": "a=b"}, "101": {"log.retention.ms": "5"}},
    )
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        _settings_of_nodes(["2:num.partition=9"])


def test_kraft_up_keeps_the_settings_that_earlier_starts_of_the_cluster_gave(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    first = {"brokers": 2, "settings": ["num.partitions=3", "1:broker.rack=a"], "racks": "x,y"}
    layout, cluster_id = _layout_of_up(folder, first)
    folder.create(layout, cluster_id)
    again, same_id = _layout_of_up(
        folder, {"settings": ["log.retention.ms=5", "1:num.partitions=4", "2:broker.rack=b"]}
    )
    assert same_id == cluster_id
    assert again.settings == {"num.partitions": "3", "log.retention.ms": "5"}
    assert again.node_settings == {"1": {"broker.rack": "a", "num.partitions": "4"}, "2": {"broker.rack": "b"}}
    assert again.racks == "x,y"


def test_an_unknown_broker_key_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    _check_names(BROKER, ["num.partition=5"], [])
    (line,) = capsys.readouterr().err.splitlines()
    assert "did you mean num.partitions?; brokers store it but do not use it" in line
