"""The metadata log as history: any offset that is there has an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from kraft.deploy.cli.metadata import app
from kraft.deploy.cli.metadata_history import find_folder, load_folder, read_entries
from kraft.deploy.cli.output import CommandFailed
from kraft.image import Event, MetadataImage, dump, encode_event, events, replay
from kraft.wire.control_records import ControlRecord, ControlRecordType, LeaderChange, encode_control
from kraft.wire.records import Record, encode_batch

NAMES = ("a", "b", "c", "d")
TOPICS: list[Event] = [events.Topic(name=name, topic_id=UUID(int=1_000 + at)) for at, name in enumerate(NAMES)]


def batch(applied: Sequence[Event], base_offset: int, epoch: int = 1, time_ms: int = 0) -> bytes:
    records = [Record(0, time_ms, None, encode_event(event)) for event in applied]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=epoch))


def leader_change(base_offset: int) -> bytes:
    record = ControlRecord(type=ControlRecordType.LEADER_CHANGE, leader_change=LeaderChange(1, (), ()))
    return bytes(encode_control(record, base_offset=base_offset, leader_epoch=1, timestamp_ms=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Offset 0 is a leader change, 1 to 4 topics a to d, in two segments; 5 a leader change again."""
    path = tmp_path / "1" / "data" / "__cluster_metadata-0"
    path.mkdir(parents=True)
    first = leader_change(0) + batch(TOPICS[:2], 1, time_ms=100)
    (path / f"{0:020}.log").write_bytes(first)
    (path / f"{3:020}.log").write_bytes(batch(TOPICS[2:], 3, epoch=2, time_ms=200) + leader_change(5))
    return path


def names(image: MetadataImage) -> list[str]:
    return sorted(image.topics.names)


def write_snapshot(folder: Path, offset: int) -> None:
    applied = replay(MetadataImage(), TOPICS[: offset - 1], offset, 1)
    (folder / f"{offset:020}-{1:010}.checkpoint").write_bytes(batch(list(dump(applied)), 0))


def test_the_image_at_an_offset_holds_what_is_below_it(folder: Path) -> None:
    history = load_folder(folder)
    expected = {0: [], 1: [], 2: ["a"], 3: ["a", "b"], 4: ["a", "b", "c"], 5: list(NAMES), 6: list(NAMES)}
    assert {offset: names(history.image_at(offset)) for offset in range(7)} == expected
    assert names(history.image_at(None)) == list(NAMES)
    assert (history.image_at(3).epoch, history.image_at(5).epoch) == (1, 2)


def test_a_time_before_the_history_is_told_as_one(folder: Path) -> None:
    def said(when: str) -> str:
        done = CliRunner().invoke(app, ["show", "topics/a", "--at", when, "--folder", str(folder)])
        return str(done.exception)

    assert "the history begins later, at 1970-01-01" in said("1970-01-01")
    assert "there is no a" in said("1")
    assert "(offset 1)" in said("1")
    done = CliRunner().invoke(app, ["show", "topics/b", "--at", "2", "--folder", str(folder)])
    assert "there is no b" in str(done.exception)
    assert "begins later" not in str(done.exception)


def test_an_offset_outside_of_the_log_is_refused_with_what_there_is(folder: Path) -> None:
    with pytest.raises(CommandFailed, match="the log holds 0 to 6") as failure:
        load_folder(folder).image_at(7)
    assert failure.value.code == 4


@pytest.mark.parametrize(
    ("start", "end", "said", "code"),
    [
        ("4", "2", "no event is from 4 on and before 2: --to must be later", 2),
        ("3", "3", "no event is from 3 on and before 3", 2),
        ("1970-01-01T00:00:01", "2", "no event is from 1970-01-01T00:00:01 on and before 2", 2),
        ("7", "9", "there is no offset 7: the log holds 0 to 6", 4),
    ],
)
def test_events_between_which_there_can_be_none_are_refused(
    folder: Path, start: str, end: str, said: str, code: int
) -> None:
    done = CliRunner().invoke(app, ["events", "--from", start, "--to", end, "--folder", str(folder)])
    assert isinstance(done.exception, CommandFailed)
    assert said in str(done.exception)
    assert done.exception.code == code


def test_who_follows_is_refused_an_end(folder: Path) -> None:
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
def test_the_events_between_two_offsets_are_shown(folder: Path, options: list[str], offsets: list[str]) -> None:
    done = CliRunner().invoke(app, ["events", *options, "--folder", str(folder)])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == offsets


def test_a_log_whose_begin_is_gone_starts_from_its_snapshot(folder: Path) -> None:
    (folder / f"{0:020}.log").unlink()
    write_snapshot(folder, 3)
    history = load_folder(folder)
    assert history.base.offset == 3
    assert {offset: names(history.image_at(offset)) for offset in (3, 4)} == {3: ["a", "b"], 4: ["a", "b", "c"]}
    with pytest.raises(CommandFailed, match="the log holds 3 to 6"):
        history.image_at(2)


def test_the_history_is_as_long_as_can_be(folder: Path) -> None:
    write_snapshot(folder, 3)
    write_snapshot(folder, 4)
    assert load_folder(folder).base.offset == 0
    (folder / f"{0:020}.log").unlink()
    assert load_folder(folder).base.offset == 3


def test_a_snapshot_without_a_log_is_a_history_too(folder: Path) -> None:
    write_snapshot(folder, 4)
    for path in folder.glob("*.log"):
        path.unlink()
    history = load_folder(folder)
    assert names(history.image_at(4)) == ["a", "b", "c"]
    with pytest.raises(CommandFailed, match="the log holds 4 to 4"):
        history.image_at(3)


def test_a_torn_tail_is_left_out(folder: Path) -> None:
    last = folder / f"{3:020}.log"
    whole = last.read_bytes()
    for cut in range(1, len(whole), 7):
        last.write_bytes(whole[:-cut])
        offsets = [entry.offset for entry in read_entries(folder)]
        assert offsets in ([1, 2], [1, 2, 3, 4])
        assert load_folder(folder).end_offset in (3, 5)


def test_entries_from_an_offset_on_are_those_at_or_above_it(folder: Path) -> None:
    for start in range(7):
        offsets = [entry.offset for entry in read_entries(folder, start)]
        assert offsets == [offset for offset in (1, 2, 3, 4) if offset >= start]


def test_a_time_is_the_offset_of_the_first_event_that_is_not_older(folder: Path) -> None:
    history = load_folder(folder)
    assert [history.offset_at(time_ms) for time_ms in (0, 100, 101, 200, 201)] == [1, 1, 3, 3, 6]


def test_the_log_that_has_most_is_found_below_a_folder(folder: Path, tmp_path: Path) -> None:
    shorter = tmp_path / "0" / "data" / "__cluster_metadata-0"
    shorter.mkdir(parents=True)
    (shorter / f"{0:020}.log").write_bytes(leader_change(0))
    assert find_folder(tmp_path) == folder
    assert find_folder(folder) == folder
    for wrong in (tmp_path / "nothing", tmp_path / "0" / "data" / "__cluster_metadata-0" / "x"):
        with pytest.raises(CommandFailed, match="there is no"):
            find_folder(wrong)


def test_a_folder_without_a_metadata_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="there is no __cluster_metadata-0 in"):
        find_folder(tmp_path)
