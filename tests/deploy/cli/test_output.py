"""Output of commands: tables for people, and JSON values for programs."""

from __future__ import annotations

import pytest

from kraft.client.admin import ConfigResource, ResourceType
from kraft.deploy.cli import output
from kraft.deploy.cli.output import plain, plural, print_table, progress, show, size


def test_a_printed_table_aligns_numbers_right_and_text_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "big_number", "list"], [("a", 1, [1, 2]), ("longer", None, []), ("c", 100, (3,))])
    assert capsys.readouterr().out == (
        "NAME    BIG NUMBER  LIST\na                1  1,2\nlonger           -  -\nc              100  3\n"
    )


def test_piped_tables_contain_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [("a",)])
    with progress("sending", 3) as advance:
        advance(3)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert told.err == ""


def test_a_terminal_gets_a_bold_header_unless_no_color_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(["name"], [("a",)])
    assert capsys.readouterr().out == "\x1b[1mNAME\x1b[0m\na\n"
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(["name"], [("a",)])
    assert capsys.readouterr().out == "NAME\na\n"


def test_table_rows_are_objects_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(True, ["a", "b"], [(1, None), (2, [3])])
    assert capsys.readouterr().out == '[{"a": 1, "b": null}, {"a": 2, "b": [3]}]\n'


def test_every_kind_of_value_can_be_printed_as_json() -> None:
    assert plain(ConfigResource(ResourceType.TOPIC, "t")) == {"type": "topic", "name": "t"}
    assert plain({1: (b"\xff", {3, 2}), "x": 1.5}) == {"1": ["\\xff", [2, 3]], "x": 1.5}


def test_kraft_commands_print_counts_with_their_noun_and_sizes_with_a_unit() -> None:
    assert [plural(1, "record"), plural(1200, "record")] == ["1 record", "1,200 records"]
    assert [size(one) for one in (None, 0, 1023, 1536, 5 * 2**30, 2**52)] == [
        None,
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "4096.0 TiB",
    ]
