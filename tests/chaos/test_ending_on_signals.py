"""Tests of how a signal ends a chaos run, wherever the interpreter is when it arrives."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import trio
import typer

from kraft.deploy.cli.chaos import ending_on_signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalsWhenCollected:
    """Object in whose finalizer a signal arrives."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_finalizer_under_trio_ends_the_run_at_the_next_check(number: signal.Signals) -> None:
    async def work(check: Callable[[], None]) -> None:
        SignalsWhenCollected(number)
        await trio.lowlevel.checkpoint()
        check()
        raise AssertionError("the check does not know the signal")

    with pytest.raises(typer.Exit) as ended, ending_on_signals() as check:
        trio.run(work, check)
    assert ended.value.exit_code == 128 + number


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_without_trio_ends_the_run_at_once(number: signal.Signals) -> None:
    after: list[str] = []
    with pytest.raises(typer.Exit) as ended, ending_on_signals():
        signal.raise_signal(number)
        after.append("went on")
    assert (ended.value.exit_code, after) == (128 + number, [])


def test_a_signal_after_the_last_check_still_ends_the_run() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        await trio.lowlevel.checkpoint()

    with pytest.raises(typer.Exit) as ended, ending_on_signals():
        trio.run(work)
    assert ended.value.exit_code == 128 + signal.SIGTERM


def test_a_second_signal_ends_cleaning_up_that_waits() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    with pytest.raises(typer.Exit) as ended, ending_on_signals():
        trio.run(work)
    assert ended.value.exit_code == 128 + signal.SIGINT


def test_the_handlers_of_before_are_back_after_the_run() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with ending_on_signals():
        pass
    assert [signal.getsignal(number) for number in SIGNALS] == before
