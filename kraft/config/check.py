"""What each line of a server.properties means here, without starting a node.

Source: the tables of `kraft.config.tables`, and the rules of NodeConfig for what needs more than one key.
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
    """What a line does."""

    EFFECTIVE = "effective"
    DEFAULT = "effective, as the default"
    NO_EFFECT = "accepted, no effect"
    OVERRIDDEN = "overridden"
    REFUSED = "refused"
    UNKNOWN = "unknown"


STOPS = frozenset({Meaning.REFUSED, Meaning.UNKNOWN})
"""A node with such a line does not start; with --ignore-unknown it does in spite of the second."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line. `source`: its line number, or the variable that it comes from."""

    source: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSetting:
    """`value` is as it may be printed. `default` is None for a key without one. `why` says what to know of it."""

    source: str
    key: str
    value: str
    meaning: Meaning
    default: str | None = None
    why: str = ""


def check_settings(settings: Sequence[Setting]) -> tuple[CheckedSetting, ...]:
    """What each of these means; the last setting of a key is the one that counts."""
    last = {setting.key: setting for setting in settings}
    return tuple(_check(setting, last[setting.key]) for setting in settings)


def check_whole(settings: Iterable[Setting]) -> str | None:
    """What is wrong with the settings as a whole, where each by itself is fine; None if a node can start with them.
    Unknown keys are passed over."""
    try:
        NodeConfig.parse({setting.key: setting.value for setting in settings}, ignore_unknown=True)
    except ConfigError as problem:
        return str(problem)
    return None


def _check(setting: Setting, last: Setting) -> CheckedSetting:
    try:
        key = broker_key(setting.key)
    except ConfigError as problem:
        return CheckedSetting(
            source=setting.source,
            key=setting.key,
            value="[hidden]",  # it may be the misspelt name of a secret
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


def _meaning(key: ConfigKey, setting: Setting) -> tuple[Meaning, str]:
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
