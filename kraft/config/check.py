"""Explain the effect of each line of a server.properties file, without starting a node.

The rules are in the tables of `kraft.config.tables`. Rules that involve more than one key are in NodeConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from kraft.config.errors import ConfigError
from kraft.config.key import ConfigKey, Effect, shown
from kraft.config.node import NodeConfig
from kraft.config.table import broker_key


class Meaning(Enum):
    """Effect of one line of a server.properties file."""

    EFFECTIVE = "effective"
    DEFAULT = "effective, as the default"
    NO_EFFECT = "accepted, no effect"
    OVERRIDDEN = "overridden"
    REFUSED = "refused"
    UNKNOWN = "unknown"


STOPS = frozenset({Meaning.REFUSED, Meaning.UNKNOWN})
"""Meanings of a line that prevent a node from starting. With the option --ignore-unknown, an unknown key does not."""


@dataclass(frozen=True, slots=True)
class RawSetting:
    """One line of a server.properties file. `source` is its line number, or the name of the environment variable that
    set the key."""

    source: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSetting:
    """A setting with its effect.

    `value` is safe to print: secrets are hidden. `default` is None for a key without a default. `why` is the reason for
    `meaning`, empty if none is needed."""

    source: str
    key: str
    value: str
    meaning: Meaning
    default: str | None = None
    why: str = ""


def check_settings(settings: Sequence[RawSetting]) -> tuple[CheckedSetting, ...]:
    """Return the effect of each setting. If a key occurs more than once, the last setting applies."""
    last = {setting.key: setting for setting in settings}
    return tuple(_check(setting, last[setting.key]) for setting in settings)


def check_whole(settings: Iterable[RawSetting]) -> str | None:
    """Return why a node cannot start with all of these settings together; None if it can. Unknown keys are ignored."""
    try:
        NodeConfig.parse({setting.key: setting.value for setting in settings}, ignore_unknown=True)
    except ConfigError as problem:
        return str(problem)
    return None


def _check(setting: RawSetting, last: RawSetting) -> CheckedSetting:
    try:
        key = broker_key(setting.key)
    except ConfigError as problem:
        return CheckedSetting(
            source=setting.source,
            key=setting.key,
            value="[hidden]",  # may be the misspelt name of a secret
            meaning=Meaning.UNKNOWN,
            why=_without_name(problem, setting.key),
        )
    meaning, why = _meaning(key, setting)
    if last is not setting and meaning is not Meaning.REFUSED:
        meaning, why = Meaning.OVERRIDDEN, f"by {last.source}"
    return CheckedSetting(
        source=setting.source,
        key=setting.key,
        value=shown(key, setting.value) if key.is_sensitive else setting.value,
        meaning=meaning,
        default=key.default,
        why=why,
    )


def _meaning(key: ConfigKey, setting: RawSetting) -> tuple[Meaning, str]:
    try:
        value = key.parse(setting.value)
    except ConfigError as problem:
        return Meaning.REFUSED, _without_name(problem, key.name)
    if key.effect is Effect.NO_EFFECT:
        return Meaning.NO_EFFECT, key.reason
    if key.default is not None and key.text_of(value) == key.text_of(key.default_value()):
        return Meaning.DEFAULT, ""
    return Meaning.EFFECTIVE, ""


def _without_name(problem: ConfigError, name: str) -> str:
    return str(problem).removeprefix(f"{name}: ").removeprefix(f"{name} ")
