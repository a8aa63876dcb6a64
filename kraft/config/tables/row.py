"""Helper that writes one row of a table: `key(name, TYPE, default, doc, validator, …)`."""

from __future__ import annotations

from kraft.config.key import ConfigKey, Effect, KeyType, UpdateMode, Validator

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = KeyType
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
PER_BROKER = UpdateMode.PER_BROKER


def key(
    name: str,
    type: KeyType,
    default: str | None,
    doc: str,
    validator: Validator | None = None,
    *,
    no_effect: str = "",
    refused: str = "",
    update: UpdateMode = UpdateMode.READ_ONLY,
    broker: str | None = None,
    internal: bool = False,
) -> ConfigKey:
    """Define a key. `no_effect` and `refused` are reasons; a key without either is effective. `broker` is the broker
    key that provides a topic key's default."""
    effect = Effect.REFUSED if refused else Effect.NO_EFFECT if no_effect else Effect.EFFECTIVE
    return ConfigKey(
        name=name,
        type=type,
        default=default,
        doc=doc,
        effect=effect,
        reason=refused or no_effect,
        validator=validator,
        update_mode=update,
        broker_key=broker,
        is_internal=internal,
    )
