"""The documentation matches the code: generated pages are up to date, links resolve."""

from __future__ import annotations

from kraft.sim.chaos.scenarios.fault_tables import KINDS
from tests.docs.chaos import WORDS
from tests.docs.links import broken_links, documents
from tests.docs.pages import stale_pages
from tests.docs.protocol import render_protocol


def test_generated_pages_are_up_to_date() -> None:
    assert list(stale_pages()) == [], "run make docs"


def test_each_api_not_served_is_documented_with_its_feature() -> None:
    assert not [line for line in render_protocol().splitlines() if line.endswith("|  |")]


def test_every_link_in_the_documentation_resolves_to_an_existing_file() -> None:
    assert len(documents()) > 5
    assert list(broken_links()) == []


def test_the_chaos_page_describes_each_kind_of_fault_of_a_scenario() -> None:
    assert set(WORDS) == set(KINDS)
