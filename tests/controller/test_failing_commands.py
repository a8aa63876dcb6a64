"""An exception in a command fails that command alone, unless its events are in the log already."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import (
    FenceBrokers,
)
from kraft.control.decide import COMMANDS
from kraft.controller import command_queue as module
from kraft.controller.command_queue import CommandWaiter
from kraft.image import BatchBuilder
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host, is_fenced, large, run_out
from tests.stages.tables import replace_row


def raising(*_: Any, **__: Any) -> Any:
    raise KeyError("planted")


def test_exception_in_a_command_decided_at_once_is_reported_to_its_requester() -> None:
    host = Host(at_once=True)
    host.submit("no command", "trouble")
    assert host.told == [("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert host.troubles == [("no command", KeyError)]


def test_exception_in_a_later_step_fails_only_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "fine")
    with monkeypatch.context() as patch:
        patch.setattr(BatchBuilder, "take", raising)
        while host.queue.is_held:
            assert host.queue.run_next()
    run_out(host)
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.told[0] == ("large", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert host.names == ["large", "fine"]


def test_exception_while_a_batch_is_built_fails_only_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    while not isinstance(host.queue._in_progress, module._Decided):
        assert host.queue.run_next()
    monkeypatch.setattr(BatchBuilder, "take", raising)
    assert host.queue.run_next()
    assert host.told == [("large", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert not host.queue.is_held


def test_exception_in_a_slice_of_a_plan_fails_only_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True, partitions=1_500)
    host.submit(host.fence(1), "plan")
    with monkeypatch.context() as patch:
        replace_row(patch, COMMANDS, FenceBrokers, raising)
        assert host.queue.run_next()
    assert host.told == [("plan", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert host.queue.brokers_being_fenced() == frozenset()
    assert not host.queue.run_next()
    host.submit(host.fence(1), "again")
    run_out(host)
    assert is_fenced(host, 1)


def test_exception_in_a_reply_callback_fails_only_its_command() -> None:
    host = Host()
    outcomes: list[str] = []

    def reply(_: Any) -> None:
        outcomes.append("reply")
        raising()

    host.queue.submit(
        host.block(), CommandWaiter(reply, lambda: outcomes.append("lost"), lambda error: outcomes.append(error.name))
    )
    host.submit(host.block(), "fine")
    host.commit()
    assert outcomes == ["reply", "UNKNOWN_SERVER_ERROR"]
    assert host.names == ["fine"]


def test_batch_whose_image_cannot_be_built_is_not_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    end_offset = host.quorum.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(BatchBuilder, "build", raising)
        host.submit(host.block(), "trouble")
    assert host.quorum.log_end_offset == end_offset
    assert host.told == [("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)]
    host.submit(host.block(), "fine")
    host.commit()
    assert host.told[-1][1].first_producer_id == 0


@pytest.mark.parametrize("name", ["decided", "appended"])
def test_exception_after_the_append_raises_an_invariant_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    host = Host()
    monkeypatch.setattr(host, name, raising)
    with pytest.raises(InvariantError, match="may be in the log"):
        host.submit(host.block(), "trouble")
    assert host.told == []
