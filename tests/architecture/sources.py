"""Citations in the repository's texts: sources after `Source:`, references to pages under docs/, and checkers'
codes.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kraft.wire.api_keys import BROKER_APIS, ApiKey

ROOT = Path(__file__).resolve().parents[2]

NUMBERED = re.compile(r"(KIP|KAFKA|SPARK)-[1-9]\d*|RFC [1-9]\d*")
MESSAGE = re.compile(r"(?P<name>\w+)(Request|Response)( (?P<first>\d+)( to (?P<last>\d+))?)?")
PAGE = re.compile(r"(?<![\w./-])docs/(?P<path>[\w./-]*[\w/])(#(?P<anchor>[\w-]+))?")
SECTION = re.compile(r"sections? \d+(\.\d+)*")
CODE = re.compile(r"(?<![\w.-])(?P<code>[RMDTKGCLN][1-9]\d?b?|[BX]\d{2}b?)(?![\w.%-])")
_MISSING_BOOK = re.compile(
    r"\b(broker|kraft|coordinators|security|spark)-spec\b|\bcoord \d|\bhot-path \d|\bDESIGN\b"
    r"|\b(house|LANGUAGE|STYLE)\.md\b|(?<![\w.])/work/"
)
OWNER = re.compile(r"^[A-Z]\w+'s ")

_CLAUSE = re.compile(r"\bSource: (.*?)(?:\.(?=\s|$)|\n\s*\n|\Z)", re.DOTALL)
_LIST_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\((?P<path>[^)\s#]*)#(?P<anchor>[^)\s]+)\)")
_PARTS_OF_BOOKS = ("-spec", "coord ", "hot-path", "DESIGN", "house.md", "LANGUAGE.md", "STYLE.md", "/work/")
_NO_TEXT = {".png", ".svg", ".ico", ".jks", ".p12", ".woff2", ".json", ".lock", ".sum"}


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text, and its location: `file:line`, or the file."""

    place: str
    text: str


@cache
def files() -> tuple[Text, ...]:
    """Return each text file that git tracks, except the examples of bad citations in this module's test."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in sorted(listed.split("\0")):
        path = ROOT / name
        is_text = path.is_file() and not path.is_symlink() and path.suffix not in _NO_TEXT
        if name and is_text and name != "tests/architecture/test_sources.py":
            found.append(Text(name, path.read_text(errors="replace")))
    return tuple(found)


@cache
def prose() -> tuple[Text, ...]:
    """Return the texts that may have citations: docstrings and comments of modules, and whole other files."""
    found: list[Text] = []
    for file in files():
        if not file.place.endswith(".py"):
            found.append(file)
        elif "Source: " in file.text or CODE.search(file.text):
            found += (Text(f"{file.place}:{line}", text) for line, text in prose_of(file.text))
    return tuple(found)


def cited_books(text: str) -> list[str]:
    """Return the documents cited in this text that only the authors had."""
    if not any(part in text for part in _PARTS_OF_BOOKS):
        return []
    return [found[0] for found in _MISSING_BOOK.finditer(text)]


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield each docstring with its first line, and each block of comments with its last line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    block: list[str] = []
    last, can_grow = 0, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        stands_alone = not token.line[:column].strip()
        if block and not (stands_alone and can_grow and line == last + 1):
            yield last, "\n".join(block)
            block = []
        block.append(token.string.lstrip("# "))
        last, can_grow = line, stands_alone
    if block:
        yield last, "\n".join(block)


def clauses(text: str) -> Iterator[str]:
    """Yield each list of sources in a text, on one line, without parenthesized parts."""
    for found in _CLAUSE.finditer(text):
        flat = " ".join(found[1].split())
        while flat != (flat := re.sub(r"\s*\([^()]*\)", "", flat)):
            pass
        yield flat


def bad_items(clause: str) -> list[str]:
    """Return the items of a list of sources that a reader cannot find."""
    bad = []
    after_paper = False
    for item in re.split(r"[,;] (?:and )?| and ", clause):
        name = OWNER.sub("", item)
        is_section = SECTION.fullmatch(item) is not None or (after_paper and re.fullmatch(r"\d+(\.\d+)+", item))
        if not (is_section and after_paper) and not is_known(item) and name not in listed_names():
            bad.append(item)
        after_paper = name in papers() or bool(is_section)
    return bad


def is_known(item: str) -> bool:
    """Return whether a reader can find this source: it is a number in a public list (KIP, RFC), a page under docs/, or
    a message in versions that pykraft serves."""
    if NUMBERED.fullmatch(item):
        return True
    page = PAGE.fullmatch(item)
    if page is not None:
        return page_problem(page) is None
    message = MESSAGE.fullmatch(item)
    return message is not None and is_message(message)


def is_message(message: re.Match[str]) -> bool:
    key = _api_keys().get(message["name"])
    if key is None or message["first"] is None:
        return key is not None
    first = int(message["first"])
    last = int(message["last"] or first)
    served = BROKER_APIS.get(key)
    return served is not None and first <= last and first in served and last in served


@cache
def _api_keys() -> dict[str, ApiKey]:
    return {key.name.title().replace("_", ""): key for key in ApiKey}


@cache
def _list() -> str:
    return (ROOT / "docs" / "sources.md").read_text()


@cache
def listed_names() -> frozenset[str]:
    """Return the names in the tables of docs/sources.md."""
    return frozenset(found["name"] for found in _LIST_ROW.finditer(_list()))


@cache
def papers() -> frozenset[str]:
    """Return those of the listed names that are papers with numbered sections."""
    part = _list().partition("## Papers\n")[2].partition("\n## ")[0]
    return frozenset(found["name"] for found in _LIST_ROW.finditer(part))


def page_problem(page: re.Match[str]) -> str | None:
    """Return why this reference to docs/ does not resolve."""
    path = ROOT / "docs" / page["path"]
    if not path.exists():
        return f"docs/{page['path']} does not exist"
    return anchor_problem(path, page["anchor"])


def anchor_problem(path: Path, anchor: str | None) -> str | None:
    """Return an error if the page has no such heading."""
    if anchor is None or (path.suffix == ".md" and anchor in anchors(path)):
        return None
    return f"{path.name} has no heading #{anchor}"


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    found: dict[str, int] = {}
    for heading in _HEADING.findall(re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number = found.get(slug, 0)
        found[slug] = number + 1
        if number:
            found[f"{slug}-{number}"] = 1
    return frozenset(found)


def broken_anchors(document: Path) -> Iterator[str]:
    """Return the links of a Markdown file to headings that their targets do not have."""
    for link in _LINK.finditer(document.read_text()):
        if "://" in link["path"]:
            continue
        target = (document.parent / link["path"]).resolve() if link["path"] else document
        problem = anchor_problem(target, link["anchor"]) if target.suffix == ".md" and target.exists() else None
        if problem is not None:
            yield problem


@cache
def codes() -> frozenset[str]:
    """Return the codes of checkers and of planted bugs that have a row in docs/invariants.md or docs/bugbank.md."""
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("invariants.md", "bugbank.md"))
    rows = re.findall(r"^(?:\| |- )([A-Z]\d+b?)\b", pages, re.MULTILINE)
    return frozenset(rows)
