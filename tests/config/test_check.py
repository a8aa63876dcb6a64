"""`kraft config check`: the effect of each line, and rules that involve more than one line."""

from __future__ import annotations

import pytest

from kraft.config import BROKER_KEYS, Effect
from kraft.config.check import Meaning, RawSetting, check_settings, check_whole

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9193",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9193",
    "log.dirs": "/data",
}


def settings(pairs: dict[str, str]) -> list[RawSetting]:
    return [RawSetting(f"line {number}", key, value) for number, (key, value) in enumerate(pairs.items(), 1)]


@pytest.mark.parametrize(
    ("key", "value", "meaning", "why"),
    [
        ("log.retention.hours", "24", Meaning.EFFECTIVE, ""),
        ("log.retention.hours", " 168", Meaning.DEFAULT, ""),
        ("log.retention.hours", "a day", Meaning.REFUSED, "'a day' is not a whole number"),
        ("log.retention.hour", "24", Meaning.UNKNOWN, "did you mean log.retention.hours?"),
        ("zookeeper.connect", "localhost:2181", Meaning.UNKNOWN, "this key is gone"),
        ("listener.name.internal.ssl.keystore.type", "PEM", Meaning.EFFECTIVE, ""),
    ],
)
def test_config_check_reports_the_effect_of_each_line(key: str, value: str, meaning: Meaning, why: str) -> None:
    (checked,) = check_settings([RawSetting("line 1", key, value)])
    assert checked.meaning is meaning
    assert why in checked.why


@pytest.mark.parametrize("above_default", [0, 1])
def test_config_check_gives_the_reason_for_a_key_without_effect(above_default: int) -> None:
    key = next(key for key in BROKER_KEYS.values() if key.effect is Effect.NO_EFFECT and key.type.name == "INT")
    (checked,) = check_settings([RawSetting("line 1", key.name, str(int(key.default or 0) + above_default))])
    assert (checked.meaning, checked.why) == (Meaning.NO_EFFECT, key.reason)


def test_config_check_uses_the_last_value_of_a_key_set_twice() -> None:
    first, second = check_settings([RawSetting("line 1", "node.id", "1"), RawSetting("KAFKA_NODE_ID", "node.id", "2")])
    assert (first.meaning, first.why) == (Meaning.OVERRIDDEN, "by KAFKA_NODE_ID")
    assert second.meaning is Meaning.EFFECTIVE


def test_config_check_never_shows_a_secret() -> None:
    checked = check_settings(settings({"ssl.key.password": "hush", "ssl.key.pasword": "hush"}))
    assert [one.value for one in checked] == ["[hidden]", "[hidden]"]


def test_config_check_reports_violated_rules_that_involve_several_keys_and_accepts_a_valid_file() -> None:
    assert check_whole(settings(CONTROLLER)) is None
    problem = check_whole(settings({**CONTROLLER, "controller.listener.names": "OTHER"}))
    assert problem is not None
    assert "OTHER" in problem
