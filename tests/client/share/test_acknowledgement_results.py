"""Results of acknowledgements that wait for the application's function `on_acknowledged`."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kraft.client import KafkaError
from kraft.client.core.share.acknowledging import Settled
from kraft.client.share.acknowledgement_results import AcknowledgementResults
from kraft.wire.error_codes import ErrorCode

A, B = ("orders", 0), ("orders", 1)
EXPIRED = KafkaError(ErrorCode.INVALID_RECORD_STATE, "the lock has run out")
Call = tuple[tuple[str, int], frozenset[int], KafkaError | None]


class Application:
    """Keeps the calls of its function, which raises an exception for each partition in `failing`."""

    def __init__(self, failing: tuple[tuple[str, int], ...] = ()) -> None:
        self.calls: list[Call] = []
        self.failing = failing

    def on_acknowledged(self, partition: tuple[str, int], offsets: frozenset[int], error: KafkaError | None) -> None:
        self.calls.append((partition, offsets, error))
        if partition in self.failing:
            raise RuntimeError(f"call {len(self.calls)}")


def test_each_result_is_reported_once_and_in_the_order_of_arrival() -> None:
    application = Application()
    results = AcknowledgementResults(application.on_acknowledged)
    results.add(Settled(B, (4, 5), EXPIRED, ()))
    results.add(Settled(A, (1,), None, ()))
    assert application.calls == []
    results.report()
    results.report()
    assert application.calls == [(B, frozenset({4, 5}), EXPIRED), (A, frozenset({1}), None)]
    assert not results.waiting


def test_acknowledgements_of_gaps_alone_are_not_reported() -> None:
    application = Application()
    results = AcknowledgementResults(application.on_acknowledged)
    results.add(Settled(A, (), None, ()))
    assert not results.waiting
    results.report()
    assert application.calls == []


def test_all_results_are_reported_before_the_first_exception_is_raised_and_others_are_logged() -> None:
    application = Application(failing=(A,))
    results = AcknowledgementResults(application.on_acknowledged)
    for offset, partition in enumerate((A, A, B)):
        results.add(Settled(partition, (offset,), None, ()))
    with capture_logs() as logged, pytest.raises(RuntimeError, match="call 1"):
        results.report()
    assert [sorted(offsets) for _, offsets, _ in application.calls] == [[0], [1], [2]]
    assert [line["problem"] for line in logged] == ["RuntimeError('call 2')"]
    results.report()
    assert len(application.calls) == 3


def test_a_result_that_arrives_during_a_call_is_reported_after_it() -> None:
    calls: list[int] = []

    def on_acknowledged(partition: tuple[str, int], offsets: frozenset[int], _error: KafkaError | None) -> None:
        if not calls:
            results.add(Settled(partition, (8,), None, ()))
        calls.extend(offsets)

    results = AcknowledgementResults(on_acknowledged)
    results.add(Settled(A, (7,), None, ()))
    results.report()
    assert calls == [7, 8]


def test_without_a_function_no_result_is_kept() -> None:
    results = AcknowledgementResults(None)
    results.add(Settled(A, (1,), EXPIRED, ()))
    assert not results.waiting
    results.report()


def test_an_async_function_is_refused() -> None:
    async def on_acknowledged(*_results: Any) -> None: ...

    with pytest.raises(TypeError, match="expected a plain one"):
        AcknowledgementResults(on_acknowledged)  # type: ignore[arg-type]
