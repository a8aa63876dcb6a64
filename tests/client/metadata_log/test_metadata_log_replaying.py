"""A point of the metadata log equals the history's image there, whether it was replayed in one pass or continued from
another point.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.metadata_log.entries import BatchIdentity, LogBatch, entries_between, whole_batches
from kraft.client.metadata_log.errors import MetadataLogError
from kraft.client.metadata_log.history import History
from kraft.client.metadata_log.replaying import NO_TIME, LogPoint, Replay, TopicCreation, Until
from kraft.image import Event, MetadataImage, encode_event, events
from kraft.seam import WireError
from kraft.wire.records import Record, encode_batch
from tests.stages.metadata_logs import TOPICS, batch, leader_change

IDS = [topic.topic_id for topic in TOPICS if isinstance(topic, events.Topic)]


def made_log(sizes: Sequence[int], times: Sequence[int]) -> bytes:
    """Return a log with four topics of one partition each and further changes. `sizes` are the numbers of events in its
    batches; 0 stands for a control batch."""
    partitions = [events.Partition(one, 0, (1, 2), (1, 2), leader=1) for one in IDS]
    changes = [events.PartitionChange(IDS[at % 4], 0, leader=at % 3) for at in range(40)]
    pending: list[Event] = [*TOPICS, *partitions, *changes]
    parts, offset = [], 0
    for at, size in enumerate(sizes):
        if size == 0:
            parts.append(leader_change(offset))
            offset += 1
            continue
        taken, pending = pending[:size], pending[size:]
        if taken:
            parts.append(batch(taken, offset, epoch=1 + at // 3, time_ms=times[at % len(times)]))
            offset += len(taken)
    return b"".join(parts)


def replayed(batches: Sequence[LogBatch], until: Until, start: LogPoint | None = None) -> LogPoint:
    replay = Replay(start or LogPoint(MetadataImage()), until)
    for one in batches:
        if replay.is_done:
            break
        replay.feed(one)
    return replay.point(batches[-1].header.next_offset)


logs = st.builds(
    made_log,
    st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any),
    st.lists(st.integers(0, 50), min_size=1, max_size=6),
)


@given(logs, st.data())
def test_a_replay_to_an_offset_equals_the_historys_image(log: bytes, data: st.DataObject) -> None:
    batches = list(whole_batches(log))
    end = batches[-1].header.next_offset
    history = History(MetadataImage(), tuple(entries_between(batches, 0)), end)
    offset = data.draw(st.integers(0, end))
    point = replayed(batches, Until(offset=offset))
    assert point.image == history.image_at(offset)
    earlier = replayed(batches, Until(offset=data.draw(st.integers(0, offset))))
    assert earlier.can_reach(Until(offset=offset))
    gone_on = replayed(batches, Until(offset=offset), earlier)
    assert (gone_on.image, gone_on.created, gone_on.newest_ms) == (point.image, point.created, point.newest_ms)


@given(logs, st.data())
def test_a_replay_to_a_time_equals_the_historys_image(log: bytes, data: st.DataObject) -> None:
    batches = list(whole_batches(log))
    end = batches[-1].header.next_offset
    history = History(MetadataImage(), tuple(entries_between(batches, 0)), end)
    time_ms = data.draw(st.integers(0, 51))
    until = Until(timestamp_ms=time_ms)
    expected = history.image_at(history.offset_at(time_ms))
    assert replayed(batches, until).image == expected
    earlier = replayed(batches, Until(offset=data.draw(st.integers(0, end))))
    if earlier.can_reach(until):
        assert replayed(batches, until, earlier).image == expected
    else:
        assert earlier.newest_ms >= time_ms


@given(logs, st.integers(0, 60), st.integers(0, 60))
def test_entries_between_two_offsets_are_the_events_in_that_range(log: bytes, start: int, end: int) -> None:
    batches = list(whole_batches(log))
    everything = list(entries_between(batches, 0))
    assert list(entries_between(batches, start, end)) == [one for one in everything if start <= one.offset < end]


def test_a_log_point_has_topic_creation_offsets_and_its_last_batch() -> None:
    log = leader_change(0) + batch(TOPICS[:2], 1, time_ms=100) + batch(TOPICS[2:], 3, epoch=2, time_ms=90)
    batches = list(whole_batches(log))
    point = replayed(batches, Until(offset=4))
    assert dict(point.created) == {
        IDS[0]: TopicCreation(1, 100),
        IDS[1]: TopicCreation(2, 100),
        IDS[2]: TopicCreation(3, 90),
    }
    assert (point.newest_ms, point.last_ms) == (100, 90)
    assert point.last == BatchIdentity.of(batches[2].header)
    nothing = replayed(batches, Until(offset=1))
    assert (nothing.last_ms, nothing.last) == (NO_TIME, BatchIdentity.of(batches[0].header))


def test_a_replay_to_a_time_can_end_inside_a_batch() -> None:
    records = [Record(0, 10 * at, None, encode_event(topic)) for at, topic in enumerate(TOPICS)]
    log = bytes(encode_batch(records, base_offset=0, leader_epoch=1))
    assert [one.timestamp_ms for one in entries_between(whole_batches(log), 0)] == [0, 10, 20, 30]
    assert sorted(replayed(list(whole_batches(log)), Until(timestamp_ms=15)).image.topics.names) == ["a", "b"]


def test_a_metadata_batch_with_a_wrong_checksum_is_an_error() -> None:
    log = bytearray(batch(TOPICS, 7))
    log[-1] ^= 1
    with pytest.raises(WireError, match="the batch at offset 7 has a wrong checksum"):
        list(whole_batches(log))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (msgpack.packb([99, 0]), "an event of type 99 version 0, which this release cannot read"),
        (b"\xc1", "the metadata log at offset 5: not a metadata event"),
        (encode_event(events.RemoveTopic(IDS[0])), "does not fit the metadata image"),
    ],
)
def test_an_event_that_cannot_be_replayed_is_an_error_with_its_offset(value: bytes, said: str) -> None:
    log = bytes(encode_batch([Record(0, 1, None, value)], base_offset=5, leader_epoch=1))
    with pytest.raises(MetadataLogError, match=said) as failure:
        replayed(list(whole_batches(log)), Until(offset=6))
    assert "at offset 5" in str(failure.value)


def test_a_replay_continues_from_a_point_after_the_log_has_grown(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch(TOPICS[:1], 0))
    point = replayed(list(whole_batches(path.read_bytes())), Until(offset=1))
    path.write_bytes(path.read_bytes() + batch(TOPICS[1:], 1))
    grown = replayed(list(whole_batches(path.read_bytes())), Until(offset=4), point)
    assert sorted(grown.image.topics.names) == ["a", "b", "c", "d"]
