"""The documentation says what the code does: generated pages are up to date, links lead somewhere."""

from __future__ import annotations

from tests.docs.links import broken_links, documents
from tests.docs.pages import stale_pages


def test_generated_pages_are_up_to_date() -> None:
    assert list(stale_pages()) == [], "run make docs"


def test_every_link_leads_somewhere() -> None:
    assert len(documents()) > 5
    assert list(broken_links()) == []
