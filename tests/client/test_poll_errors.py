"""The errors that `poll` raises for background tasks: their order, which are dropped, and the wake-up of `poll`."""

from __future__ import annotations

import trio
import trio.testing
from structlog.testing import capture_logs

from kraft.client import KafkaError
from kraft.client.poll_errors import PollErrors
from kraft.wire.error_codes import ErrorCode

REJECTED = KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "group jobs: the group is full")


def raised(errors: PollErrors) -> Exception | None:
    """Return the error that the next `poll` raises, if any."""
    try:
        errors.raise_next()
    except Exception as error:  # noqa: BLE001 - errors of all types are raised
        return error
    return None


def is_waiting(errors: PollErrors) -> bool:
    return errors.is_waiting


def test_errors_of_the_client_are_raised_before_those_of_topics_and_the_final_error_last() -> None:
    errors = PollErrors()
    topic, commit, listener = RuntimeError("a topic"), RuntimeError("second"), RuntimeError("first")
    errors.begin_subscription()(topic)
    errors.report(commit)
    errors.report(listener)
    errors.final = REJECTED
    assert [raised(errors) for _ in range(5)] == [commit, listener, topic, REJECTED, REJECTED]


def test_an_error_is_raised_once() -> None:
    errors = PollErrors()
    assert not is_waiting(errors)
    errors.report(RuntimeError("a commit"))
    errors.begin_subscription()(RuntimeError("a topic"))
    assert is_waiting(errors)
    assert [str(raised(errors)) for _ in range(2)] == ["a commit", "a topic"]
    assert not is_waiting(errors)
    assert raised(errors) is None


def test_an_error_is_dropped_while_one_of_the_same_type_and_text_waits() -> None:
    errors = PollErrors()
    first, same, other = RuntimeError("a commit"), RuntimeError("a commit"), ValueError("a commit")
    for error in (first, same, other):
        errors.report(error)
    assert [raised(errors) for _ in range(3)] == [first, other, None]
    errors.report(same)
    assert raised(errors) is same


def test_errors_of_topics_are_dropped_when_their_subscription_ends() -> None:
    errors = PollErrors()
    of_first = errors.begin_subscription()
    of_first(RuntimeError("a topic"))
    of_second = errors.begin_subscription()
    of_first(RuntimeError("late"))
    assert raised(errors) is None
    of_second(RuntimeError("a topic"))
    errors.report(commit := RuntimeError("a commit"))
    errors.end_subscription()
    assert [raised(errors) for _ in range(2)] == [commit, None]
    assert not is_waiting(errors)


def test_the_final_error_is_raised_until_it_is_cleared() -> None:
    errors = PollErrors(RuntimeError("not open"))
    assert is_waiting(errors)
    assert str(raised(errors)) == str(raised(errors)) == "not open"
    errors.final = None
    assert not is_waiting(errors)
    assert raised(errors) is None


def test_a_membership_ends_with_its_only_error_or_with_the_group_of_several() -> None:
    errors = PollErrors()
    errors.end(ExceptionGroup("outer", [ExceptionGroup("inner", [REJECTED])]))
    assert raised(errors) is REJECTED
    several = ExceptionGroup("outer", [REJECTED, RuntimeError("another")])
    errors.end(several)
    assert raised(errors) is several


def test_errors_that_wait_when_the_consumer_closes_are_logged_except_the_final_one() -> None:
    errors = PollErrors(REJECTED)
    errors.begin_subscription()(RuntimeError("a topic"))
    errors.report(RuntimeError("a commit"))
    with capture_logs() as logged:
        errors.log_waiting("share consumer")
    assert [line["problem"] for line in logged] == ["a commit", "a topic"]
    assert {line["event"] for line in logged} == {"the share consumer was closed before poll raised this error"}


def test_a_waiting_poll_is_woken_by_each_kind_of_report() -> None:
    async def main() -> None:
        errors = PollErrors()
        of_topic = errors.begin_subscription()
        woken: list[str] = []

        async def poll() -> None:
            while True:
                await errors.wait()
                woken.append("poll")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await trio.testing.wait_all_tasks_blocked()
            for report in (
                errors.announce,
                lambda: errors.report(RuntimeError("a commit")),
                lambda: of_topic(RuntimeError("a topic")),
                lambda: errors.end(ExceptionGroup("rejected", [REJECTED])),
            ):
                assert not woken
                report()
                await trio.testing.wait_all_tasks_blocked()
                assert woken == ["poll"]
                woken.clear()
            nursery.cancel_scope.cancel()

    trio.run(main)
