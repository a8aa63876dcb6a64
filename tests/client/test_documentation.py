"""Every Python example of docs/client.md runs in a simulated world in which localhost:9092 is a cluster."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from kraft.seam import current_seam
from tests.stages.clients_in_world import Stage, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_client_page_has_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_each_example_of_the_client_page_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer() as producer:
            for value in range(30):
                await producer.enqueue("orders", b"order %d" % value)
        current_seam.set(stage.world.node("application"))
        source = EXAMPLES[number].replace("localhost:9092", stage.bootstrap)
        code = compile(source, f"example {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        names: dict[str, Any] = {}
        with trio.fail_after(30):
            running = eval(code, names)
            if inspect.iscoroutine(running):
                await running

    one_broker = {
        "offsets_topic_replication_factor": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    run(test, group_initial_rebalance_delay_ms="0", **one_broker)
    assert [
        line for line in capsys.readouterr().out.splitlines() if "[" not in line or "mine now" in line
    ] or number == 1
