"""Sets of characters: ranges, Unicode categories, the classes of Perl and POSIX, and letters without regard to case.

A set is not listed but asked: a negated set or a Unicode category has up to a million characters, and topic names
contain few.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

CODE_POINT_MAX = 0x10FFFF


class CharacterRange(NamedTuple):
    """The code points from `first` to `last`, both included."""

    first: int
    last: int

    def contains(self, code: int) -> bool:
        return self.first <= code <= self.last


class Category(NamedTuple):
    """The characters of a Unicode general category, such as Lu, or of a group of categories, such as L."""

    name: str

    def contains(self, code: int) -> bool:
        return unicodedata.category(chr(code)).startswith(self.name)


class CharacterSet(NamedTuple):
    """The union of `items`, or its complement if `is_negated`. `ignores_case`: an item contains a character if it
    contains any case variant of it."""

    items: tuple[CharacterRange | Category | CharacterSet, ...]
    is_negated: bool = False
    ignores_case: bool = False

    def contains(self, code: int) -> bool:
        codes = case_variants(code) if self.ignores_case else (code,)
        return any(item.contains(variant) for item in self.items for variant in codes) != self.is_negated


_ODD_CASES = "µſςϐϑϕϖϰϱϵẛẞιΩKÅ"
"""Characters that are case variants of others, although no case conversion of the others leads to them."""


@lru_cache(maxsize=1024)
def case_variants(code: int) -> tuple[int, ...]:
    """Return the code points that differ from this one in case only, and this one."""
    variants = _converted(chr(code))
    for odd in _ODD_CASES:
        others = _converted(odd)
        if variants & others:
            variants |= others
    return tuple(sorted(ord(variant) for variant in variants))


def _converted(character: str) -> set[str]:
    found = {character}
    for _ in range(2):
        converted = {convert(each) for each in found for convert in (str.lower, str.upper, str.title)}
        found |= {each for each in converted if len(each) == 1}
    return found


def _ranges(*pairs: str) -> CharacterSet:
    """Return a set of single characters ("_") and ranges ("az")."""
    return CharacterSet(tuple(CharacterRange(ord(pair[0]), ord(pair[-1])) for pair in pairs))


ANY = CharacterSet((CharacterRange(0, CODE_POINT_MAX),))
ANY_BUT_NEWLINE = CharacterSet((CharacterRange(ord("\n"), ord("\n")),), is_negated=True)
WORD = _ranges("09", "AZ", "_", "az")

PERL_CLASSES: Mapping[str, CharacterSet] = MappingProxyType(
    {"d": _ranges("09"), "s": _ranges("\t\n", "\f\r", " "), "w": WORD}
)
"""Letter of the escape → characters. The upper-case letter has the complement."""

POSIX_CLASSES: Mapping[str, CharacterSet] = MappingProxyType(
    {
        "alnum": _ranges("09", "AZ", "az"),
        "alpha": _ranges("AZ", "az"),
        "ascii": _ranges("\x00\x7f"),
        "blank": _ranges("\t", " "),
        "cntrl": _ranges("\x00\x1f", "\x7f"),
        "digit": _ranges("09"),
        "graph": _ranges("!~"),
        "lower": _ranges("az"),
        "print": _ranges(" ~"),
        "punct": _ranges("!/", ":@", "[`", "{~"),
        "space": _ranges("\t\r", " "),
        "upper": _ranges("AZ"),
        "word": WORD,
        "xdigit": _ranges("09", "AF", "af"),
    }
)
"""Name → characters, within a bracket as [:name:]."""

_SUBCATEGORIES: Mapping[str, str] = MappingProxyType(
    {"C": "cfnos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
)


def named_property(name: str) -> CharacterSet | None:
    """Return the characters of a Unicode property, or None if the property is not known."""
    if name == "Any":
        return ANY
    minor = _SUBCATEGORIES.get(name[:1])
    is_known = minor is not None and (len(name) == 1 or (len(name) == 2 and name[1] in minor))
    return CharacterSet((Category(name),)) if is_known else None


def as_written(found: CharacterSet, *, is_negated: bool, ignores_case: bool) -> CharacterSet:
    """Return the set of a class that is written negated or where case is ignored."""
    return CharacterSet((found,), is_negated, ignores_case) if is_negated or ignores_case else found
