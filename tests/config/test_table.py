"""The table of configuration keys as a whole: it is complete, defaults pass their own validators, and each row has the
required texts.
"""

from __future__ import annotations

import pytest

from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigError, Effect, KeyType, broker_key
from kraft.config.document import render_table
from kraft.config.table import CHAPTERS, strip_listener_prefix

ALL = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_the_default_of_every_config_key_passes_its_validator(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    if (
        key.default
        and not (key.name.startswith("ssl.") and key.name.endswith("store.type"))
        and key.name != "broker.id"
    ):
        key.parse(key.default)


def test_no_config_key_is_in_two_chapters_of_the_configuration_tables() -> None:
    assert sum(len(chapter.KEYS) for chapter in CHAPTERS) == len(BROKER_KEYS)


def test_every_config_key_has_a_sentence_and_every_restriction_a_reason() -> None:
    for key in ALL:
        assert key.doc.endswith("."), key.name
        assert bool(key.reason) == (key.effect is not Effect.EFFECTIVE), key.name


def test_the_most_used_config_keys_are_in_the_table() -> None:
    for name in ("num.network.threads", "offsets.topic.replication.factor", "group.initial.rebalance.delay.ms"):
        assert name in BROKER_KEYS
    assert len(BROKER_KEYS) > 300
    assert len(TOPIC_KEYS) > 30


def test_listener_prefixed_setting_is_validated_like_the_setting_without_prefix() -> None:
    assert strip_listener_prefix("listener.name.internal.ssl.client.auth") == "ssl.client.auth"
    assert strip_listener_prefix("listener.name.internal.scram-sha-256.sasl.jaas.config") == "sasl.jaas.config"
    with pytest.raises(ConfigError, match="no such broker key"):
        broker_key("listener.name.internal.nothing")


def test_password_keys_are_sensitive_and_hidden_in_errors() -> None:
    key = BROKER_KEYS["ssl.key.password"]
    assert key.type is KeyType.PASSWORD
    assert key.is_sensitive
    assert not BROKER_KEYS["log.dirs"].is_sensitive


def test_the_configuration_page_has_every_public_key_once() -> None:
    page = render_table()
    for key in ALL:
        assert (f"`{key.name}`" in page) == (not key.is_internal), key.name
