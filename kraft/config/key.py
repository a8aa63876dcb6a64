"""ConfigKey: the definition of one configuration key, and the conversion of its text to a value.

The key's type determines the type of the value: BOOLEAN bool; INT, SHORT and LONG int; DOUBLE float; LIST a tuple of
strings. STRING, CLASS and PASSWORD are str, or None where the key has no default.
Source: Kafka's ConfigDef, DescribeConfigsResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType

from kraft.config.errors import ConfigError

INTEGER_DIGITS_MAX = 100
"""Maximum digits of a number. No type of key holds a longer number, and Python refuses to convert very long ones."""

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_INTEGER = re.compile("[+-]?[0-9]+")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")

ConfigValue = bool | int | float | str | tuple[str, ...] | None

Validator = Callable[[ConfigValue], str | None]
"""Function that checks a value. It returns None if the value is valid, else what was expected: `must be at least 1`.
Its docstring describes the valid values."""


class KeyType(IntEnum):
    """Types of configuration keys, with their codes in DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Effect(Enum):
    """Whether a key takes effect in this implementation."""

    EFFECTIVE = "effective"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "refused"


class UpdateMode(Enum):
    """Whether a broker key can change while nodes run: not at all, for one broker, or for the whole cluster too."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """Definition of one key. `default` is the default's text as Kafka writes it, or None for no default.

    `reason` explains why a key has no effect or is refused. `broker_key` is, for a topic key, the broker key that
    provides its default. A REFUSED key may still be set to its default."""

    name: str
    type: KeyType
    default: str | None
    doc: str
    effect: Effect = Effect.EFFECTIVE
    reason: str = ""
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    broker_key: str | None = None
    is_internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is a secret, which is never displayed."""
        return self.type is KeyType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """Return the typed value of `text`. Raises ConfigError if it does not fit the key's type or range, or the key
        is refused."""
        value = _PARSERS[self.type](self.name, text)
        if self.effect is Effect.REFUSED and (self.text_of(value) or "") != (self.default or ""):
            raise ConfigError(self.name, f"{shown(self, text)} is refused: {self.reason}")
        if self.validator is not None:
            expected = self.validator(value)
            if expected is not None:
                raise ConfigError(self.name, f"the value {shown(self, text)} is not allowed: it {expected}")
        return value

    def check(self, text: str) -> None:
        """Raise ConfigError if the key cannot be set to `text`: if `parse` raises, or if a list has empty members."""
        self.parse(text)
        if self.type is KeyType.LIST and _trim(text) and not all(_members(text)):
            raise ConfigError(self.name, f"the value {text!r} has an empty member: take a comma away")

    def text_of(self, value: ConfigValue) -> str | None:
        """Return a value of this key as Kafka writes it: ` 5000 ` becomes 5000, 0.30 becomes 0.3, and a,a becomes a."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(dict.fromkeys(value))
        return _java_double(value) if isinstance(value, float) else str(value)

    def require_dynamic(self, *, per_broker: bool) -> None:
        """Raise ConfigError unless the key can change while nodes run, for one broker or for the cluster."""
        if self.update_mode is UpdateMode.READ_ONLY:
            raise ConfigError(self.name, "cannot change while the node runs; set it in server.properties and restart")
        if self.update_mode is UpdateMode.PER_BROKER and not per_broker:
            raise ConfigError(self.name, "can be set for one broker only, not for the whole cluster; name a broker id")

    def default_value(self) -> ConfigValue:
        """Return the default as a typed value, or None."""
        return None if self.default is None else _PARSERS[self.type](self.name, self.default)


def shown(key: ConfigKey, text: str) -> str:
    """Return `text` quoted for an error message, or `[hidden]` if the key holds a secret."""
    return "[hidden]" if key.is_sensitive else repr(text)


def _trim(text: str) -> str:
    """Strip ASCII blanks and control characters from both ends, as Java's String.trim does."""
    return text.strip(_JAVA_BLANKS)


def _boolean(name: str, text: str) -> bool:
    word = _trim(text).lower()
    if word not in ("true", "false"):
        raise ConfigError(name, f"{text!r} is not a boolean: write true or false")
    return word == "true"


def _integer(bits: int) -> Callable[[str, str], int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def parse(name: str, text: str) -> int:
        word = _trim(text)
        if not _INTEGER.fullmatch(word):
            raise ConfigError(name, f"{text!r} is not a whole number")
        value = int(word) if len(word) <= INTEGER_DIGITS_MAX else high + 1
        if not low <= value <= high:
            raise ConfigError(name, f"{text!r} does not fit {bits} bits: it must lie between {low} and {high}")
        return value

    return parse


def _double(name: str, text: str) -> float:
    found = _DOUBLE.fullmatch(_trim(text))
    if found is None:
        raise ConfigError(name, f"{text!r} is not a number")
    return float(found[1])


def _java_double(value: float) -> str:
    """Format a float as Java's Double.toString: decimal notation from 0.001 to 10 million, else scientific (1.0E7)."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if not isinstance(exponent, int):
        return repr(value)
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"


def _list(name: str, text: str) -> tuple[str, ...]:
    return tuple(filter(None, _members(text)))


def _members(text: str) -> list[str]:
    return [part.strip() for part in _trim(text).split(",")]


def _string(name: str, text: str) -> str:
    return _trim(text)


_PARSERS: Mapping[KeyType, Callable[[str, str], ConfigValue]] = MappingProxyType(
    {
        KeyType.BOOLEAN: _boolean,
        KeyType.STRING: _string,
        KeyType.INT: _integer(32),
        KeyType.SHORT: _integer(16),
        KeyType.LONG: _integer(64),
        KeyType.DOUBLE: _double,
        KeyType.LIST: _list,
        KeyType.CLASS: _string,
        KeyType.PASSWORD: _string,
    }
)
