"""Options of Kafka's tools: `--name`, `--name value` and `--name=value`, each allowed more than once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class ToolError(Exception):
    """No kraft command corresponds to an option or a combination of options. The text names an alternative."""


class Options:
    """The options of one command line. The translation takes one after the other; options that remain at the end have
    no counterpart."""

    def __init__(self, verb: str, given: Mapping[str, Sequence[str]]) -> None:
        """`verb` is the kraft command whose help error messages refer to."""
        self.verb = verb
        self._given = {name: list(values) for name, values in given.items()}

    def has(self, name: str) -> bool:
        """Whether the option was given and has not been taken yet."""
        return name in self._given

    def flag(self, name: str) -> bool:
        """Take an option that has no value."""
        return self._given.pop(name, None) is not None

    def values(self, *names: str) -> list[str]:
        """Take all values of these options."""
        return [value for name in names for value in self._given.pop(name, [])]

    def value(self, *names: str) -> str | None:
        """Take an option that is given with a value, and return the value; if it was given repeatedly, the last
        value."""
        found = self.values(*names)
        return found[-1] if found else None

    def required(self, *names: str) -> str:
        """Take the value of a required option."""
        found = self.value(*names)
        if found is None:
            raise ToolError(f"{names[0]} is missing")
        return found

    def words(self, pairs: Mapping[str, str]) -> list[str]:
        """Take options that have another name in kraft, and return them with kraft's names and their values. `pairs`
        maps Kafka's names to kraft's."""
        return [word for name, ours in pairs.items() for value in self.values(name) for word in (ours, value)]

    def flags(self, pairs: Mapping[str, str]) -> list[str]:
        """Take options that have no value and another name in kraft. Return kraft's names of those that were given."""
        return [ours for name, ours in pairs.items() if self.flag(name)]

    def refuse_rest(self) -> None:
        """Raise ToolError if there are options that were not taken."""
        if self._given:
            raise ToolError(f"{', '.join(self._given)}: no counterpart here; see: kraft {self.verb} --help")


def parse(verb: str, arguments: Sequence[str], *, flags: Iterable[str], optional: Iterable[str] = ()) -> Options:
    """Parse a command line. An option in `flags` has no value. An option in `optional` has a value unless another
    option follows."""
    bare, given, rest = set(flags), dict[str, list[str]](), list(arguments)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if not name.startswith("--"):
            raise ToolError(f"unexpected argument {name!r}; see: kraft {verb} --help")
        values = given.setdefault(name, [])
        if has_value:
            values.append(value)
        elif name not in bare and not (name in optional and (not rest or rest[0].startswith("--"))):
            if not rest:
                raise ToolError(f"{name} needs a value")
            values.append(rest.pop(0))
    return Options(verb, given)


def properties(pairs: Iterable[str]) -> dict[str, str]:
    """Return `key=value` texts as a mapping."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
