"""How a table of a scenario file is read: which keys it may have, and which values are valid.

A table's keys are data: key → (field, rule). A rule converts the file's value to the field's value, or raises Wrong
with the expected value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from kraft.sim.chaos.scenarios.scenario import ScenarioError

SECONDS_MAX = 24 * 60 * 60
"""One day, the maximum of every time in a scenario."""

Rule = Callable[[Any], Any]
Keys = Mapping[str, tuple[str, Rule]]


class Wrong(ValueError):
    """Raised for a value that is not valid for its key; the text says what is expected."""


def read_table(where: str, given: object, keys: Keys, others: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a table. `others`: further valid keys of the table, listed in the error for an unknown key.
    Raises ScenarioError."""
    if not isinstance(given, dict):
        raise ScenarioError(f"{where} must be a table, and is {given!r}")
    fields: dict[str, Any] = {}
    for key, value in given.items():
        if key not in keys:
            known = (*keys, *others)
            raise ScenarioError(f"{where}: unknown key {key!r}: {nearest(key, known) or _list('keys', known)}")
        field, rule = keys[key]
        try:
            fields[field] = rule(value)
        except Wrong as expected:
            raise ScenarioError(f"{where}: {key} must be {expected}, and is {value!r}") from None
    return fields


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean …?", or "" if no known name is similar."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else ""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong("a text")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value


def whole(least: int | None = None) -> Rule:
    """Return a rule for whole numbers that are at least `least`."""
    words = "a whole number" if least is None else f"a whole number, {least} or more"

    def rule(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            raise Wrong(words)
        return value

    return rule


def number(least: float) -> Rule:
    """Return a rule for finite numbers that are at least `least`."""

    def rule(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Wrong(f"a number, {least:g} or more")
        if not math.isfinite(value) or value < least:
            raise Wrong(f"a number, {least:g} or more")
        return float(value)

    return rule


def seconds(least: float) -> Rule:
    """Return a rule for seconds, at least `least` and at most a day; it converts them to whole ms."""

    def rule(value: object) -> int:
        try:
            found: float = number(least)(value)
        except Wrong:
            raise Wrong(f"a number of seconds, {least:g} or more") from None
        if found > SECONDS_MAX:
            raise Wrong(f"a number of seconds, a day ({SECONDS_MAX}) at most")
        return round(found * 1000)

    return rule


def one_of(known: Sequence[str]) -> Rule:
    """Return a rule for one of these names."""

    def rule(value: object) -> str:
        if value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise Wrong(f"one of {', '.join(map(repr, known))}{f' ({hint})' if hint else ''}")
        return str(value)

    return rule


def names_of(known: Sequence[str]) -> Rule:
    """Return a rule for a list of these names."""

    def rule(value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise Wrong(f"a list of names of {', '.join(known)}")
        return tuple(map(one_of(known), value))

    return rule


def texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise Wrong("a table of texts, as in server.properties (numbers in quotation marks, names with dots too)")
    return value


def _list(what: str, known: Iterable[str]) -> str:
    return f"known {what} are {', '.join(known)}"
