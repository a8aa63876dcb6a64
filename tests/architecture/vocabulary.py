"""The words in the public names of the code, and where each of them is explained.

A word is plain English or a term of Kafka, Raft or Python, and then it is in `vocabulary.txt`; or it is a word of this
project, and then the glossary in docs/architecture.md has it. `python -m tests.architecture.vocabulary` adds the words
that neither has to `vocabulary.txt`, for a human to read, and removes those that no name has.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.architecture.rooms import ROOT, source_files

WORDS = Path(__file__).with_name("vocabulary.txt")
PAGE = ROOT / "docs" / "architecture.md"
LINE_MAX = 120

BANNED = frozenset({"anew", "eye", "heed", "nobody", "patience", "somebody", "told", "untold", "whoever", "wish"})
"""Words that a reader of the field would have to decode."""

PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ROW = re.compile(r"^\| \*\*([\w -]+)\*\* \| (.+?) \| \[[^\]]+\]\(([^)]+)\) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the glossary. `page` is the path, relative to docs/, of the file that defines the word."""

    word: str
    meaning: str
    page: str


def words_of(name: str) -> Iterator[str]:
    """Return the words of a name: both `FetchSession` and `fetch_session` have the words fetch and session."""
    for part in PARTS.findall(name):
        if len(part) > 1:
            yield part.lower()


def forms(word: str) -> set[str]:
    """Return the word, and the base words that it may be an inflection of."""
    found = {word}
    for suffix, stems in (
        ("ies", ("y",)),
        ("es", ("", "e")),
        ("s", ("",)),
        ("ied", ("y",)),
        ("ed", ("", "e")),
        ("ing", ("", "e")),
        ("er", ("", "e")),
        ("or", ("", "e")),
        ("ly", ("",)),
    ):
        if word.endswith(suffix) and len(word) > len(suffix) + 1:
            base = word.removesuffix(suffix)
            found |= {base + stem for stem in stems}
            if len(base) > 2 and base[-1] == base[-2]:
                found.add(base[:-1])
    return found


def public_names(source: str) -> Iterator[str]:
    """Return the names of classes, functions, methods and constants that do not begin with an underscore."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
            yield node.id


@cache
def used_words() -> Mapping[str, str]:
    """Return a map from each word of a public name, or of a module's name, to one place that has it."""
    found: dict[str, str] = {}
    for path in source_files():
        names = [path.stem, *public_names((ROOT / path).read_text())]
        for name in names:
            if not name.startswith("_"):
                for word in words_of(name):
                    found.setdefault(word, f"{path}: {name}")
    return found


def listed_words() -> list[str]:
    return WORDS.read_text().split()


def glossary(page: Path = PAGE) -> list[Entry]:
    return [Entry(*row) for row in ROW.findall(page.read_text())]


def explained(word: str, known: set[str]) -> bool:
    return not forms(word).isdisjoint(known)


def renew() -> None:
    used, private = used_words(), {entry.word for entry in glossary()}
    kept = {word for word in listed_words() if any(word in forms(one) for one in used)}
    new: list[str] = []
    for word in sorted(used, key=len):
        if not explained(word, kept | private):
            kept.add(word)
            new.append(word)
    WORDS.write_text(textwrap.fill(" ".join(sorted(kept)), LINE_MAX, break_on_hyphens=False) + "\n")
    for word in sorted(new):
        print(f"{word:24} {used[word]}")


if __name__ == "__main__":
    renew()
