"""Every example of docs/testing-with-pykraft.md is a passing test, and the first example is as short as the page
says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testing.test_plugin import run_pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing-with-pykraft.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_first_documented_test_has_at_most_ten_lines() -> None:
    assert len([line for line in EXAMPLES[0].splitlines() if line]) <= 10


@pytest.mark.slow
def test_every_example_of_the_testing_page_passes(tmp_path: Path) -> None:
    for number, example in enumerate(EXAMPLES):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    printed = run_pytest(tmp_path, "", "-W", "error", outcome=0)
    tests = sum(example.count("def test_") for example in EXAMPLES)
    assert tests >= 6
    assert f"{tests} passed" in printed
