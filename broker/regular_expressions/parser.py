"""Read the text of a regular expression into its syntax tree.

The syntax is that of RE2: no back-references and no look-around, so that matching never needs to go back. Open groups
are on a stack, so the depth of the text is bounded by NESTING_MAX and not by Python's stack.
Source: RE2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft.broker.regular_expressions.brackets import read_bracket
from kraft.broker.regular_expressions.characters import (
    ANY,
    ANY_BUT_NEWLINE,
    CharacterRange,
    CharacterSet,
)
from kraft.broker.regular_expressions.escapes import read_character_escape, read_class_escape
from kraft.broker.regular_expressions.nodes import (
    Alternation,
    Assertion,
    AssertionKind,
    Characters,
    Empty,
    InvalidExpression,
    Repetition,
    SyntaxNode,
    concatenation,
)

CHARACTERS_MAX = 10_000
NESTING_MAX = 100
REPETITIONS_MAX = 1000
"""Maximum number in {n,m}, as in RE2."""

_COUNTED = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_NAMED_GROUP = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_FLAGS = re.compile(r"\(\?([imsU]*)(-([imsU]+))?([:)])")
_UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "(?=": "look-ahead",
        "(?!": "look-ahead",
        "(?<=": "look-behind",
        "(?<!": "look-behind",
        "(?P=": "a back-reference",
        "(?>": "an atomic group",
        "(?#": "a comment",
    }
)
_ASSERTION_ESCAPES: Mapping[str, AssertionKind] = MappingProxyType(
    {
        "A": AssertionKind.TEXT_START,
        "z": AssertionKind.TEXT_END,
        "b": AssertionKind.WORD_BOUNDARY,
        "B": AssertionKind.NO_WORD_BOUNDARY,
    }
)
_SIMPLE_REPETITIONS: Mapping[str, tuple[int, int | None]] = MappingProxyType(
    {"*": (0, None), "+": (1, None), "?": (0, 1)}
)


class _Flags(NamedTuple):
    ignores_case: bool = False
    is_multi_line: bool = False
    dot_matches_newline: bool = False


class _OpenGroup:
    """A group whose end was not read yet. `flags` are those that hold again after it."""

    def __init__(self, position: int, flags: _Flags) -> None:
        self.position = position
        self.flags = flags
        self.branches: list[SyntaxNode] = []
        self.parts: list[SyntaxNode] = []

    def end_branch(self) -> None:
        self.branches.append(concatenation(self.parts))
        self.parts = []

    def close(self) -> SyntaxNode:
        self.end_branch()
        return self.branches[0] if len(self.branches) == 1 else Alternation(tuple(self.branches))


def parse(text: str) -> SyntaxNode:
    """Return the syntax tree of `text`. Raises InvalidExpression."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.flags = _Flags()
        self.groups = [_OpenGroup(0, self.flags)]
        self.names: set[str] = set()
        self.repeated_until = -1
        """Position behind the last repetition operator, where another one is not allowed."""

    def parse(self) -> SyntaxNode:
        if len(self.text) > CHARACTERS_MAX:
            raise self._error(f"longer than {CHARACTERS_MAX} characters", CHARACTERS_MAX)
        while self.position < len(self.text):
            self._read_next()
        if len(self.groups) > 1:
            raise self._error('missing ")" of the group', self.groups[-1].position)
        return self.groups[0].close()

    def _error(self, reason: str, position: int | None = None) -> InvalidExpression:
        return InvalidExpression(self.text, self.position if position is None else position, reason)

    def _read_next(self) -> None:
        character = self.text[self.position]
        if character == "(":
            self._open_group()
        elif character == ")":
            self._close_group()
        elif character == "|":
            self.groups[-1].end_branch()
            self.position += 1
        elif character == "\\":
            self._read_escape()
        elif character in _SIMPLE_REPETITIONS:
            low, high = _SIMPLE_REPETITIONS[character]
            self._repeat(low, high, self.position + 1)
        elif character == "{" and (counted := _COUNTED.match(self.text, self.position)):
            self._repeat_counted(counted)
        else:
            self._read_simple(character)

    def _read_simple(self, character: str) -> None:
        """Read a bracket, a dot, an anchor or a literal."""
        flags = self.flags
        end = self.position + 1
        if character == "[":
            characters, end = read_bracket(self.text, self.position, ignores_case=flags.ignores_case)
            self._add(Characters(characters), end)
        elif character == ".":
            self._add(Characters(ANY if flags.dot_matches_newline else ANY_BUT_NEWLINE), end)
        elif character == "^":
            kind = AssertionKind.LINE_START if flags.is_multi_line else AssertionKind.TEXT_START
            self._add(Assertion(kind), end)
        elif character == "$":
            kind = AssertionKind.LINE_END if flags.is_multi_line else AssertionKind.TEXT_END
            self._add(Assertion(kind), end)
        else:
            self._add_literal(ord(character), end)

    def _add(self, node: SyntaxNode, end: int) -> None:
        self.groups[-1].parts.append(node)
        self.position = end

    def _add_literal(self, code: int, end: int) -> None:
        found = CharacterSet((CharacterRange(code, code),), ignores_case=self.flags.ignores_case)
        self._add(Characters(found), end)

    # escapes

    def _read_escape(self) -> None:
        text, position = self.text, self.position
        letter = text[position + 1 : position + 2]
        if letter in _ASSERTION_ESCAPES:
            self._add(Assertion(_ASSERTION_ESCAPES[letter]), position + 2)
        elif letter == "Q":
            end = text.find("\\E", position + 2)
            behind = len(text) if end < 0 else end + 2
            for literal in text[position + 2 : len(text) if end < 0 else end]:
                self._add_literal(ord(literal), behind)
            self.position = behind
        elif found := read_class_escape(text, position, ignores_case=self.flags.ignores_case):
            self._add(Characters(found[0]), found[1])
        else:
            code, end = read_character_escape(text, position)
            self._add_literal(code, end)

    # repetitions

    def _repeat_counted(self, counted: re.Match[str]) -> None:
        low = int(counted[1])
        high = low if counted[2] is None else int(counted[3]) if counted[3] else None
        if max(low, high or 0) > REPETITIONS_MAX:
            raise self._error(f"repetition {counted[0]} of more than {REPETITIONS_MAX} times")
        if high is not None and high < low:
            raise self._error(f"reversed repetition {counted[0]}")
        self._repeat(low, high, counted.end())

    def _repeat(self, low: int, high: int | None, end: int) -> None:
        parts = self.groups[-1].parts
        if self.position == self.repeated_until:
            raise self._error("repetition of a repetition (put the inner one in a group)")
        if not parts:
            raise self._error("repetition of nothing")
        end += self.text.startswith("?", end)
        repeated = parts.pop()
        is_empty = isinstance(repeated, Empty) or high == 0
        self._add(Empty() if is_empty else Repetition(repeated, low, high), end)
        self.repeated_until = end

    # groups

    def _open_group(self) -> None:
        text, position, flags = self.text, self.position, self.flags
        if not text.startswith("(?", position):
            self._push(flags, position + 1)
        elif found := _NAMED_GROUP.match(text, position):
            if found[1] in self.names:
                raise self._error(f"second group with the name {found[1]!r}")
            self.names.add(found[1])
            self._push(flags, found.end())
        elif found := _FLAGS.match(text, position):
            changed = _with_flags(flags, found[1], found[3] or "")
            if found[4] == ":":
                self._push(flags, found.end())
            else:
                self.position = found.end()
            self.flags = changed
        else:
            unsupported = next((name for start, name in _UNSUPPORTED.items() if text.startswith(start, position)), "")
            raise self._error(f"{unsupported} is not supported" if unsupported else "invalid group")

    def _push(self, flags: _Flags, end: int) -> None:
        if len(self.groups) > NESTING_MAX:
            raise self._error(f"more than {NESTING_MAX} nested groups")
        self.groups.append(_OpenGroup(self.position, flags))
        self.position = end

    def _close_group(self) -> None:
        if len(self.groups) == 1:
            raise self._error('")" without "("')
        group = self.groups.pop()
        self.flags = group.flags
        self._add(group.close(), self.position + 1)


def _with_flags(flags: _Flags, on: str, off: str) -> _Flags:
    """Return the flags after switching some on, then some off. The flag U, which exchanges greedy and lazy repetitions,
    does not change what matches."""
    for letters, is_on in ((on, True), (off, False)):
        for letter in letters:
            if letter == "i":
                flags = flags._replace(ignores_case=is_on)
            elif letter == "m":
                flags = flags._replace(is_multi_line=is_on)
            elif letter == "s":
                flags = flags._replace(dot_matches_newline=is_on)
    return flags
