"""The tables agree with the code: each key marked as effective is read somewhere, and no other key is read anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, Effect
from kraft.config.tables.group import BOUNDS

ROOT = Path(__file__).resolve().parents[2]
SYNONYMS = {broker for synonyms in TOPIC_SYNONYMS.values() for broker, _ in synonyms}
OF_GROUPS = {key.broker_key for key in GROUP_KEYS.values()} | {key for bounds in BOUNDS.values() for key in bounds}
"""Broker keys that the code reads through the table of group keys."""


def source() -> str:
    """Return the text of all code that may read configuration keys.

    Excluded are the tables themselves, the resolution of topics, the files that `kraft up` writes, chaos (it writes
    files of Apache Kafka), and the options of Spark's sources (settings of clients)."""
    skipped = (
        *("config/tables/", "config/table.py", "config/topic.py", "launch/layout.py", "sim/chaos/"),
        "client/spark/options/",
    )
    folders = ("kraft", "broker", "client", "sim", "deploy")
    paths = {path for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return "\n".join(path.read_text() for path in sorted(paths) if not any(part in str(path) for part in skipped))


SOURCE = source()


@pytest.mark.parametrize("key", BROKER_KEYS.values(), ids=lambda key: key.name)
def test_the_code_reads_exactly_the_effective_broker_keys(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    if key.name in SYNONYMS | OF_GROUPS or key.effect is Effect.REFUSED:
        return
    is_read = f'"{key.name}"' in SOURCE
    assert is_read == (key.effect is Effect.EFFECTIVE), "correct the effect in kraft/config/tables"


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda key: key.name)
def test_the_code_uses_every_effective_topic_key(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    if key.effect is Effect.EFFECTIVE and key.name != "internal.segment.bytes":
        field = key.name.replace(".", "_")
        assert f".{field}" in SOURCE or f'"{key.name}"' in SOURCE, "correct the effect in kraft/config/tables"


@pytest.mark.parametrize("key", GROUP_KEYS.values(), ids=lambda key: key.name)
def test_the_code_reads_exactly_the_effective_group_keys(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    is_read = f'"{key.name}"' in SOURCE
    assert is_read == (key.effect is Effect.EFFECTIVE), "correct the effect in kraft/config/tables"
    if key.broker_key is not None:
        assert BROKER_KEYS[key.broker_key].effect is key.effect
        assert BROKER_KEYS[key.broker_key].default == key.default
