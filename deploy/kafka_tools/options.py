"""Options of Kafka's tools: `--name`, `--name value` and `--name=value`, each allowed more than once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class ToolError(Exception):
    """An option or a combination that no kraft command has; the text says what to use instead."""


class Options:
    """The options of one command line, taken one after the other; what is left at the end has no counterpart."""

    def __init__(self, verb: str, given: Mapping[str, Sequence[str]]) -> None:
        """`verb` names the kraft command whose help the messages point to."""
        self.verb = verb
        self._given = {name: list(values) for name, values in given.items()}

    def has(self, name: str) -> bool:
        """Whether the option was given and not taken yet."""
        return name in self._given

    def flag(self, name: str) -> bool:
        """Take an option that has no value."""
        return self._given.pop(name, None) is not None

    def values(self, *names: str) -> list[str]:
        """Take all values of these options."""
        return [value for name in names for value in self._given.pop(name, [])]

    def value(self, *names: str) -> str | None:
        """Take an option's value; the last one wins."""
        found = self.values(*names)
        return found[-1] if found else None

    def required(self, *names: str) -> str:
        """Take the value of an option that the tool cannot do without."""
        found = self.value(*names)
        if found is None:
            raise ToolError(f"{names[0]} is missing")
        return found

    def words(self, pairs: Mapping[str, str]) -> list[str]:
        """Take options that kraft has by another name: Kafka's name → kraft's, with their values."""
        return [word for name, ours in pairs.items() for value in self.values(name) for word in (ours, value)]

    def flags(self, pairs: Mapping[str, str]) -> list[str]:
        """Take options without a value that kraft has by another name."""
        return [ours for name, ours in pairs.items() if self.flag(name)]

    def refuse_rest(self) -> None:
        """ToolError for what nobody took."""
        if self._given:
            raise ToolError(f"{', '.join(self._given)}: no counterpart here; see: kraft {self.verb} --help")


def parse(verb: str, arguments: Sequence[str], *, flags: Iterable[str], optional: Iterable[str] = ()) -> Options:
    """Read a command line. An option in `flags` has no value, one in `optional` has one unless an option follows."""
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
    """`key=value` texts as a mapping."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
