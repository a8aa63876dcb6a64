"""Share sessions and the records that they hold, without a network: which request follows which, and what becomes of
each acknowledgement.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.client.core.records import KafkaError
from kraft.client.core.share.acknowledging import Settled, ShareCommit
from kraft.client.core.share.acquired import AcquiredRange
from kraft.client.core.share.records import Acknowledgement, ShareRecord, TopicIdPartition
from kraft.client.core.share.requests import PartitionShareResult, ShareAnswer
from kraft.client.core.share.session import EPOCH_MAX, FINAL_EPOCH, ShareSessionRequest
from kraft.client.core.share.sessions import LINGER_MS, ShareSessions
from kraft.wire.error_codes import ErrorCode
from tests.client.core.share.log_bytes import log_of

TOPIC = UUID(int=7)
FIRST, SECOND = (TOPIC, 0), (TOPIC, 1)
NAMES = {FIRST: ("orders", 0), SECOND: ("orders", 1)}
ONE = {FIRST: ("orders", 0)}
LOCK_MS = 1_000
NODE = 1


class Member:
    """A member with sessions at one or more brokers. Time passes only on demand."""

    def __init__(self) -> None:
        self.sessions = ShareSessions(timeout_ms=5_000, backoff_ms=20, backoff_ms_max=100)
        self.now_ms = 10_000

    def next(self, wanted: Any = NAMES, *, may_fetch: bool = True, node: int = NODE) -> ShareSessionRequest | None:
        return self.sessions.next_request(node, wanted, self.now_ms, may_fetch=may_fetch)

    def send(self, wanted: Any = NAMES, *, may_fetch: bool = True, node: int = NODE) -> ShareSessionRequest:
        request = self.next(wanted, may_fetch=may_fetch, node=node)
        assert request is not None
        return request

    def answer(
        self,
        request: ShareSessionRequest,
        acquired: dict[TopicIdPartition, range] | None = None,
        errors: dict[TopicIdPartition, ErrorCode] | None = None,
    ) -> list[Settled]:
        """Answer a request with these records, and with these errors for acknowledgements."""
        rows: dict[TopicIdPartition, PartitionShareResult] = {}
        for partition in {*request.acknowledged, *(acquired or {})}:
            offsets = (acquired or {}).get(partition, range(0))
            code = (errors or {}).get(partition, ErrorCode.NONE)
            rows[partition] = PartitionShareResult(
                ErrorCode.NONE,
                "",
                code,
                "",
                None,
                None,
                log_of([offsets]) if offsets else b"",
                (AcquiredRange(offsets[0], offsets[-1], 1),) if offsets else (),
            )
        return self.sessions.accept(request, ShareAnswer(ErrorCode.NONE, "", LOCK_MS, rows), self.now_ms)

    def fetch(self, **acquired: range) -> None:
        """Fetch these records of partitions `first` and `second`."""
        partitions = {"first": FIRST, "second": SECOND}
        self.answer(self.send(), {partitions[name]: offsets for name, offsets in acquired.items()})

    def take(self, count: int = 100) -> list[ShareRecord]:
        return self.sessions.take(count, self.now_ms)

    def finish(self) -> None:
        """Accept all records that the application has."""
        self.sessions.accept_given()
        self.sessions.queue_marked(self.now_ms)

    def commit(self) -> ShareCommit:
        commit = ShareCommit()
        self.sessions.join(commit)
        return commit


def offsets(records: list[ShareRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


# epochs and partitions


def test_the_first_request_opens_the_session_and_later_ones_name_only_changes() -> None:
    member = Member()
    request = member.send(ONE)
    assert (request.epoch, request.is_fetch, request.added, request.forgotten) == (0, True, (FIRST,), ())
    member.answer(request)
    request = member.send(NAMES)
    assert (request.epoch, request.added, request.forgotten) == (1, (SECOND,), ())
    member.answer(request)
    request = member.send({SECOND: ("orders", 1)})
    assert (request.epoch, request.added, request.forgotten) == (2, (), (FIRST,))


def test_after_the_last_epoch_comes_epoch_1() -> None:
    member = Member()
    member.fetch()
    member.sessions.current[NODE].epoch = EPOCH_MAX
    member.fetch()
    assert member.send().epoch == 1


def test_nothing_is_fetched_unless_it_is_wanted() -> None:
    member = Member()
    assert member.next(may_fetch=False) is None
    assert member.next({}) is None


def test_a_session_without_partitions_and_records_is_ended() -> None:
    member = Member()
    member.fetch()
    request = member.send({})
    assert (request.epoch, request.is_fetch, request.is_final) == (FINAL_EPOCH, False, True)
    member.answer(request)
    member.sessions.ended(request.session)
    assert member.next({}) is None
    assert member.send().epoch == 0


def test_a_session_whose_records_are_still_used_is_not_ended() -> None:
    member = Member()
    member.fetch(first=range(3))
    assert offsets(member.take()) == [(0, 0), (0, 1), (0, 2)]
    assert member.next({}) is None
    member.finish()
    member.commit()
    request = member.send({})
    assert (request.epoch, set(request.acknowledged)) == (1, {FIRST})


# records


def test_each_take_begins_with_another_partition() -> None:
    member = Member()
    member.fetch(first=range(10), second=range(10))
    found = [record.partition for _ in range(4) for record in member.take(2)]
    assert sorted(found) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found[0] != found[2]


def test_records_whose_lock_has_run_out_are_dropped_from_the_buffer() -> None:
    member = Member()
    member.fetch(first=range(10))
    assert len(member.take(2)) == 2
    member.now_ms += LOCK_MS
    assert not member.sessions.has_more(member.now_ms)
    assert member.take() == []
    member.fetch(first=range(10))
    member.now_ms += LOCK_MS
    assert member.take() == []


def test_records_of_partitions_that_are_not_assigned_any_more_are_released() -> None:
    member = Member()
    member.fetch(first=range(4), second=range(2))
    assert len(member.take(1)) == 1
    member.sessions.release_others({("orders", 2)}, member.now_ms)
    assert member.take() == []
    request = member.send()
    released = {partition: sent.types for partition, sent in request.acknowledged.items()}
    assert sum(len(types) for types in released.values()) == 5
    assert {kind for types in released.values() for kind in types.values()} == {Acknowledgement.RELEASE}


def test_records_that_arrive_for_a_forgotten_partition_are_not_held() -> None:
    member = Member()
    member.fetch()
    request = member.send(ONE)
    member.answer(request, {SECOND: range(3)})
    assert member.take() == []


def test_the_records_of_a_damaged_batch_are_released_after_those_before_it_were_given() -> None:
    member = Member()
    good, bad = log_of([range(2)]), bytearray(log_of([range(2, 5)]))
    bad[-1] ^= 0xFF
    row = PartitionShareResult(
        ErrorCode.NONE, "", ErrorCode.NONE, "", None, None, good + bytes(bad), (AcquiredRange(0, 4, 1),)
    )
    answer = ShareAnswer(ErrorCode.NONE, "", LOCK_MS, {FIRST: row})
    member.sessions.accept(member.send(), answer, member.now_ms)
    assert offsets(member.take()) == [(0, 0), (0, 1)]
    with pytest.raises(KafkaError, match=r"orders-0: .*released, and delivered again") as damaged:
        member.take()
    assert damaged.value.code is ErrorCode.CORRUPT_MESSAGE
    assert member.take() == []
    assert member.send().acknowledged[FIRST].types == dict.fromkeys(range(2, 5), Acknowledgement.RELEASE)


def test_a_damaged_batch_is_reported_after_the_records_of_another_partition_were_given() -> None:
    member = Member()
    bad = bytearray(log_of([range(2)]))
    bad[-1] ^= 0xFF
    rows = {
        partition: PartitionShareResult(
            ErrorCode.NONE, "", ErrorCode.NONE, "", None, None, data, (AcquiredRange(0, 1, 1),)
        )
        for partition, data in ((FIRST, bytes(bad)), (SECOND, log_of([range(2)])))
    }
    member.sessions.accept(member.send(), ShareAnswer(ErrorCode.NONE, "", LOCK_MS, rows), member.now_ms)
    assert offsets(member.take()) == [(1, 0), (1, 1)]
    with pytest.raises(KafkaError, match=r"orders-0: .*released, and delivered again"):
        member.take()
    assert member.take() == []


def test_gaps_are_acknowledged_as_such_and_are_not_counted() -> None:
    member = Member()
    row = PartitionShareResult(
        ErrorCode.NONE, "", ErrorCode.NONE, "", None, None, log_of([[0, 2]]), (AcquiredRange(0, 3, 1),)
    )
    answer = ShareAnswer(ErrorCode.NONE, "", LOCK_MS, {FIRST: row})
    member.sessions.accept(member.send(), answer, member.now_ms)
    assert offsets(member.take()) == [(0, 0), (0, 2)]
    assert member.take() == []
    member.finish()
    request = member.send()
    assert request.acknowledged[FIRST].types == {0: 1, 1: 0, 2: 1, 3: 0}
    (result,) = member.answer(request)
    assert len(result.offsets) == 2


def test_iteration_takes_the_next_record_of_a_decoded_batch() -> None:
    member = Member()
    member.fetch(first=range(3))
    member.take(1)
    held = member.sessions.buffer_of(("orders", 0))
    assert held is not None
    held.accept_given()
    held.queue_marked(member.now_ms)
    assert held.take_next().offset == 1
    assert list(held.given) == [1]
    assert member.sessions.buffer_of(("orders", 1)) is None


# acknowledgements


def test_a_fetch_carries_the_acknowledgements_of_its_partitions() -> None:
    member = Member()
    member.fetch(first=range(3))
    member.take()
    member.finish()
    request = member.send()
    assert request.is_fetch
    assert request.acknowledged[FIRST].types == {0: 1, 1: 1, 2: 1}
    assert member.answer(request) == [Settled(("orders", 0), (0, 1, 2), None, ())]
    assert not member.send().acknowledged


def test_acknowledgements_without_a_fetch_are_gathered_for_a_moment() -> None:
    member = Member()
    member.fetch(first=range(10))
    member.take(2)
    member.finish()
    assert member.next(may_fetch=False) is None
    assert member.sessions.due_ms(set()) == member.now_ms + LINGER_MS
    assert member.sessions.due_ms({NODE}) == float("inf")
    member.now_ms += LINGER_MS
    request = member.send(may_fetch=False)
    assert (request.is_fetch, request.acknowledged[FIRST].types) == (False, {0: 1, 1: 1})


def test_acknowledgements_of_a_forgotten_partition_are_sent_while_others_are_fetched() -> None:
    member = Member()
    member.fetch(second=range(2))
    member.take()
    member.finish()
    assert member.send(ONE).is_fetch
    member.now_ms += LINGER_MS
    assert set(member.send(ONE).acknowledged) == {SECOND}


def test_a_commit_is_sent_at_once_and_gets_the_result_of_each_partition() -> None:
    member = Member()
    member.fetch(first=range(2), second=range(3))
    member.take()
    member.finish()
    commit = member.commit()
    request = member.send()
    assert not request.is_fetch
    results = member.answer(request, errors={SECOND: ErrorCode.INVALID_RECORD_STATE})
    assert {one.commits for one in results} == {(commit,)}
    errors = {one.partition: one.error for one in results}
    assert errors[("orders", 0)] is None
    error = errors[("orders", 1)]
    assert error is not None
    assert error.code is ErrorCode.INVALID_RECORD_STATE


def test_a_commit_waits_for_acknowledgements_in_flight_too() -> None:
    member = Member()
    member.fetch(first=range(4))
    member.take(2)
    member.finish()
    request = member.send()
    member.take(2)
    member.finish()
    commit = member.commit()
    assert commit.pending == 2
    (first,) = member.answer(request)
    (second,) = member.answer(member.send())
    assert (first.commits, second.commits) == ((commit,), (commit,))


def test_only_the_newest_acknowledgement_of_a_record_is_sent() -> None:
    member = Member()
    member.fetch(first=range(2))
    first, second = member.take()
    member.sessions.mark(first, Acknowledgement.ACCEPT)
    member.sessions.mark(first, Acknowledgement.REJECT)
    assert member.sessions.unacknowledged == 1
    member.sessions.queue_marked(member.now_ms)
    assert member.send().acknowledged[FIRST].types == {0: Acknowledgement.REJECT}
    assert member.sessions.unacknowledged == 1
    member.sessions.mark(second, Acknowledgement.RELEASE)
    assert member.sessions.unacknowledged == 0
    with pytest.raises(ValueError, match="offset 0 of orders-0 cannot be acknowledged"):
        member.sessions.mark(first, Acknowledgement.ACCEPT)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_an_acknowledgement_that_cannot_be_written_now_is_sent_again_after_a_pause(code: ErrorCode) -> None:
    member = Member()
    member.fetch(first=range(4))
    member.take(2)
    member.finish()
    commit = member.commit()
    request = member.send()
    assert member.answer(request, errors={FIRST: code}) == []
    member.take(2)
    member.finish()
    assert not member.send().acknowledged
    assert member.sessions.due_ms(set()) == member.now_ms + 20
    member.now_ms += 20
    request = member.send()
    assert request.acknowledged[FIRST].types == dict.fromkeys(range(4), 1)
    assert member.answer(request) == [Settled(("orders", 0), (0, 1, 2, 3), None, (commit,))]


def test_retries_end_after_the_timeout() -> None:
    member = Member()
    member.fetch(first=range(1))
    member.take()
    member.finish()
    member.commit()
    results: list[Settled] = []
    attempts = 0
    while not results:
        results = member.answer(member.send(), errors={FIRST: ErrorCode.COORDINATOR_NOT_AVAILABLE})
        attempts += 1
        member.now_ms = max(member.now_ms, int(min(member.sessions.due_ms(set()), member.now_ms + 1_000)))
    assert results[0].error is not None
    assert results[0].error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 10 < attempts < 100


def test_an_acknowledgement_that_the_response_lacks_has_failed() -> None:
    member = Member()
    member.fetch(first=range(1))
    member.take()
    member.finish()
    answer = ShareAnswer(ErrorCode.NONE, "", 0, {})
    (result,) = member.sessions.accept(member.send(), answer, member.now_ms)
    assert result.error is not None
    assert result.error.code is ErrorCode.INVALID_RECORD_STATE


# renewals


def test_a_renewed_record_is_given_again_and_blocks_fetches_until_then() -> None:
    member = Member()
    member.fetch(first=range(2))
    first, second = member.take()
    member.sessions.mark(first, Acknowledgement.RENEW)
    member.sessions.mark(second, Acknowledgement.ACCEPT)
    member.sessions.queue_marked(member.now_ms)
    assert member.sessions.has_renewals
    request = member.send()
    assert (request.is_fetch, request.has_renewals) == (False, True)
    member.answer(request)
    assert (member.sessions.has_renewals, member.sessions.unacknowledged) == (True, 0)
    assert member.sessions.take_renewed(10) == [first]
    assert (member.sessions.has_renewals, member.sessions.unacknowledged) == (False, 1)


def test_a_record_whose_renewal_has_failed_is_gone() -> None:
    member = Member()
    member.fetch(first=range(1))
    (record,) = member.take()
    member.sessions.mark(record, Acknowledgement.RENEW)
    member.sessions.queue_marked(member.now_ms)
    (result,) = member.answer(member.send(), errors={FIRST: ErrorCode.INVALID_RECORD_STATE})
    assert result.error is not None
    assert not member.sessions.has_renewals
    assert member.sessions.take_renewed(10) == []
    with pytest.raises(ValueError, match="cannot be acknowledged"):
        member.sessions.mark(record, Acknowledgement.ACCEPT)


def test_a_record_of_a_broker_without_renewal_cannot_be_renewed() -> None:
    member = Member()
    request = member.send()
    request.session.version = 1
    member.answer(request, {FIRST: range(1)})
    (record,) = member.take()
    with pytest.raises(KafkaError, match="cannot renew locks") as refused:
        member.sessions.mark(record, Acknowledgement.RENEW)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    member.sessions.mark(record, Acknowledgement.ACCEPT)


# lost sessions


def test_a_lost_session_fails_what_was_sent_and_what_was_not_and_drops_the_buffer() -> None:
    member = Member()
    member.fetch(first=range(6))
    member.take(2)
    member.finish()
    request = member.send()
    (third,) = member.take(1)
    member.finish()
    (fourth,) = member.take(1)
    failed = member.sessions.lose(request, ErrorCode.NETWORK_EXCEPTION)
    assert sorted(len(one.offsets) for one in failed) == [1, 2]
    assert {one.error.code for one in failed if one.error is not None} == {ErrorCode.NETWORK_EXCEPTION}
    assert member.take() == []
    assert (third.offset, fourth.offset) == (2, 3)
    assert member.send().epoch == 0
    member.finish()
    (late,) = member.sessions.fail_ended()
    assert late.error is not None
    assert (len(late.offsets), late.error.code) == (1, ErrorCode.NETWORK_EXCEPTION)
    assert member.sessions.fail_ended() == []


def test_the_same_record_from_a_new_session_is_acknowledged_in_that_session() -> None:
    member = Member()
    member.fetch(first=range(1))
    (lost,) = member.take()
    member.sessions.lose(member.send(), ErrorCode.NETWORK_EXCEPTION)
    member.fetch(first=range(1))
    (again,) = member.take()
    assert lost.offset == again.offset
    member.sessions.mark(again, Acknowledgement.ACCEPT)
    member.sessions.queue_marked(member.now_ms)
    assert member.send().acknowledged[FIRST].types == {0: 1}


def test_leaving_sends_what_is_queued_with_the_last_request_of_each_session() -> None:
    member = Member()
    member.fetch(first=range(4))
    request = member.send(node=2)
    member.answer(request, {SECOND: range(2)})
    member.take(3)
    member.finish()
    last = member.sessions.end_all()
    assert {one.epoch for one in last} == {FINAL_EPOCH}
    assert sum(len(sent.types) for one in last for sent in one.acknowledged.values()) == 3
    assert member.take() == []
    for one in last:
        member.answer(one)
        member.sessions.ended(one.session)
    assert member.sessions.end_all() == []
    assert member.sessions.fail_ended() == []


def test_the_last_request_releases_what_the_application_still_has() -> None:
    member = Member()
    member.fetch(first=range(3))
    first, second, third = member.take()
    for record in (first, second):
        member.sessions.mark(record, Acknowledgement.RENEW)
        member.sessions.queue_marked(member.now_ms)
        if record is first:
            member.answer(member.send())
    (last,) = member.sessions.end_all()
    assert last.acknowledged[FIRST].types == {1: Acknowledgement.RENEW}
    (result,) = member.answer(last)
    assert result.error is None
    member.sessions.ended(last.session)
    assert (member.sessions.unacknowledged, member.sessions.has_renewals) == (0, False)
    assert member.sessions.take_renewed(10) == []
    with pytest.raises(ValueError, match="released"):
        member.sessions.mark(third, Acknowledgement.ACCEPT)


def test_a_commit_waits_for_the_acknowledgements_of_the_last_request_too() -> None:
    member = Member()
    member.fetch(first=range(2))
    member.take()
    member.finish()
    (last,) = member.sessions.end_all()
    commit = member.commit()
    assert commit.pending == 1
    assert member.answer(last) == [Settled(("orders", 0), (0, 1), None, (commit,))]


def test_leaving_forgets_the_records_of_lost_sessions() -> None:
    member = Member()
    member.fetch(first=range(2))
    first, second = member.take()
    member.sessions.lose(member.send(), ErrorCode.NETWORK_EXCEPTION)
    member.sessions.mark(first, Acknowledgement.ACCEPT)
    member.sessions.queue_marked(member.now_ms)
    assert member.sessions.end_all() == []
    assert member.sessions.unacknowledged == 0
    (failed,) = member.sessions.fail_ended()
    assert len(failed.offsets) == 1
    with pytest.raises(ValueError, match="released"):
        member.sessions.mark(second, Acknowledgement.ACCEPT)


def test_records_that_arrive_after_the_last_request_are_not_held() -> None:
    member = Member()
    member.fetch()
    late = member.send()
    (last,) = member.sessions.end_all()
    member.answer(late, {FIRST: range(3)})
    assert member.take() == []
    member.answer(last)
    member.sessions.ended(last.session)
    assert member.sessions.current == {}


def test_a_failed_last_request_reports_its_acknowledgements() -> None:
    member = Member()
    member.fetch(first=range(2))
    member.take()
    member.finish()
    (last,) = member.sessions.end_all()
    (failed,) = member.sessions.lose(last, ErrorCode.REQUEST_TIMED_OUT)
    assert failed.error is not None
    assert "did not answer in time" in str(failed.error)


def test_a_response_before_that_of_the_last_request_does_not_forget_its_acknowledgements() -> None:
    member = Member()
    member.fetch(first=range(2))
    member.take()
    member.finish()
    commit = member.commit()
    assert member.answer(member.send(), errors={FIRST: ErrorCode.COORDINATOR_NOT_AVAILABLE}) == []
    late = member.send()
    assert not late.acknowledged
    (last,) = member.sessions.end_all()
    assert member.answer(late) == []
    assert member.answer(last) == [Settled(("orders", 0), (0, 1), None, (commit,))]
    member.sessions.ended(last.session)
    assert member.sessions.current == {}


def test_each_acknowledgement_gets_one_result_when_both_last_requests_fail() -> None:
    member = Member()
    member.fetch(first=range(2), second=range(2))
    member.take(2)
    member.finish()
    commit = member.commit()
    late = member.send(may_fetch=False)
    member.take(2)
    member.finish()
    (last,) = member.sessions.end_all()
    failed = member.sessions.lose(last, ErrorCode.REQUEST_TIMED_OUT)
    assert sorted((one.partition, one.commits) for one in failed) == [
        (partition, (commit,) if partition == NAMES[next(iter(late.acknowledged))] else ())
        for partition in sorted(NAMES.values())
    ]
    assert member.sessions.lose(late, ErrorCode.NETWORK_EXCEPTION) == []


def test_the_answer_to_the_last_request_has_no_effect_after_the_session_was_lost() -> None:
    member = Member()
    member.fetch(first=range(2))
    member.take()
    member.finish()
    assert member.answer(member.send(), errors={FIRST: ErrorCode.COORDINATOR_NOT_AVAILABLE}) == []
    late = member.send()
    (last,) = member.sessions.end_all()
    assert last.acknowledged
    (failed,) = member.sessions.lose(late, ErrorCode.NETWORK_EXCEPTION)
    assert failed.error is not None
    assert member.answer(last) == []
