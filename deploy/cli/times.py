"""Points in time and durations as users type them.

A time is ISO 8601 (`2026-11-21T10:00:00.000+01:00`; UTC if it has no zone), milliseconds since 1970, `now`, or a
duration before now (`-90m`). A duration is ISO 8601 (`P1DT2H30M`) or short (`1d2h30m`, `45s`, `500ms`). Times before
1970 are rejected: negative times have special meanings in Kafka's requests.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from types import MappingProxyType

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed

YEAR_DIGITS = 4
TIME_MS_MAX = (1 << 63) - 1
_CALENDAR_MS_MAX = 253_402_300_799_000
"""End of the year 9999, the last that Python's calendar can format."""
_SHORT_DURATION = re.compile(
    r"(?:(?P<w>\d+)w)?(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+)ms)?"
)
_UNIT_MS = MappingProxyType({"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1})


def parse_duration_ms(text: str) -> int:
    """Return a duration in ms. Raise CommandFailed for anything else."""
    match = _SHORT_DURATION.fullmatch(text)
    if match is not None and any(match.groupdict().values()):
        return round(sum(Fraction(value) * _UNIT_MS[unit] for unit, value in match.groupdict().items() if value))
    # imported here because this import loads the whole client
    from kraft.client.core.durations import parse_iso_duration_ms

    found = parse_iso_duration_ms(text)
    if found is not None:
        return found
    raise CommandFailed(f"{text!r} is not a duration: expected P1DT2H30M or 1d2h30m", code=EXIT_USAGE)


def parse_time_ms(text: str, now_ms: int) -> int:
    """Return a point in time in ms since 1970. Raise CommandFailed for anything else."""
    if text == "now":
        return now_ms
    if text.isdigit() and len(text) == YEAR_DIGITS and text[:2] in ("19", "20"):
        raise CommandFailed(
            f"{text!r} could be a year, so it is not taken as milliseconds: write {text}-01-01",
            code=EXIT_USAGE,
        )
    if text.isdecimal():
        return _within_bounds(int(text), text)
    if text.startswith("-"):
        return time_before_ms(text[1:], now_ms)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"{text!r} is not a time: expected 2026-11-21T10:00:00, milliseconds since 1970, or -1h", code=EXIT_USAGE
        ) from None
    return _within_bounds(round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000), text)


def time_before_ms(duration: str, now_ms: int) -> int:
    """Return the time that lies this duration before now, in ms since 1970. Raise CommandFailed if the result is not a
    valid time."""
    return _within_bounds(now_ms - parse_duration_ms(duration), duration)


def _within_bounds(time_ms: int, text: str) -> int:
    if time_ms < 0:
        raise CommandFailed(f"{text!r} is before 1970, and no record is that old: use earliest", code=EXIT_USAGE)
    if time_ms > TIME_MS_MAX:
        raise CommandFailed(
            f"{text!r} is not a time that a record can have: there are at most {TIME_MS_MAX} milliseconds since 1970",
            code=EXIT_USAGE,
        )
    return time_ms


def format_time(time_ms: int | None) -> str | None:
    """Return a time in UTC with milliseconds; the number of milliseconds beyond the year 9999; None for None."""
    if time_ms is None or time_ms < 0:
        return None
    if time_ms > _CALENDAR_MS_MAX:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03}Z"
