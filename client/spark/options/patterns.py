"""Check patterns of topic names: only regular expressions with the same meaning in Java and Python are accepted.

Spark's connector takes a Java expression, and a query that is moved from it to pykraft must select the same topics.
Parts of an expression that only one language has, or that both read differently, are rejected by name.
Source: java.util.regex.Pattern, Python's re.
"""

from __future__ import annotations

import re
import warnings

from kraft.client.spark.options.values import OptionValueError

_SAME_ESCAPES = frozenset("dDwWsSbBAtnrf")
_SAME_GROUPS = ("?:", "?=", "?!", "?<=", "?<!", "?>")
_FLAGS = re.compile(r"\?[ims]+(?:-[ims]+)?[:)]|\?-[ims]+:")
_COUNT = re.compile(r"\{\d+(?:,\d*)?\}")
_HEX = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}")


def topic_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern for `search` in topic names. Raises OptionValueError with the part that Java and Python read
    differently."""
    _check_dialect(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.ASCII)  # Java's \d and \w match only ASCII
    except (re.error, Warning, OverflowError, RecursionError) as problem:
        raise OptionValueError(f"{problem}: expected an expression that Java and Python read in the same way") from None


def parse_pattern(value: str) -> str:
    """Return the expression unchanged if `topic_pattern` accepts it."""
    if not value.strip():
        raise OptionValueError("it is empty; .* matches all topics")
    topic_pattern(value)
    return value


def _check_dialect(text: str) -> None:
    position, class_start = 0, -1
    while position < len(text):
        here = text[position]
        if here == "\\":
            position += _check_escape(text, position, in_class=class_start >= 0)
        elif class_start >= 0:
            if here == "]":
                class_start = -1
            elif here == "[" or text.startswith("&&", position):
                raise _differs("[" if here == "[" else "&&", position, "within a class of characters")
            position += 1
        elif here == "[":
            class_start = position
            position += 2 if text.startswith("[^", position) else 1
            if text.startswith("]", position):
                raise _differs("]", position, "as the first character of a class")
        elif here == "{":
            count = _COUNT.match(text, position)
            if count is None:
                raise _differs("{", position, "that begins no count such as {2} or {1,3}")
            position = count.end()
        else:
            if here == "(" and text.startswith("(?", position):
                _check_group(text, position)
            position += 1


def _check_escape(text: str, position: int, *, in_class: bool) -> int:
    """Check an escape sequence in a pattern, and return its number of characters."""
    letter = text[position + 1 : position + 2]
    hexadecimal = _HEX.match(text, position + 1)
    if hexadecimal is not None:
        return 1 + len(hexadecimal[0])
    if letter.isdigit():
        if letter == "0" or in_class or text[position + 2 : position + 3].isdigit():
            raise _differs(f"\\{letter}", position, "with these digits")
    elif letter.isalpha() and (letter not in _SAME_ESCAPES or (in_class and letter in "bBA")):
        raise _differs(f"\\{letter}", position, "within a class of characters" if in_class else "")
    return 2


def _check_group(text: str, position: int) -> None:
    opening = text[position + 1 : position + 12]
    if opening.startswith(_SAME_GROUPS):
        return
    flags = _FLAGS.match(opening)
    if flags is None or (flags[0].endswith(")") and (position > 0 or "-" in flags[0])):
        raise _differs(f"({opening[:3]}", position, "")


def _differs(part: str, position: int, where: str) -> OptionValueError:
    return OptionValueError(
        f"{part} at {position} {where}".rstrip() + " is not read alike by Java and Python: write it in another way"
    )
