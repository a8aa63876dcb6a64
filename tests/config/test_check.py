"""What `kraft config check` finds: each meaning of a line, and rules that need more than one line."""

from __future__ import annotations

import pytest

from kraft.config import BROKER_KEYS, Effect
from kraft.config.check import Meaning, Setting, check_settings, check_whole

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9193",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9193",
    "log.dirs": "/data",
}


def settings(pairs: dict[str, str]) -> list[Setting]:
    return [Setting(f"line {number}", key, value) for number, (key, value) in enumerate(pairs.items(), 1)]


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
def test_a_line_has_the_meaning_that_it_has_for_a_node(key: str, value: str, meaning: Meaning, why: str) -> None:
    (checked,) = check_settings([Setting("line 1", key, value)])
    assert checked.meaning is meaning
    assert why in checked.why


@pytest.mark.parametrize("above_default", [0, 1])
def test_a_key_without_effect_says_why_also_with_its_default(above_default: int) -> None:
    key = next(key for key in BROKER_KEYS.values() if key.effect is Effect.NO_EFFECT and key.type.name == "INT")
    (checked,) = check_settings([Setting("line 1", key.name, str(int(key.default or 0) + above_default))])
    assert (checked.meaning, checked.why) == (Meaning.NO_EFFECT, key.reason)


def test_a_key_set_twice_counts_with_its_last_value() -> None:
    first, second = check_settings([Setting("line 1", "node.id", "1"), Setting("KAFKA_NODE_ID", "node.id", "2")])
    assert (first.meaning, first.why) == (Meaning.OVERRIDDEN, "by KAFKA_NODE_ID")
    assert second.meaning is Meaning.EFFECTIVE


def test_a_secret_is_never_shown() -> None:
    checked = check_settings(settings({"ssl.key.password": "hush", "ssl.key.pasword": "hush"}))
    assert [one.value for one in checked] == ["[hidden]", "[hidden]"]


def test_a_rule_of_several_keys_is_named_and_a_good_file_has_no_problem() -> None:
    assert check_whole(settings(CONTROLLER)) is None
    problem = check_whole(settings({**CONTROLLER, "controller.listener.names": "OTHER"}))
    assert problem is not None
    assert "OTHER" in problem
