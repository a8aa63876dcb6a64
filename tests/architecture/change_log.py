"""Check of the form of the change log: the fragments in docs/changes, and the lines of CHANGELOG.md.

`python -m tests.architecture.change_log` prints what is wrong with them. `make check` runs it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TYPES = ("added", "changed", "fixed", "performance")
LENGTH_MAX = 240
WORDS_MAX = 30

_NAME = re.compile(rf"\+[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(TYPES)})\.md")
_CODE = re.compile(r"(?<![\w.-])([RMDTKGCLN][1-9]\d?b?|[BX]\d{2}b?)(?![\w.%-])")
_SOURCE = re.compile(r"(?<![\w/])(kraft|broker|client|sim|tests)/\w|\w\.py\b|#\d+\b")
_HEADLESS = re.compile(r"(What|Who|Whoever|Whatever|Nobody|Somebody|Everybody) ")
_TYPE_FIRST = re.compile(r"(Added|Changed|Fixed|Performance):")
_QUOTED = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)")
_LINE = re.compile(r"^- (.*(?:\n  .*)*)", re.MULTILINE)


def problems_of_text(text: str) -> Iterator[str]:
    """Yield what is wrong with the text of one change."""
    flat = " ".join(text.split())
    plain = _QUOTED.sub("Quoted", flat)
    if not flat:
        yield "it is empty"
        return
    if len(flat) > LENGTH_MAX or len(flat.split()) > WORDS_MAX:
        yield f"it is longer than {WORDS_MAX} words or {LENGTH_MAX} characters"
    if not plain.endswith("."):
        yield "it does not end with a full stop"
    if re.search(r"[.!?:;] +\S", plain):
        yield "it is more than one sentence"
    if not plain[0].isupper() and not plain[0].isdigit() and not plain.startswith("async for"):
        yield "it does not begin with a capital letter or a name in backquotes"
    if _HEADLESS.match(plain) or _TYPE_FIRST.match(plain) or plain.startswith("- "):
        yield "it does not begin with the subject of the sentence"
    if found := _CODE.search(plain):
        yield f"it has the code {found[0]}"
    if found := _SOURCE.search(flat.replace("deploy/monitoring", "")):
        yield f"it names something internal: {found[0]}"


def problems_of_fragment(path: Path) -> Iterator[str]:
    """Yield what is wrong with a file in docs/changes."""
    if not _NAME.fullmatch(path.name):
        yield f"its name is not +NAME.TYPE.md with a type of {', '.join(TYPES)}"
    text = path.read_text()
    if any(len(line) > 120 for line in text.splitlines()):
        yield "a line is longer than 120 characters"
    yield from problems_of_text(text)


def fragments(root: Path = ROOT) -> list[Path]:
    """Return the files in docs/changes that describe changes."""
    return sorted(path for path in (root / "docs" / "changes").iterdir() if path.name != "README.md")


def lines(page: str) -> list[str]:
    """Return the changes in the text of CHANGELOG.md."""
    return [" ".join(found[1].split()) for found in _LINE.finditer(page)]


def problems(root: Path = ROOT) -> list[str]:
    """Return what is wrong with the fragments and with CHANGELOG.md."""
    found = [
        f"docs/changes/{path.name}: {problem}" for path in fragments(root) for problem in problems_of_fragment(path)
    ]
    for line in lines((root / "CHANGELOG.md").read_text()):
        found += [f"CHANGELOG.md: {line}\n    {problem}" for problem in problems_of_text(line)]
    return found


def main() -> int:
    """Print all problems and return the exit code."""
    found = problems()
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"change log: {len(fragments())} changes since the last release, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
