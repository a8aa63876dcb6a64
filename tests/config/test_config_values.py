"""Parsing the text of a config value, and formatting the value as Kafka does."""

from __future__ import annotations

import pytest

from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigError

KEYS = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


@pytest.mark.parametrize(
    ("key", "given", "written"),
    [
        ("retention.ms", " 5000 ", "5000"),
        ("retention.ms", "+7\n", "7"),
        ("retention.ms", "\x00007\t", "7"),
        ("retention.ms", "-1", "-1"),
        ("preallocate", "TRUE", "true"),
        ("unclean.leader.election.enable", " False", "false"),
        ("min.cleanable.dirty.ratio", "0.30", "0.3"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", ".5f", "0.5"),
        ("min.cleanable.dirty.ratio", "0", "0.0"),
        ("min.cleanable.dirty.ratio", "1e-4", "1.0E-4"),
        ("min.cleanable.dirty.ratio", "0.00025D", "2.5E-4"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("cleanup.policy", "", ""),
        ("compression.type", " zstd ", "zstd"),
    ],
)
def test_parsed_config_value_is_formatted_as_kafka_formats_it(key: str, given: str, written: str) -> None:
    row = TOPIC_KEYS[key]
    row.check(given)
    assert row.text_of(row.parse(given)) == written


@pytest.mark.parametrize(
    ("given", "written"), [("12345678", "1.2345678E7"), ("1e7", "1.0E7"), ("9999999", "9999999.0")]
)
def test_a_large_double_config_value_is_formatted_with_an_exponent(given: str, written: str) -> None:
    row = BROKER_KEYS["log.cleaner.io.max.bytes.per.second"]
    assert row.text_of(row.parse(given)) == written


def test_the_default_of_every_key_is_formatted_as_in_the_table() -> None:
    assert [key.text_of(key.default_value()) for key in KEYS] == [key.default for key in KEYS]


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("retention.ms", "9" * 5_000),
        ("retention.ms", "1_000"),
        ("retention.ms", "\u0665"),
        ("retention.ms", "\u00a05000"),
        ("retention.ms", ""),
        ("retention.ms", "5.0"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "0_1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1e"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", ",delete"),
        ("compression.gzip.level", "0"),
        ("compression.type", "ZSTD"),
    ],
)
def test_a_config_value_that_kafka_does_not_parse_is_refused(key: str, given: str) -> None:
    with pytest.raises(ConfigError, match=key):
        TOPIC_KEYS[key].check(given)
