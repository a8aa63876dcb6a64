r"""Parser and writer of the .properties format: text from and to ordered pairs.

A key ends at the first unescaped `=`, `:` or white space. `#` and `!` start comments. A backslash at the end of a line
joins the next line. `\t \n \r \f \uXXXX` are escapes. Source: java.util.Properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from kraft.config.errors import ConfigError

_SPACE = " \t\f"
_ESCAPES = MappingProxyType({"t": "\t", "n": "\n", "r": "\r", "f": "\f"})


def parse_properties(text: str) -> dict[str, str]:
    """Return the file's keys and values; a key that occurs twice has its last value. ConfigError names the line of a
    bad escape."""
    return {key: value for _, key, value in numbered_properties(text)}


def numbered_properties(text: str) -> list[tuple[int, str, str]]:
    """Return line number, key and value of each pair, in file order. ConfigError names the line of a bad escape."""
    split = ((number, *_split(line)) for number, line in _logical_lines(text))
    return [(number, _unescape(key, number), _unescape(value, number)) for number, key, value in split]


def render_properties(pairs: Mapping[str, str], *, comment: str = "") -> str:
    """Return the text of a file that `parse_properties` reads back as `pairs`."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in pairs.items()]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending = ""
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_SPACE)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _SPACE:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\":
            out.append(character)
            position += 1
            continue
        escaped = text[position + 1 : position + 2]
        position += 2
        if escaped == "u":
            digits = text[position : position + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigError(
                    "", f"line {line}: \\u{digits} is not a character: \\u takes four hex digits"
                ) from None
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for position, character in enumerate(text):
        if character in "\\" or (key and character in "=: \t#!") or (position == 0 and character in " \t"):
            out.append("\\" + character if character != "\t" else "\\t")
        elif character in "\n\r\f":
            out.append({"\n": "\\n", "\r": "\\r", "\f": "\\f"}[character])
        else:
            out.append(character)
    return "".join(out)
