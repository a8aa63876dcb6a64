"""What the table says of a key is what the code does: effective keys are read somewhere, the others nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.config import BROKER_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, Effect

ROOT = Path(__file__).resolve().parents[2]
SYNONYMS = {broker for synonyms in TOPIC_SYNONYMS.values() for broker, _ in synonyms}


def source() -> str:
    """All code but the tables themselves, the resolution of topics, what `kraft up` writes into files, chaos, which
    writes files of Apache Kafka, and the options of Spark's sources, which are settings of clients."""
    skipped = (
        *("config/tables/", "config/table.py", "config/topic.py", "launch/layout.py", "sim/chaos/"),
        "client/spark/options/",
    )
    folders = ("kraft", "broker", "client", "sim", "deploy")
    paths = {path for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return "\n".join(path.read_text() for path in sorted(paths) if not any(part in str(path) for part in skipped))


SOURCE = source()


@pytest.mark.parametrize("key", BROKER_KEYS.values(), ids=lambda key: key.name)
def test_an_effective_broker_key_is_read_and_another_is_not(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    if key.name in SYNONYMS or key.effect is Effect.REFUSED:
        return
    is_read = f'"{key.name}"' in SOURCE
    assert is_read == (key.effect is Effect.EFFECTIVE), "correct the effect in kraft/config/tables"


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda key: key.name)
def test_an_effective_topic_key_is_used(key: object) -> None:
    from kraft.config import ConfigKey

    assert isinstance(key, ConfigKey)
    if key.effect is Effect.EFFECTIVE and key.name != "internal.segment.bytes":
        field = key.name.replace(".", "_")
        assert f".{field}" in SOURCE or f'"{key.name}"' in SOURCE, "correct the effect in kraft/config/tables"
