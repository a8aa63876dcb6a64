"""The examples of docs/admin-client.md run, and do what the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kraft.client.admin import NewTopic
from tests.stages.admin_client import Stage, play

PAGE = Path(__file__).resolve().parents[3] / "docs" / "admin-client.md"
EXAMPLES = re.findall(r"## (\w+)[^`]*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("chapter", "example"), EXAMPLES, ids=[chapter for chapter, _ in EXAMPLES])
def test_each_admin_client_example_runs(chapter: str, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = compile(example, f"{PAGE.name}, {chapter}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("orders", partitions=3))
        await stage.produce("orders", {1: 1, 2: 2})
        await eval(code, {"admin": stage.admin})

    play(work)
    assert capsys.readouterr().out


def test_every_chapter_of_the_admin_client_page_has_an_example() -> None:
    assert [chapter for chapter, _ in EXAMPLES] == re.findall(r"^## (\w+)", PAGE.read_text(), re.MULTILINE)
