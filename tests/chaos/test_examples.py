"""Tests that the applications of docs/examples, run with `kraft run`, do what the texts on their pages say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.examples import COMMANDS, EXAMPLES
from tests.interop.programs import install_tools
from tests.stages.kraft_command import Command

pytestmark = pytest.mark.interop
ORDERS, PER_SECOND = 60, 60


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    install_tools()


@pytest.mark.parametrize("language", COMMANDS)
def test_each_example_application_finds_an_invoice_for_each_order(tmp_path: Path, language: str) -> None:
    command = (*COMMANDS[language], str(ORDERS), str(PER_SECOND))
    printed = Command(tmp_path / "state").spawn("run", "--combined", "3", "--", *command)
    assert f"{ORDERS} orders, {ORDERS} with an invoice" in printed


def test_the_examples_page_names_each_example_application() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"({folder.name}/" in page for folder in EXAMPLES.iterdir() if folder.is_dir())
