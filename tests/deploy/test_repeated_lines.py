from __future__ import annotations

from collections.abc import Callable

import pytest
import structlog

from kraft.deploy.launch.repeated_lines import LINES_MAX, RepeatedLines


@pytest.fixture
def write() -> Callable[[float, str, str], dict[str, object] | None]:
    """(time, level, text) → the line's fields, or None where it is left out."""
    now = [0.0]
    limit = RepeatedLines(lambda: now[0])

    def write(at: float, level: str, text: str) -> dict[str, object] | None:
        now[0] = at
        try:
            return dict(limit(None, level, {"event": text}))
        except structlog.DropEvent:
            return None

    return write


Write = Callable[[float, str, str], dict[str, object] | None]


def test_a_warning_that_repeats_is_written_five_times_a_second_and_the_rest_is_counted(write: Write) -> None:
    lines = [write(number / 100, "warning", "connection closed") for number in range(90)]
    assert sum(line is not None for line in lines) == LINES_MAX
    assert write(1.1, "warning", "connection closed") == {"event": "connection closed", "left_out": 90 - LINES_MAX}
    assert write(1.2, "warning", "connection closed") == {"event": "connection closed"}


def test_other_warnings_and_lines_that_inform_are_all_written(write: Write) -> None:
    for _ in range(100):
        write(0.0, "warning", "connection closed")
    assert write(0.0, "error", "request failed") == {"event": "request failed"}
    assert all(write(0.0, "info", "partition led") for _ in range(100))
