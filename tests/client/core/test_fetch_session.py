"""A fetch session: each request names only the changes, and the session's state at the broker stays equal to the
client's.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.fetch_session import FetchSessionHandler, SessionRequest
from kraft.client.core.records import TopicPartition
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition

ORDERS = UUID(int=1)
Wanted = dict[TopicPartition, tuple[UUID | None, FetchPartition]]


def at(partition: int, offset: int, topic_id: UUID | None = ORDERS) -> tuple[UUID | None, FetchPartition]:
    return (topic_id, FetchPartition(partition, 3, offset, -1, -1, 1_000))


def named(request: SessionRequest) -> dict[TopicPartition, int]:
    return {(topic or "", p.partition): p.fetch_offset for topic, _, parts in request.topics for p in parts}


def test_the_first_fetch_request_is_full_and_the_next_names_only_changes() -> None:
    session = FetchSessionHandler()
    wanted: Wanted = {("orders", 0): at(0, 5), ("orders", 1): at(1, 7)}
    first = session.request(wanted)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, {("orders", 0): 5, ("orders", 1): 7})
    session.answered(ErrorCode.NONE, 99)
    wanted[("orders", 1)] = at(1, 9)
    second = session.request(wanted)
    assert (second.session_id, second.session_epoch, named(second)) == (99, 1, {("orders", 1): 9})
    assert second.forgotten == []


def test_partitions_no_longer_wanted_are_in_the_forgotten_list() -> None:
    session = FetchSessionHandler()
    session.request({("orders", 0): at(0, 5), ("orders", 1): at(1, 7)})
    session.answered(ErrorCode.NONE, 99)
    request = session.request({("orders", 1): at(1, 7)})
    assert (named(request), request.forgotten) == ({}, [("orders", ORDERS, [0])])


def test_a_recreated_topic_is_forgotten_and_added_with_its_new_id() -> None:
    session = FetchSessionHandler()
    session.request({("orders", 0): at(0, 5)})
    session.answered(ErrorCode.NONE, 99)
    request = session.request({("orders", 0): at(0, 5, UUID(int=2))})
    assert request.forgotten == [("orders", ORDERS, [0])]
    assert [topic_id for _, topic_id, _ in request.topics] == [UUID(int=2)]


def test_the_fetch_request_after_any_session_error_names_every_partition() -> None:
    for answer in ((ErrorCode.INVALID_FETCH_SESSION_EPOCH, 99), (ErrorCode.NONE, 0), None):
        session = FetchSessionHandler()
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


def test_a_fetch_session_finds_topics_by_name_and_by_id() -> None:
    session = FetchSessionHandler()
    session.request({("orders", 0): at(0, 5)})
    assert session.topic_of("orders", None) == "orders"
    assert session.topic_of(None, ORDERS) == "orders"
    assert session.topic_of(None, UUID(int=9)) is None
    assert session.topic_of(None, None) is None


@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=5), max_size=10))
def test_the_brokers_session_state_equals_the_partitions_requested_last(steps: list[dict[int, int]]) -> None:
    session = FetchSessionHandler()
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
