"""Parsers of option texts: numbers, booleans, byte sizes, durations, points in time, topics, and JSON by partition.

Each parser takes the text and returns the value. It raises OptionValueError with what was expected.
Source: spark-sql-kafka-0-10, Spark's JavaUtils (durations).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from kraft.client.core.configs import ConfigError, parse_bootstrap
from kraft.client.core.durations import parse_iso_duration_ms
from kraft.client.spark.settings import EVERY_PARTITION
from kraft.seam import Address

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
EVERY = "*"
YEAR_DIGITS = 4
PLAUSIBLE_MS = 100_000_000_000
"""Smallest number that is accepted as ms since 1970: a time in 1973. A smaller number probably lacks a unit."""
_UNIT_MS = MappingProxyType(
    {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
)
_DURATION = re.compile(r"(\d{1,18})\s*([a-z]*)", re.ASCII)
_SIZE = re.compile(r"(\d{1,18})\s*([kmg]?)b?", re.ASCII)
_SHIFT = MappingProxyType({"": 0, "k": 10, "m": 20, "g": 30})
_USUAL_TOPIC = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")
_TIME_HINT = "expected milliseconds since 1970, ISO 8601 (2026-11-21T10:00:00Z), or how long ago (10m, 1h, 2d)"


class OptionValueError(ValueError):
    """The text of an option is invalid; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class TimeAgo:
    """A point in time given as a duration before now, in ms."""

    duration_ms: int

    def before(self, now_ms: int) -> int:
        return max(now_ms - self.duration_ms, 0)


Moment = int | TimeAgo
"""Type: a time in ms since 1970, or a duration before now."""


def moment_ms(moment: Moment, now_ms: int) -> int:
    """Return the point in time in ms since 1970."""
    return moment.before(now_ms) if isinstance(moment, TimeAgo) else moment


def text(value: str) -> str:
    """Return the text; raise OptionValueError if it is blank."""
    if not value.strip():
        raise OptionValueError("it is empty")
    return value.strip()


def truth(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise OptionValueError("expected true or false")
    return word == "true"


def number(least: int, most: int = INT64_MAX) -> Callable[[str], int]:
    """Return a parser of a whole number within these bounds, both inclusive."""

    def parse(value: str) -> int:
        digits = value.strip()
        if not re.fullmatch(r"-?\d{1,19}", digits, re.ASCII) or not least <= int(digits) <= most:
            limit = f"at least {least}" if most == INT64_MAX else f"from {least} to {most}"
            raise OptionValueError(f"expected a whole number, {limit}")
        return int(digits)

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts only these words, in upper or lower case."""

    def parse(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise OptionValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return word

    return parse


def size(value: str) -> int:
    """Parse a number of bytes, optionally with the unit k, m or g (KiB, MiB, GiB)."""
    match = _SIZE.fullmatch(value.strip().lower())
    found = 0 if match is None else int(match[1]) << _SHIFT[match[2]]
    if not 1 <= found <= INT64_MAX:
        raise OptionValueError("expected a number of bytes, at least 1, such as 1048576, 512k, 64m or 1g")
    return found


def duration(least_ms: int = 0) -> Callable[[str], int]:
    """Return a parser that converts a duration to ms: 15m, 500ms or PT15M; a number without a unit is in ms. A duration
    below `least_ms` is rejected."""

    def parse(value: str) -> int:
        found = _duration_ms(value, unit="ms")
        if found is None or not least_ms <= found <= INT32_MAX:
            raise OptionValueError(
                f"expected a duration such as 500ms, 30s or 15m, from {least_ms} ms to {INT32_MAX} ms"
            )
        return found

    return parse


def _duration_ms(value: str, *, unit: str) -> int | None:
    """Parse a duration into ms. `unit` applies if the text has no unit; with `unit` "", a text without a unit is
    rejected."""
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None:
        return parse_iso_duration_ms(value.strip())
    factor = _UNIT_MS.get(match[2] or unit)
    return None if factor is None else int(match[1]) * factor


def moment(value: str) -> Moment:
    """Parse a point in time: ms since 1970, ISO 8601 (UTC without a zone), or a duration before now."""
    given = value.strip()
    if given.isascii() and given.isdigit():
        if len(given) == YEAR_DIGITS and given[:2] in ("19", "20"):
            raise OptionValueError(f"it could be a year: write {given}-01-01, or milliseconds since 1970")
        return _within_time(int(given))
    ago_ms = _duration_ms(given, unit="")
    if ago_ms is not None:
        return TimeAgo(ago_ms)
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise OptionValueError(_TIME_HINT) from None
    return _within_time(round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))


def since(value: str) -> Moment:
    """Parse as `moment` does, but reject a number that is too small for a time in ms: it probably lacks its unit."""
    given = value.strip()
    if given.isascii() and given.isdigit() and int(given) < PLAUSIBLE_MS:
        raise OptionValueError(f"{_TIME_HINT}: write {given}m for minutes")
    return moment(value)


def _within_time(time_ms: int) -> int:
    if not 0 <= time_ms <= INT64_MAX:
        raise OptionValueError(f"{_TIME_HINT}, not before 1970")
    return time_ms


def addresses(value: str) -> tuple[Address, ...]:
    """Parse HOST:PORT[,HOST:PORT...]."""
    try:
        return tuple(parse_bootstrap([entry for entry in value.split(",") if entry.strip()]))
    except ConfigError as problem:
        raise OptionValueError(str(problem)) from None


def names(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names; each may occur only once."""
    found = [name.strip() for name in value.split(",") if name.strip()]
    if not found:
        raise OptionValueError("expected a name, or several between commas")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise OptionValueError(f"{twice} is there twice")
    return tuple(found)


def topic(value: str) -> str:
    """Parse the name of one topic."""
    _check_topic(value.strip())
    return value.strip()


def topics(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of topic names; repeated names count once."""
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not found:
        raise OptionValueError("it names no topic")
    for name in found:
        _check_topic(name)
    return found


def _check_topic(name: str) -> None:
    if _USUAL_TOPIC.fullmatch(name):
        return
    # imported only here, because it loads the controller's decisions
    from kraft.control.topics.names import topic_name_problem

    problem = topic_name_problem(name)
    if problem is not None:
        raise OptionValueError(problem)


def _json_of_topics(value: str, example: str) -> dict[str, Any]:
    """Parse a JSON object with topics as keys; no key may occur twice."""
    try:
        found = json.loads(value, object_pairs_hook=_once)
    except ValueError as problem:
        where = f" at {problem.pos}" if isinstance(problem, json.JSONDecodeError) else ""
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else problem
        raise OptionValueError(f"it is not JSON as expected ({reason}{where}): expected {example}") from None
    if not isinstance(found, dict) or not found:
        raise OptionValueError(f"expected {example}")
    for name in found:
        _check_topic(name)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        listed = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in listed if listed.count(key) > 1)} is there twice")
    return found


def assignment(value: str) -> dict[str, tuple[int, ...]]:
    """Parse a map of topic → partitions, such as `{"orders":[0,1]}`."""
    example = 'JSON such as {"orders":[0,1]}'
    found: dict[str, tuple[int, ...]] = {}
    for name, partitions in _json_of_topics(value, example).items():
        if not isinstance(partitions, list) or not partitions or not all(_is_index(one) for one in partitions):
            raise OptionValueError(f"topic {name}: expected a list of partition numbers: {example}")
        found[name] = tuple(sorted(set(partitions)))
    return found


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def offsets(value: str) -> Mapping[str, Mapping[int, int]]:
    """Parse a map of topic → partition → offset, where -2 is the earliest and -1 the latest offset. The key `"*"`
    becomes EVERY_PARTITION."""
    return _by_partition(value, least=-2, example='JSON such as {"orders":{"0":23,"1":-2}}; -2 is earliest, -1 latest')


def timestamps(value: str) -> Mapping[str, Mapping[int, int]]:
    """Parse a map of topic → partition → ms since 1970. The key `"*"` becomes EVERY_PARTITION."""
    return _by_partition(value, least=0, example='JSON such as {"orders":{"0":1700000000000}}, in ms since 1970')


def _by_partition(value: str, *, least: int, example: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for name, partitions in _json_of_topics(value, f"earliest, latest or {example}" if least < 0 else example).items():
        if not isinstance(partitions, dict) or not partitions:
            raise OptionValueError(f"topic {name}: expected {example}")
        found[name] = {_index(name, key): _entry(name, key, one, least) for key, one in partitions.items()}
        if len(found[name]) < len(partitions):
            raise OptionValueError(f"topic {name}: a partition is there twice")
        if EVERY_PARTITION in found[name] and len(found[name]) > 1:
            raise OptionValueError(f'topic {name}: "*" stands for all partitions, so no other may be named')
    return found


def _index(name: str, key: str) -> int:
    if key == EVERY:
        return EVERY_PARTITION
    if not re.fullmatch(r"\d{1,10}", key, re.ASCII) or not _is_index(int(key)):
        raise OptionValueError(f'topic {name}: {key!r} is no partition: expected a number in quotes, or "*" for all')
    return int(key)


def _entry(name: str, key: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= INT64_MAX:
        raise OptionValueError(f"topic {name}, partition {key}: {value!r} is not a 64-bit integer of at least {least}")
    return value


def start(value: str) -> str | Mapping[str, Mapping[int, int]]:
    """Parse `earliest`, `latest`, or offsets as JSON."""
    word = value.strip().lower()
    return word if word in ("earliest", "latest") else offsets(value)
