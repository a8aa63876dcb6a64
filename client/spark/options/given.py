"""Parse the options given to one read or write: check that each name is known, and parse each value once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kraft.client.spark.options.kafka_names import REFUSED, SASL, SASL_REASON, WITHOUT_EFFECT
from kraft.client.spark.options.table import OPTIONS, Kind, Option, options_of
from kraft.client.spark.options.values import OptionValueError

KAFKA = "kafka."
SPARK_OWN = frozenset({"checkpointlocation", "path", "queryname", "serialization.format"})
"""Options that Spark itself adds for a source or sink."""
_PLAIN_WITHOUT_EFFECT = frozenset({"groupidprefix"})


class OptionError(ValueError):
    """Invalid options. The message names the option, what was wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """Parsed option values by option name (in the spelling of the option list), and the names of options accepted
    without effect."""

    kind: Kind
    values: Mapping[str, Any]
    without_effect: tuple[str, ...]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        return name in self.values

    def only_one(self, *names: str) -> str | None:
        """Return which one of these options is given, or None. Raises OptionError if several of them are given."""
        found = [name for name in names if name in self.values]
        if len(found) > 1:
            raise OptionError(f"{found[0]} and {found[1]} are both given: give one of them")
        return found[0] if found else None


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with their names in lower case. Raises OptionError if two names differ only in case."""
    found: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() in found:
            raise OptionError(f"option {name} is given twice: case makes no difference")
        found[name.lower()] = str(value)
    return found


def read_given(options: Mapping[str, str], kind: Kind) -> ParsedOptions:
    """Parse all options. Raises OptionError for an option that is unknown, rejected, meant for another kind of read or
    write, or has an invalid value."""
    known = options_of(kind)
    values: dict[str, Any] = {}
    without_effect: list[str] = []
    for name, value in lowered(options).items():
        option = known.get(name)
        if option is not None:
            values[option.name] = parse_option(option, value)
        elif name not in SPARK_OWN:
            without_effect.append(_accepted_without_effect(name, kind))
        if name in _PLAIN_WITHOUT_EFFECT:
            without_effect.append(known[name].name)
    return ParsedOptions(kind, values, tuple(sorted(without_effect)))


def parse_option(option: Option, value: str) -> Any:
    """Parse the value of one option. The OptionError names the option, its value unless it is secret, and what was
    expected."""
    try:
        return option.parse(value)
    except OptionValueError as problem:
        shown = "" if option.is_secret else f"={value}"
        raise OptionError(f"option {option.name}{shown}: {problem}") from None


def _accepted_without_effect(name: str, kind: Kind) -> str:
    """Return the name of an option if it is accepted without effect. Raises OptionError if it is not."""
    elsewhere = next((one for one in OPTIONS if one.name.lower() == name), None)
    if elsewhere is not None:
        if kind in elsewhere.ignored_by:
            return elsewhere.name
        kinds = " or ".join(
            one.value for one in Kind if any(one in o.kinds for o in OPTIONS if o.name == elsewhere.name)
        )
        raise OptionError(f"option {elsewhere.name} is for {kinds}, not for {kind.value}: leave it out")
    setting = name.removeprefix(KAFKA)
    if setting == name:
        raise OptionError(f"there is no option {name}{_nearest(name, [one.name for one in options_of(kind).values()])}")
    if setting in REFUSED:
        raise OptionError(f"option {name} cannot be set: {REFUSED[setting]}")
    if setting.startswith(SASL):
        raise OptionError(f"option {name} cannot be set: {SASL_REASON}")
    if setting not in WITHOUT_EFFECT and setting != "group.id":
        settings = {one.name for one in OPTIONS if one.name.startswith(KAFKA)}
        settings |= {KAFKA + one for one in (*WITHOUT_EFFECT, *REFUSED)}
        raise OptionError(f"{name} is not a setting of Kafka's clients{_nearest(name, settings)}")
    return name


def _nearest(name: str, known: Any) -> str:
    """Return a hint for an error message: the known option name nearest to this one, or else the command that lists all
    names."""
    spelled = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name, sorted(spelled), 1)
    return f"; did you mean {spelled[near[0]]}?" if near else "; `kraft spark options` lists all"
