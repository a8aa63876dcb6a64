"""`kraft logs`: merges the lines of several nodes by time."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

from kraft.deploy.cli.local.node_logs import labelled, merge_by_time, read_from
from kraft.deploy.launch.logs import _fixed_fields_first, _render_line

FIRST = ["2026-01-01T00:00:01.000001Z INFO a", "2026-01-01T00:00:03.5Z ERROR c", "Traceback …", "  in f"]
SECOND = ["2026-01-01T00:00:02.1Z INFO b", "2026-01-01T00:00:04Z INFO d"]


def test_lines_of_two_nodes_are_merged_by_time_and_a_traceback_stays_together() -> None:
    merged = [(node_id, line[-3:]) for _, node_id, line in merge_by_time({1: FIRST, 2: SECOND})]
    assert merged == [(1, "O a"), (2, "O b"), (1, "R c"), (1, "k …"), (1, "n f"), (2, "O d")]


def test_json_log_lines_are_merged_by_timestamp_and_shown_unchanged() -> None:
    first, second, third = (
        json.dumps({"event": "quorum", "timestamp": f"2026-01-01T00:00:0{second}.5Z"}) for second in (1, 2, 3)
    )
    merged = [labelled(node_id, line) for _, node_id, line in merge_by_time({1: [first, third], 2: [second]})]
    assert merged == [first, second, third]
    assert labelled(1, "2026-01-01T00:00:01Z INFO a") == "[1] 2026-01-01T00:00:01Z INFO a"


def test_a_json_log_line_begins_with_time_level_event_and_node() -> None:
    fields = {"epoch": 1, "event": "quorum", "node": 3, "level": "info", "timestamp": "T"}
    ordered = _fixed_fields_first(None, "info", fields)
    assert list(ordered.items()) == [
        ("timestamp", "T"),
        ("level", "info"),
        ("event", "quorum"),
        ("node", 3),
        ("epoch", 1),
    ]


def test_an_incomplete_log_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    assert read_from(log, 0) == ("", 0)
    log.write_text("one\ntw")
    text, position = read_from(log, 0)
    assert (text, position) == ("one\n", 4)
    log.write_text("one\ntwo\n")
    assert read_from(log, position) == ("two\n", 8)


def test_ids_in_a_log_line_are_in_kafkas_base64_form() -> None:
    fields = {"timestamp": "T", "level": "info", "event": "it opens", "topic_id": UUID(int=1)}
    assert _render_line(None, "info", fields) == "T INFO    it opens topic_id=AAAAAAAAAAAAAAAAAAAAAQ"
