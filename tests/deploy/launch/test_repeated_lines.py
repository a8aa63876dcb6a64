from __future__ import annotations

from collections.abc import Callable

import pytest
import structlog

from kraft.deploy.launch.repeated_lines import LINES_MAX, TEXTS_MAX, RepeatedLines


@pytest.fixture
def write() -> Callable[[float, str, str], dict[str, object] | None]:
    """Log lines at these times, with these levels and texts. Return the fields of each line, or None for a suppressed
    line."""
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


def test_a_repeated_warning_is_logged_five_times_a_second_and_further_ones_are_counted(write: Write) -> None:
    lines = [write(number / 100, "warning", "connection closed") for number in range(90)]
    assert sum(line is not None for line in lines) == LINES_MAX
    assert write(1.1, "warning", "connection closed") == {"event": "connection closed", "left_out": 90 - LINES_MAX}
    assert write(1.2, "warning", "connection closed") == {"event": "connection closed"}


def test_distinct_warnings_and_info_lines_are_all_logged(write: Write) -> None:
    for _ in range(100):
        write(0.0, "warning", "connection closed")
    assert write(0.0, "error", "request failed") == {"event": "request failed"}
    assert all(write(0.0, "info", "partition led") for _ in range(100))


def test_the_count_of_suppressed_lines_is_added_to_the_next_line_if_the_text_does_not_recur(write: Write) -> None:
    for number in range(20):
        write(number / 100, "error", "request failed")
    assert write(0.5, "info", "partition led") == {"event": "partition led"}
    told = {"event": "the node has stopped", "left_out": 20 - LINES_MAX, "left_out_of": "request failed"}
    assert write(1.0, "info", "the node has stopped") == told
    assert write(1.1, "warning", "slow disk") == {"event": "slow disk"}


def test_counts_of_suppressed_lines_survive_more_texts_than_are_tracked(write: Write) -> None:
    for _ in range(20):
        write(0.0, "error", "request failed")
    lines = [write(0.1, "warning", f"text {number}") for number in range(TEXTS_MAX)]
    assert None not in lines
    assert [line["left_out"] for line in lines if line and "left_out" in line] == [20 - LINES_MAX]
