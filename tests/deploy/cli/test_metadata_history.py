"""`kraft metadata` on a folder: its output and its errors."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest
from typer.testing import CliRunner

from kraft.deploy.cli import metadata
from kraft.deploy.cli.metadata import app
from kraft.deploy.cli.output import CommandFailed
from kraft.seam.ids import decode_uuid
from kraft.wire.records import Record, encode_batch
from tests.stages.metadata_logs import write_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_log(tmp_path)


def test_metadata_show_reports_a_time_that_is_before_the_beginning_of_the_history(folder: Path) -> None:
    def said(when: str) -> str:
        done = CliRunner().invoke(app, ["show", "topics/a", "--at", when, "--folder", str(folder)])
        return str(done.exception)

    assert "the history begins later, at 1970-01-01" in said("1970-01-01")
    assert said("1").startswith("--at 1 is before the beginning")
    assert "(offset 1)" in said("1")
    everything = CliRunner().invoke(app, ["show", "--at", "2001-01-01", "--folder", str(folder)])
    assert everything.exit_code == 0
    everything = CliRunner().invoke(app, ["show", "--at", "0", "--folder", str(folder)])
    assert "is before the beginning; the history begins later" in str(everything.exception)
    done = CliRunner().invoke(app, ["show", "topics/b", "--at", "2", "--folder", str(folder)])
    assert "there is no b" in str(done.exception)
    assert "begins later" not in str(done.exception)


@pytest.mark.parametrize(
    ("start", "end", "said", "code"),
    [
        ("4", "2", "no event is from 4 on and before 2: --to must be later", 2),
        ("3", "3", "no event is from 3 on and before 3", 2),
        ("1970-01-01T00:00:01", "2", "no event is from 1970-01-01T00:00:01 on and before 2", 2),
        ("7", "9", "there is no offset 7: the log holds 0 to 6", 4),
    ],
)
def test_metadata_events_with_an_empty_range_are_refused(
    folder: Path, start: str, end: str, said: str, code: int
) -> None:
    done = CliRunner().invoke(app, ["events", "--from", start, "--to", end, "--folder", str(folder)])
    assert isinstance(done.exception, CommandFailed)
    assert said in str(done.exception)
    assert done.exception.code == code


def test_metadata_events_with_follow_and_an_end_is_refused(folder: Path) -> None:
    done = CliRunner().invoke(app, ["events", "--follow", "--to", "3", "--folder", str(folder)])
    assert isinstance(done.exception, CommandFailed)
    assert str(done.exception) == "--follow has no end: leave out --to"
    assert (done.output, done.exception.code) == ("", 2)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ([], ["1", "2", "3", "4"]),
        (["--from", "2", "--to", "4"], ["2", "3"]),
        (["--from", "4", "--to", "99"], ["4"]),
        (["--from", "6"], []),
        (["--to", "0"], []),
    ],
)
def test_metadata_events_between_two_offsets_are_shown(folder: Path, options: list[str], offsets: list[str]) -> None:
    done = CliRunner().invoke(app, ["events", *options, "--folder", str(folder)])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == offsets


@pytest.mark.parametrize(("options", "offsets"), [([], []), (["--from", "3"], ["3", "4"])])
def test_metadata_events_with_follow_start_at_the_end_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], offsets: list[str]
) -> None:
    began: list[int] = []
    monkeypatch.setattr(metadata, "_follow", lambda connection, folder, start, as_json: began.append(start))
    done = CliRunner().invoke(app, ["events", "--follow", *options, "--folder", str(folder)])
    assert [line.split()[0] for line in done.output.splitlines()] == offsets
    assert began == [6]


def test_kraft_metadata_shows_topic_ids_in_kafkas_base64_form(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["show", "topics/a/id", "--folder", str(folder)]).output.strip()
    listed = CliRunner().invoke(app, ["events", "--folder", str(folder)]).output
    assert decode_uuid(shown) is not None
    assert f"topic_id={shown}" in listed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "--at", "7"], "there is no offset 7: the log holds 0 to 6"),
        (["diff", "0", "7"], "there is no offset 7: the log holds 0 to 6"),
    ],
)
def test_a_metadata_offset_outside_the_log_gives_exit_code_4(folder: Path, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--folder", str(folder)])
    assert isinstance(done.exception, CommandFailed)
    assert (str(done.exception), done.exception.code) == (said, 4)


@pytest.mark.parametrize("place", ["nothing", "1/data"])
def test_a_folder_without_a_metadata_log_gives_exit_code_4(tmp_path: Path, place: str) -> None:
    (tmp_path / "1" / "data").mkdir(parents=True)
    done = CliRunner().invoke(app, ["show", "--folder", str(tmp_path / place)])
    assert isinstance(done.exception, CommandFailed)
    assert "there is no" in str(done.exception)
    assert done.exception.code == 4


def test_a_metadata_event_of_a_later_release_gives_exit_code_1(folder: Path) -> None:
    later = encode_batch([Record(0, 300, None, msgpack.packb([99, 0]))], base_offset=6, leader_epoch=2)
    (folder / f"{6:020}.log").write_bytes(later)
    for verb in ("show", "events"):
        done = CliRunner().invoke(app, [verb, "--folder", str(folder)])
        assert isinstance(done.exception, CommandFailed)
        assert "an event of type 99 version 0, which this release cannot read" in str(done.exception)
        assert done.exception.code == 1
