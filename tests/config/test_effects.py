"""The tables agree with the code: each key marked as effective is read somewhere, and no other key is read anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.config import BROKER_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, Effect

ROOT = Path(__file__).resolve().parents[2]
SYNONYMS = {broker for synonyms in TOPIC_SYNONYMS.values() for broker, _ in synonyms}


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
    if key.name in SYNONYMS or key.effect is Effect.REFUSED:
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
