"""A reader can find every citation: each `Source:`, page under docs/ and code in brackets resolves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import (
    CODE,
    OWNER,
    PAGE,
    bad_items,
    broken_anchors,
    cited_books,
    clauses,
    codes,
    files,
    listed_names,
    page_problem,
    prose,
    prose_of,
)
from tests.docs.links import documents


def test_every_cited_source_is_public_or_a_page_under_docs() -> None:
    bad = [
        f"{piece.place}: {item}" for piece in prose() for clause in clauses(piece.text) for item in bad_items(clause)
    ]
    assert bad == [], "name a KIP, a Kafka message, a page under docs/, or a row of docs/sources.md"


def test_every_reference_to_a_docs_page_resolves() -> None:
    found = [(file.place, page) for file in files() if file.place != ".gitignore" for page in PAGE.finditer(file.text)]
    assert len(found) > 100
    problems = [f"{place}: {problem}" for place, page in found if (problem := page_problem(page)) is not None]
    assert problems == []


def test_every_link_to_a_heading_resolves() -> None:
    assert [(str(path), problem) for path in documents() for problem in broken_anchors(path)] == []


def test_every_code_of_a_checker_or_a_planted_bug_has_a_row_in_docs() -> None:
    assert {"R19", "K4b", "B41", "X10"} <= codes()
    unknown = [
        f"{piece.place}: {found['code']}"
        for piece in prose()
        if piece.place.partition(":")[0].endswith((".py", ".md"))
        for found in CODE.finditer(piece.text)
        if found["code"] not in codes()
    ]
    assert unknown == [], "docs/invariants.md has the invariants, docs/bugbank.md the bugs"


def test_no_file_cites_a_document_that_readers_do_not_have() -> None:
    own = {"tests/architecture/sources.py"}
    assert [(file.place, book) for file in files() if file.place not in own for book in cited_books(file.text)] == []


def test_every_name_in_the_list_of_sources_is_cited() -> None:
    cited = {
        OWNER.sub("", item)
        for piece in prose()
        for clause in clauses(piece.text)
        for item in re.split(r"[,;] (?:and )?| and ", clause)
    }
    assert listed_names() - cited == set(), "nothing cites these rows of docs/sources.md any more: remove them"


GOOD = (
    "KIP-966",
    "KAFKA-13636, SPARK-26267, RFC 9110",
    "FetchRequest",
    "FetchRequest 4 to 18, OffsetDeleteRequest 0",
    "Kafka's UnifiedLog, LogSegment",
    "Raft paper, section 5.4.2",
    "Raft paper, section 5.1, section 5.2, KIP-595",
    "docs/storage.md, docs/decisions/05-fast-fencing.md#voters",
)
BAD = (
    "KIP-",
    "KIP 966",
    "broker-spec 1.4",
    "DESIGN 12a",
    "the newest versions",
    "FetchesRequest",
    "FetchRequest 4 to 99",
    "FetchRequest 3",
    "VoteRequest 0",
    "Kafka's NoSuchClass",
    "section 5.4",
    "KIP-966, section 5.4",
    "docs/no-such-page.md",
    "docs/storage.md#no-such-heading",
    "kraft/storage/log.py",
)


@pytest.mark.parametrize("clause", GOOD)
def test_checks_of_citations_accept_one_that_resolves(clause: str) -> None:
    assert bad_items(clause) == []


@pytest.mark.parametrize("clause", BAD)
def test_checks_catch_a_citation_that_does_not_resolve(clause: str) -> None:
    assert bad_items(clause) != []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What it does. Source: KIP-1.", ["KIP-1"]),
        ("What it does.\n\nSource: KIP-1 (a, b),\n    KIP-2. More follows, and more.", ["KIP-1, KIP-2"]),
        ("Source: KIP-1 (of (all)), KIP-2\n\nNext paragraph.", ["KIP-1, KIP-2"]),
        ("Source: docs/a.md#b. Another: Source: KIP-3", ["docs/a.md#b", "KIP-3"]),
        ("a ConfigSource: int, and `Source:` alone", []),
    ],
)
def test_a_list_of_sources_ends_at_the_end_of_its_sentence(text: str, found: list[str]) -> None:
    assert list(clauses(text)) == found


def test_sources_are_found_in_docstrings_and_in_comments_but_not_in_values() -> None:
    module = '"""One."""\n\n\ndef f() -> None:\n    """Two."""\n    x = "Three."  # Four\n    # Five,\n    # six\n'
    assert sorted(text for _, text in prose_of(module)) == ["Five,\nsix", "Four", "One.", "Two."]


@pytest.mark.parametrize("text", ["see coord 3.4", "kraft-spec A.2", "(DESIGN 12)", "LANGUAGE.md", "/work/main"])
def test_checks_catch_a_document_that_readers_do_not_have(text: str) -> None:
    assert cited_books(text)


def test_checks_catch_a_link_to_a_missing_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What it's *for*\n\n```\n# no heading\n```\n\n[a](#what-its-for) [b](#no-heading) [c](page.md#none)\n"
    )
    assert len(list(broken_anchors(page))) == 2
