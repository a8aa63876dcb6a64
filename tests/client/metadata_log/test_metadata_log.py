"""The metadata log as history: any offset that is there has an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.client.metadata_log.errors import MetadataLogError, NotInLog
from kraft.client.metadata_log.folder import FolderLog, find_folder, load_folder, read_entries
from kraft.image import MetadataImage
from kraft.storage.indexes.offset_index import ENTRY
from tests.stages.metadata_logs import NAMES, TOPICS, batch, leader_change, write_log, write_snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_log(tmp_path)


def names(image: MetadataImage) -> list[str]:
    return sorted(image.topics.names)


def test_the_image_at_an_offset_holds_what_is_below_it(folder: Path) -> None:
    history = load_folder(folder)
    expected = {0: [], 1: [], 2: ["a"], 3: ["a", "b"], 4: ["a", "b", "c"], 5: list(NAMES), 6: list(NAMES)}
    assert {offset: names(history.image_at(offset)) for offset in range(7)} == expected
    assert names(history.image_at(None)) == list(NAMES)
    assert (history.image_at(3).epoch, history.image_at(5).epoch) == (1, 2)


def test_an_offset_outside_of_the_log_is_refused_with_what_there_is(folder: Path) -> None:
    with pytest.raises(NotInLog, match="the log holds 0 to 6"):
        load_folder(folder).image_at(7)


def test_a_log_whose_begin_is_gone_starts_from_its_snapshot(folder: Path) -> None:
    (folder / f"{0:020}.log").unlink()
    write_snapshot(folder, 3)
    history = load_folder(folder)
    assert history.base.offset == 3
    assert {offset: names(history.image_at(offset)) for offset in (3, 4)} == {3: ["a", "b"], 4: ["a", "b", "c"]}
    with pytest.raises(NotInLog, match="the log holds 3 to 6"):
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
    with pytest.raises(NotInLog, match="the log holds 4 to 4"):
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
        with pytest.raises(NotInLog, match="there is no"):
            find_folder(wrong)


def test_a_folder_without_a_metadata_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotInLog, match="there is no __cluster_metadata-0 in"):
        find_folder(tmp_path)


def test_damage_before_the_last_segment_is_an_error_that_names_the_file(folder: Path) -> None:
    first = folder / f"{0:020}.log"
    whole = first.read_bytes()
    for damaged in (whole[:-1] + bytes((whole[-1] ^ 1,)), whole[:-1]):
        first.write_bytes(damaged)
        with pytest.raises(MetadataLogError, match=f"{first} is damaged"):
            load_folder(folder)


def test_batches_larger_than_a_piece_of_a_file_are_read_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(read_entries(folder))
    assert len(expected) == len(TOPICS)
    for size in (1, 60, 61, 100, 1000):
        monkeypatch.setattr("kraft.client.metadata_log.folder.PIECE_BYTES", size)
        assert list(read_entries(folder)) == expected
        assert FolderLog(folder).end_offset() == 6


def test_a_segment_with_an_index_is_read_from_the_place_that_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    batches = [batch([topic], 10 + at, time_ms=at) for at, topic in enumerate(TOPICS)]
    path = folder / f"{10:020}.log"
    path.write_bytes(b"".join(batches))
    place = len(batches[0]) + len(batches[1])
    path.with_suffix(".index").write_bytes(ENTRY.pack(2, place))
    assert [batch.position for batch in FolderLog(folder).batches(12)][:1] == [0]
    assert [entry.offset for entry in read_entries(folder, 12)] == [12, 13]
    assert [entry.offset for entry in read_entries(folder, 11)] == [11, 12, 13]
    assert FolderLog(folder).end_offset() == 14
    path.with_suffix(".index").write_bytes(ENTRY.pack(2, place + 1))  # it does not fit the log: not followed
    assert [entry.offset for entry in read_entries(folder, 12)] == [12, 13]
    assert FolderLog(folder).end_offset() == 14


def test_an_image_at_an_offset_within_a_batch_has_the_batch_in_part(folder: Path) -> None:
    (folder / f"{6:020}.log").write_bytes(leader_change(6))
    assert names(load_folder(folder).image_at(4)) == ["a", "b", "c"]


def test_an_empty_last_segment_ends_where_it_begins(folder: Path) -> None:
    (folder / f"{6:020}.log").write_bytes(b"")
    assert load_folder(folder).end_offset == 6
    assert names(load_folder(folder).image_at(None)) == list(NAMES)
