"""The table as a whole: it is complete, its defaults pass its own checks, and its rows say what they must."""

from __future__ import annotations

import pytest

from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigError, Effect, KeyType, broker_key
from kraft.config.document import render_table
from kraft.config.table import CHAPTERS, strip_listener_prefix

ALL = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_a_default_passes_its_own_check(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    if (
        key.default
        and not (key.name.startswith("ssl.") and key.name.endswith("store.type"))
        and key.name != "broker.id"
    ):
        key.parse(key.default)


def test_no_key_stands_in_two_chapters() -> None:
    assert sum(len(chapter.KEYS) for chapter in CHAPTERS) == len(BROKER_KEYS)


def test_every_row_has_a_sentence_and_every_restriction_a_reason() -> None:
    for key in ALL:
        assert key.doc.endswith("."), key.name
        assert bool(key.reason) == (key.effect is not Effect.EFFECTIVE), key.name


def test_the_keys_that_operators_write_most_are_there() -> None:
    for name in ("num.network.threads", "offsets.topic.replication.factor", "group.initial.rebalance.delay.ms"):
        assert name in BROKER_KEYS
    assert len(BROKER_KEYS) > 300
    assert len(TOPIC_KEYS) > 30


def test_a_listeners_own_setting_is_judged_as_the_plain_one() -> None:
    assert strip_listener_prefix("listener.name.internal.ssl.client.auth") == "ssl.client.auth"
    assert strip_listener_prefix("listener.name.internal.scram-sha-256.sasl.jaas.config") == "sasl.jaas.config"
    with pytest.raises(ConfigError, match="no such broker key"):
        broker_key("listener.name.internal.nothing")


def test_passwords_are_sensitive_and_hidden_in_errors() -> None:
    key = BROKER_KEYS["ssl.key.password"]
    assert key.type is KeyType.PASSWORD
    assert key.is_sensitive
    assert not BROKER_KEYS["log.dirs"].is_sensitive


def test_the_generated_page_names_every_public_key_once() -> None:
    page = render_table()
    for key in ALL:
        assert (f"`{key.name}`" in page) == (not key.is_internal), key.name
