"""What `kraft configs alter` says of keys before the cluster is asked."""

from __future__ import annotations

import pytest

from kraft.client.admin import ConfigResource, ResourceType
from kraft.config import ConfigError
from kraft.deploy.cli.configs import _check_names

TOPIC, BROKER = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "1")


def test_a_setting_without_effect_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    _check_names(BROKER, ["background.threads=5", "log.cleaner.threads=2"], [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("background.threads has no effect: ")


def test_a_key_that_topics_do_not_have_cannot_be_deleted_by_mistake() -> None:
    _check_names(TOPIC, [], ["retention.ms"])
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        _check_names(TOPIC, [], ["retention.mss"])


def test_what_may_be_set_is_for_the_cluster_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    _check_names(TOPIC, ["a.key.of.a.later.kafka=1"], [])
    assert capsys.readouterr().err == ""
