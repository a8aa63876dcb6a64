"""The metadata log as history: an image at every offset that still exists."""

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


def test_the_image_at_an_offset_contains_all_events_below_it(folder: Path) -> None:
    history = load_folder(folder)
    expected = {0: [], 1: [], 2: ["a"], 3: ["a", "b"], 4: ["a", "b", "c"], 5: list(NAMES), 6: list(NAMES)}
    assert {offset: names(history.image_at(offset)) for offset in range(7)} == expected
    assert names(history.image_at(None)) == list(NAMES)
    assert (history.image_at(3).epoch, history.image_at(5).epoch) == (1, 2)


def test_an_offset_outside_of_the_metadata_log_is_an_error_with_the_valid_range(folder: Path) -> None:
    with pytest.raises(NotInLog, match="the log holds 0 to 6"):
        load_folder(folder).image_at(7)


def test_a_metadata_log_without_its_first_segments_starts_from_a_snapshot(folder: Path) -> None:
    (folder / f"{0:020}.log").unlink()
    write_snapshot(folder, 3)
    history = load_folder(folder)
    assert history.base.offset == 3
    assert {offset: names(history.image_at(offset)) for offset in (3, 4)} == {3: ["a", "b"], 4: ["a", "b", "c"]}
    with pytest.raises(NotInLog, match="the log holds 3 to 6"):
        history.image_at(2)


def test_the_history_starts_as_early_as_segments_and_snapshots_allow(folder: Path) -> None:
    write_snapshot(folder, 3)
    write_snapshot(folder, 4)
    assert load_folder(folder).base.offset == 0
    (folder / f"{0:020}.log").unlink()
    assert load_folder(folder).base.offset == 3


def test_a_history_can_be_read_from_a_snapshot_without_segments(folder: Path) -> None:
    write_snapshot(folder, 4)
    for path in folder.glob("*.log"):
        path.unlink()
    history = load_folder(folder)
    assert names(history.image_at(4)) == ["a", "b", "c"]
    with pytest.raises(NotInLog, match="the log holds 4 to 4"):
        history.image_at(3)


def test_a_torn_tail_of_the_metadata_log_is_left_out(folder: Path) -> None:
    last = folder / f"{3:020}.log"
    whole = last.read_bytes()
    for cut in range(1, len(whole), 7):
        last.write_bytes(whole[:-cut])
        offsets = [entry.offset for entry in read_entries(folder)]
        assert offsets in ([1, 2], [1, 2, 3, 4])
        assert load_folder(folder).end_offset in (3, 5)


def test_reading_entries_from_an_offset_returns_those_at_or_above_it(folder: Path) -> None:
    for start in range(7):
        offsets = [entry.offset for entry in read_entries(folder, start)]
        assert offsets == [offset for offset in (1, 2, 3, 4) if offset >= start]


def test_offset_at_a_time_is_that_of_the_first_event_with_at_least_that_time(folder: Path) -> None:
    history = load_folder(folder)
    assert [history.offset_at(time_ms) for time_ms in (0, 100, 101, 200, 201)] == [1, 1, 3, 3, 6]


def test_the_longest_metadata_log_below_a_folder_is_found(folder: Path, tmp_path: Path) -> None:
    shorter = tmp_path / "0" / "data" / "__cluster_metadata-0"
    shorter.mkdir(parents=True)
    (shorter / f"{0:020}.log").write_bytes(leader_change(0))
    assert find_folder(tmp_path) == folder
    assert find_folder(folder) == folder
    for wrong in (tmp_path / "nothing", tmp_path / "0" / "data" / "__cluster_metadata-0" / "x"):
        with pytest.raises(NotInLog, match="there is no"):
            find_folder(wrong)


def test_a_folder_without_a_metadata_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotInLog, match="there is no __cluster_metadata-0 in"):
        find_folder(tmp_path)


def test_damage_before_the_last_metadata_segment_is_an_error_that_names_the_file(folder: Path) -> None:
    first = folder / f"{0:020}.log"
    whole = first.read_bytes()
    for damaged in (whole[:-1] + bytes((whole[-1] ^ 1,)), whole[:-1]):
        first.write_bytes(damaged)
        with pytest.raises(MetadataLogError, match=f"{first} is damaged"):
            load_folder(folder)


def test_batches_larger_than_the_read_buffer_are_read_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(read_entries(folder))
    assert len(expected) == len(TOPICS)
    for size in (1, 60, 61, 100, 1000):
        monkeypatch.setattr("kraft.client.metadata_log.folder.PIECE_BYTES", size)
        assert list(read_entries(folder)) == expected
        assert FolderLog(folder).end_offset() == 6


def test_a_segment_with_an_index_is_read_from_the_indexed_position(tmp_path: Path) -> None:
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
    # the index does not fit the log, so it is not used
    path.with_suffix(".index").write_bytes(ENTRY.pack(2, place + 1))
    assert [entry.offset for entry in read_entries(folder, 12)] == [12, 13]
    assert FolderLog(folder).end_offset() == 14


def test_an_image_at_an_offset_within_a_batch_contains_its_first_events_only(folder: Path) -> None:
    (folder / f"{6:020}.log").write_bytes(leader_change(6))
    assert names(load_folder(folder).image_at(4)) == ["a", "b", "c"]


def test_a_log_with_an_empty_last_segment_ends_at_that_segments_base_offset(folder: Path) -> None:
    (folder / f"{6:020}.log").write_bytes(b"")
    assert load_folder(folder).end_offset == 6
    assert names(load_folder(folder).image_at(None)) == list(NAMES)
