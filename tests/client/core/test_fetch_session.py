"""A fetch session names what changed and nothing else, and the broker's idea of it stays equal to ours."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.fetch_session import FetchSession, SessionRequest
from kraft.client.core.records import TopicPartition
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition

ORDERS = UUID(int=1)
Wanted = dict[TopicPartition, tuple[UUID | None, FetchPartition]]


def at(partition: int, offset: int, topic_id: UUID | None = ORDERS) -> tuple[UUID | None, FetchPartition]:
    return (topic_id, FetchPartition(partition, 3, offset, -1, -1, 1_000))


def named(request: SessionRequest) -> dict[TopicPartition, int]:
    return {(topic or "", p.partition): p.fetch_offset for topic, _, parts in request.topics for p in parts}


def test_the_first_request_names_everything_and_the_next_only_what_moved() -> None:
    session = FetchSession()
    wanted: Wanted = {("orders", 0): at(0, 5), ("orders", 1): at(1, 7)}
    first = session.request(wanted)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, {("orders", 0): 5, ("orders", 1): 7})
    session.answered(ErrorCode.NONE, 99)
    wanted[("orders", 1)] = at(1, 9)
    second = session.request(wanted)
    assert (second.session_id, second.session_epoch, named(second)) == (99, 1, {("orders", 1): 9})
    assert second.forgotten == []


def test_what_is_not_wanted_any_more_is_forgotten() -> None:
    session = FetchSession()
    session.request({("orders", 0): at(0, 5), ("orders", 1): at(1, 7)})
    session.answered(ErrorCode.NONE, 99)
    request = session.request({("orders", 1): at(1, 7)})
    assert (named(request), request.forgotten) == ({}, [("orders", ORDERS, [0])])


def test_a_topic_that_was_made_anew_is_forgotten_and_named_again() -> None:
    session = FetchSession()
    session.request({("orders", 0): at(0, 5)})
    session.answered(ErrorCode.NONE, 99)
    request = session.request({("orders", 0): at(0, 5, UUID(int=2))})
    assert request.forgotten == [("orders", ORDERS, [0])]
    assert [topic_id for _, topic_id, _ in request.topics] == [UUID(int=2)]


def test_whatever_goes_wrong_the_next_request_is_a_full_one() -> None:
    for answer in ((ErrorCode.INVALID_FETCH_SESSION_EPOCH, 99), (ErrorCode.NONE, 0), None):
        session = FetchSession()
        wanted: Wanted = {("orders", 0): at(0, 5)}
        session.request(wanted)
        session.answered(ErrorCode.NONE, 99)
        session.request(wanted)
        if answer is None:
            session.reset()
        else:
            session.answered(*answer)
        again = session.request(wanted)
        assert (again.session_id, again.session_epoch, named(again)) == (99, 0, {("orders", 0): 5})


def test_topics_are_known_by_name_and_by_id() -> None:
    session = FetchSession()
    session.request({("orders", 0): at(0, 5)})
    assert session.topic_of("orders", None) == "orders"
    assert session.topic_of(None, ORDERS) == "orders"
    assert session.topic_of(None, UUID(int=9)) is None
    assert session.topic_of(None, None) is None


@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=5), max_size=10))
def test_the_brokers_partitions_are_those_that_were_wanted_last(steps: list[dict[int, int]]) -> None:
    session = FetchSession()
    broker: dict[TopicPartition, int] = {}
    for step in steps:
        request = session.request({("orders", number): at(number, offset) for number, offset in step.items()})
        if request.session_epoch == 0:
            broker.clear()
        for topic, _, numbers in request.forgotten:
            for number in numbers:
                del broker[(topic or "", number)]
        broker.update(named(request))
        assert broker == {("orders", number): offset for number, offset in step.items()}
        session.answered(ErrorCode.NONE, 7)
