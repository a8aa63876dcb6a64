"""Fetch responses to sessions with very many changed partitions: each response has a bounded number of them, and a
later response has the others.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.broker.api.fetch import pending_fetch as fetching
from kraft.broker.api.fetch.sessions import FetchSession
from kraft.broker.following import leader_fetcher as fetcher_module
from kraft.broker.following.leader_fetcher import LeaderFetcher
from kraft.broker.replica.follower import FollowerStatus
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.fetch.test_fetch import Session, told
from tests.stages.plane import Plane, batch, run, three

BOUND = 3
PARTITIONS = 10


@pytest.fixture(autouse=True)
def _small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "ANSWER_PARTITIONS_MAX", BOUND)


async def write_to_each(plane: Plane) -> int:
    """Write one record to each partition. Return the bytes of one record."""
    data = batch("a".ljust(100, "."))
    await plane.produce_many([("many", [(index, bytes(data)) for index in range(PARTITIONS)])], acks=1)
    return len(data)


async def joined(plane: Plane, *others: tuple[str, int, int], **options: Any) -> Session:
    """Return a session that fetches `others` and a topic whose records were written after the session's first
    response."""
    session = Session(plane)
    wishes = [*others, *[("many", index, 0) for index in range(PARTITIONS)]]
    first = told(await session.fetch(*wishes, **options))
    assert len(first) == len(wishes), "a full request is answered in full"
    await write_to_each(plane)
    return session


def test_a_fetch_response_has_at_most_250_partitions_and_later_responses_have_the_others() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=PARTITIONS)
        session = await joined(plane)
        answers = [told(await session.fetch()) for _ in range(8)]
        assert {len(answer) for answer in answers} == {BOUND}
        order = [index for answer in answers for _, index in answer]
        turns = order[:PARTITIONS]
        assert sorted(turns) == list(range(PARTITIONS))
        assert order == (3 * turns)[: 8 * BOUND]

    run(test)


def test_partitions_with_errors_do_not_keep_changed_partitions_out_of_fetch_responses() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=PARTITIONS)
        session = await joined(plane, *[("nowhere", index, 0) for index in range(2 * BOUND)])
        seen: set[tuple[Any, int]] = set()
        for _ in range(6):
            answer = told(await session.fetch())
            assert len(answer) <= BOUND
            seen |= set(answer)
        assert len(seen) == 2 * BOUND + PARTITIONS

    run(test)


def test_a_fetch_reads_more_partitions_than_the_response_limit_until_it_has_min_bytes() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=PARTITIONS)
        session = await joined(plane)
        size = len(batch("a".ljust(100, ".")))
        began_ns = plane.world.now_ns
        answer = told(await session.fetch(min_bytes=5 * size, max_wait_ms=10_000))
        assert len(answer) == 5
        assert (plane.world.now_ns - began_ns) / 1e6 < 1_000
        answer = told(await session.fetch(min_bytes=2 * PARTITIONS * size, max_wait_ms=10_000))
        assert len(answer) == BOUND, "its time is over"

    run(test)


async def following(plane: Plane) -> tuple[Session, list[int]]:
    """Return a fetch session that takes the place of broker 2, which is dead. Also return the partitions, in the order
    in which their records will be fetched."""
    await plane.create_topic("many", partitions=PARTITIONS, leader=1)
    plane.world.kill("b2")
    session = await joined(plane, replica_id=2)
    kept = plane.cluster.node(1).broker.broker.replicas.fetch_sessions.peek(session.session_id)
    return session, [entry.index for entry in kept.dirty]


def test_a_followers_fetch_offset_counts_at_once_even_if_its_records_come_in_a_later_response() -> None:
    async def test(plane: Plane) -> None:
        session, turns = await following(plane)
        answer = told(await session.fetch(("many", turns[-1], 1), replica_id=2))
        assert {index for _, index in answer} == {*turns[:BOUND], turns[-1]}
        leader = plane.partition("many", 1, turns[-1]).leader
        assert leader is not None
        assert leader.followers[2].end_offset == 1

    three(test)


def test_a_partition_whose_records_were_just_fetched_is_placed_behind_the_other_changed_partitions() -> None:
    session = FetchSession(2, uses_topic_ids=False, now_ms=0)
    entries = [session.partition("many", index) for index in range(3)]
    for entry in entries:
        session.note(entry)
    session.move_behind(entries[0])
    session.note(entries[1])
    assert [entry.index for entry in session.dirty] == [1, 2, 0]


def begin_to_cut(plane: Plane, index: int) -> None:
    """Begin a truncation of the log, as if its broker followed another leader."""
    partition = plane.partition("many", index=index)
    assert partition.state is not None
    partition.follow(partition.state)
    partition.truncation_begun()


def test_a_fetched_partition_whose_log_is_opening_gets_no_error_when_others_fill_the_response() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=PARTITIONS)
        session = await joined(plane)
        kept = plane.cluster.node(1).broker.broker.replicas.fetch_sessions.peek(session.session_id)
        first = next(iter(kept.dirty)).index
        begin_to_cut(plane, first)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(told(await session.fetch(max_wait_ms=0)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await plane.world.sleep_ms(100)
            assert not answers, "it waits for the log"
            plane.partition("many", index=first).truncation_done()
            plane.cluster.node(1).broker.broker.replicas.loop.request_pass()
        assert len(answers[0]) == BOUND
        assert answers[0]["many", first][0] == ErrorCode.NONE

    run(test)


def test_a_partition_named_by_a_follower_fetch_gets_no_error_while_its_log_is_opening() -> None:
    async def test(plane: Plane) -> None:
        session, turns = await following(plane)
        begin_to_cut(plane, turns[-1])
        answer = told(await session.fetch(("many", turns[-1], 1), replica_id=2))
        assert {index for _, index in answer} == set(turns[:BOUND])


@pytest.mark.parametrize("fetched", [(), (PARTITIONS - 1,)])
def test_a_fetcher_with_many_unfetchable_partitions_examines_them_over_several_steps(
    fetched: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "SESSION_PARTITIONS_MAX", 1)
    monkeypatch.setattr(fetcher_module, "BATCHES_PER_STEP_MAX", 2)
    monkeypatch.setattr(fetcher_module, "DROPPED_MAX", 2)

    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=PARTITIONS, leader=1)
        manager = plane.cluster.node(2).broker.broker.replicas
        (fetcher,) = [one for one in manager.fetchers if one.leader_id == 1]
        await plane.until(lambda: len(fetcher._in_session) == PARTITIONS)
        looked: list[int] = []
        real = LeaderFetcher._next_changed

        def next_changed(self: LeaderFetcher) -> Any:
            looked[-1] += 1
            return real(self)

        send = LeaderFetcher._send

        def counted_send(self: LeaderFetcher) -> None:
            looked.append(0)
            send(self)

        monkeypatch.setattr(LeaderFetcher, "_next_changed", next_changed)
        monkeypatch.setattr(LeaderFetcher, "_send", counted_send)
        for followed in fetcher._followed.values():
            if followed.partition.index not in fetched:
                followed.state.status = FollowerStatus.STOPPED
        before = fetcher._connection
        before.close("a new session")
        await plane.until(lambda: fetcher._connection not in (None, before) and not fetcher._has_more)
        assert max(looked) <= 2
        assert sum(looked) >= PARTITIONS // 2
        assert set(fetcher._in_session) == {(plane.partition("many", 2).topic_id, index) for index in fetched}
        for followed in fetcher._followed.values():
            followed.state.status = FollowerStatus.FETCHING
            fetcher.changed(followed)
        fetcher.nudge()
        await plane.until(lambda: len(fetcher._in_session) == PARTITIONS)

    three(test)
