"""Find broken links in Markdown files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> list[Path]:
    """Return all Markdown files of this repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if "node_modules" not in path.parts)


def broken_links() -> Iterator[str]:
    """Return `file: target` for every relative link that names a file that does not exist."""
    for document in documents():
        for target in _LINK.findall(document.read_text()):
            file = target.split("#", 1)[0]
            if "://" in target or not file:
                continue
            if not (document.parent / file).exists():
                yield f"{document.relative_to(ROOT)}: {target}"
