"""The metadata log as a timeline. Images by offset and by time are the same with and without stored images."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.client.metadata_log.entries import Entry
from kraft.client.metadata_log.errors import NotInLog
from kraft.deploy.console.history import timeline as module
from kraft.deploy.console.history.timeline import Timeline, TooLong
from kraft.deploy.console.history.views import PAGE_ROWS, changes_page, event_rows, partitions_page
from kraft.image import Event, MetadataImage, encode_event, events

TOPICS = 40


def entries(start: int = 0, count: int = TOPICS) -> list[Entry]:
    """Return events that create a topic at every second offset, at times that increase by 10 ms."""
    made: list[Event] = [
        events.Topic(name=f"t{at:03}", topic_id=UUID(int=at + 1)) for at in range(start, start + count)
    ]
    return [
        Entry(2 * (start + at), 1 + at // 10, 10 * (start + at), encode_event(event)) for at, event in enumerate(made)
    ]


def line() -> Timeline:
    made = Timeline(MetadataImage())
    made.extend(entries(), 2 * TOPICS)
    return made


@pytest.mark.parametrize("events_apart", [1, 7, 5_000])
def test_the_timeline_image_at_an_offset_contains_all_events_before_it(
    events_apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EVENTS", events_apart)
    made = line()
    for offset in (2 * TOPICS, 0, 1, 2, 33, 14, 2 * TOPICS - 1, 14):
        image = made.image_at(offset)
        assert (image.offset, len(image.topics)) == (offset, (offset + 1) // 2)


def test_requesting_the_same_timeline_image_again_replays_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    made = line()
    image = made.image_at(30)
    monkeypatch.setattr(module, "apply_encoded", None)
    assert made.image_at(30) is image


def test_a_timeline_image_is_built_from_the_last_stored_image_and_the_events_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EVENTS", 10)
    made = line()
    made.image_at(2 * TOPICS)
    replayed: list[int] = []
    real = module.apply_encoded
    monkeypatch.setattr(module, "apply_encoded", lambda builder, values: real(builder, _counted(values, replayed)))
    made.image_at(2 * 23)
    assert len(replayed) == 3


def _counted(values: object, replayed: list[int]) -> list[bytes]:
    found = list(values)  # type: ignore[call-overload]
    replayed.extend(range(len(found)))
    return found


@pytest.mark.parametrize("offset", [-1, 2 * TOPICS + 1])
def test_an_offset_outside_the_timeline_is_refused_with_its_bounds(offset: int) -> None:
    with pytest.raises(NotInLog, match="holds 0 to 80"):
        line().image_at(offset)


def test_a_timeline_is_extended_at_its_end() -> None:
    made = line()
    made.image_at(2 * TOPICS)
    made.extend(entries(TOPICS, 5), 2 * TOPICS + 10)
    assert len(made.image_at(2 * TOPICS + 10).topics) == TOPICS + 5


def test_a_timeline_that_is_too_long_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", TOPICS)
    with pytest.raises(TooLong, match="kraft metadata"):
        line().extend(entries(TOPICS, 1), 100)


@pytest.mark.parametrize(("time_ms", "offset"), [(-5, 0), (0, 2), (14, 4), (10 * TOPICS, 2 * TOPICS)])
def test_the_timeline_offset_at_a_time_follows_the_last_event_up_to_that_time(time_ms: int, offset: int) -> None:
    assert line().offset_at(time_ms) == offset


def test_the_timeline_time_at_an_offset_is_the_time_of_the_event_before_that_offset() -> None:
    assert [line().time_at(offset) for offset in (0, 1, 4)] == [-1, 0, 10]


def test_the_timeline_returns_the_last_events_before_an_offset_and_the_first_from_it_on() -> None:
    assert [entry.offset for entry in line().around(10, 2, 3)] == [6, 8, 10, 12, 14]
    assert [entry.offset for entry in line().around(0, 2, 1)] == [0]


def partitions(count: int) -> MetadataImage:
    topic_id = UUID(int=1)
    whole = [events.Topic(name="big", topic_id=topic_id), *(partition(topic_id, at) for at in range(count))]
    return made_of(*whole).image_at(len(whole))


def partition(topic_id: UUID, index: int) -> Event:
    return events.Partition(
        topic_id=topic_id,
        partition_id=index,
        replicas=(1, 2),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )


def made_of(*given: Event) -> Timeline:
    """Return a timeline with one event at each offset from 0 on."""
    made = Timeline(MetadataImage())
    made.extend([Entry(at, 1, at, encode_event(event)) for at, event in enumerate(given)], len(given))
    return made


def test_history_partitions_are_paginated() -> None:
    image = partitions(PAGE_ROWS + 3)
    first, second = partitions_page(image, "", 0), partitions_page(image, "", 1)
    assert (len(first.rows), len(second.rows), second.total, second.last) == (PAGE_ROWS, 3, PAGE_ROWS + 3, 1)
    assert [row.index for row in second.rows] == [PAGE_ROWS, PAGE_ROWS + 1, PAGE_ROWS + 2]
    assert second.rows[0].missing == (2,)
    assert partitions_page(image, "other", 0).total == 0


def test_changes_between_two_offsets_list_additions_and_removals() -> None:
    made = line()
    came, is_cut = changes_page(made.image_at(4), made.image_at(8), 0)
    assert ([(row.mark, row.path) for row in came.rows], is_cut) == (
        [("+", "topics / t002"), ("+", "topics / t003")],
        False,
    )
    went, _ = changes_page(made.image_at(8), made.image_at(4), 0)
    assert [row.mark for row in went.rows] == ["-", "-"]


def test_event_rows_show_the_names_of_their_topics() -> None:
    made = line()
    row = event_rows(made.around(1, 1, 0), made.image_at(80))[0]
    assert (row.offset, row.kind, row.about) == (0, "Topic", "t000")


def test_event_rows_of_a_deleted_topic_show_its_name() -> None:
    topic_id = UUID(int=7)
    made = made_of(events.Topic(name="gone", topic_id=topic_id), events.RemoveTopic(topic_id=topic_id))
    assert [row.about for row in event_rows(made.around(1, 1, 1), made.image_at(2))] == ["gone", "gone"]
    assert event_rows(made.around(2, 1, 0), made.image_at(2), made.image_at(1))[0].about == "gone"


def test_history_lists_partitions_of_internal_topics_last() -> None:
    topics = [("__consumer_offsets", 1), ("zoo", 2)]
    image = made_of(
        *(events.Topic(name=name, topic_id=UUID(int=at)) for name, at in topics),
        *(partition(UUID(int=at), 0) for _, at in topics),
    ).image_at(4)
    assert [row.topic for row in partitions_page(image, "", 0).rows] == ["zoo", "__consumer_offsets"]
    changes, _ = changes_page(MetadataImage(), image, 0)
    assert [row.path for row in changes.rows][-2:] == ["topics / zoo", "topics / __consumer_offsets"]


def test_an_unknown_kind_of_metadata_event_is_shown_as_unknown() -> None:
    row = event_rows([Entry(7, 1, 0, b"\x00\xff\xff")], MetadataImage())[0]
    assert (row.offset, row.kind) == (7, "unknown")
