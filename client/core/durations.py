"""Durations in ISO 8601 format, as in Kafka's settings and command lines: `PT1H30M`, `P1DT0.5S`.

The grammar is that of Java's `Duration`, which Kafka uses: letters of either case, and a sign before the whole text and
before each part. In addition, weeks are accepted.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from types import MappingProxyType

_UNIT_MS = MappingProxyType({"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000})
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<w>[-+]?\d+)W)?(?:(?P<d>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<h>[-+]?\d+)H)?(?:(?P<m>[-+]?\d+)M)?(?:(?P<s>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_iso_duration_ms(text: str) -> int | None:
    """Parse a duration and return ms, rounded up. None if the text is not a duration or is negative."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    parts = [(unit, value.replace(",", ".")) for unit in _UNIT_MS if (value := match[unit])]
    total = sum((Fraction(value) * _UNIT_MS[unit] for unit, value in parts), Fraction())
    if match["sign"] == "-":
        total = -total
    return ceil(total) if parts and total >= 0 else None
