"""What a command raises is its own trouble, until something of it is in the log."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import (
    FenceBrokers,
)
from kraft.control.decide import COMMANDS
from kraft.controller import command_queue as module
from kraft.controller.command_queue import Waiter
from kraft.image import BatchBuilder
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host, is_fenced, large, run_out
from tests.stages.tables import replace_row


def raising(*_: Any, **__: Any) -> Any:
    raise KeyError("planted")


def test_the_trouble_of_a_command_that_is_decided_at_once_is_told_as_that_of_one_that_waited() -> None:
    host = Host(at_once=True)
    host.submit("no command", "trouble")
    assert host.told == [("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert host.troubles == [("no command", KeyError)]


def test_trouble_in_a_later_step_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "fine")
    with monkeypatch.context() as patch:
        patch.setattr(BatchBuilder, "take", raising)
        while host.line.is_taken:
            assert host.line.run_next()
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.told[0] == ("large", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert host.names == ["large", "fine"]


def test_trouble_while_a_batch_is_filled_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    while not isinstance(host.line._under_way, module._Decided):
        assert host.line.run_next()
    monkeypatch.setattr(BatchBuilder, "take", raising)
    assert host.line.run_next()
    assert host.told == [("large", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert not host.line.is_taken


def test_the_trouble_of_a_plans_slice_is_the_plans_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True, partitions=1_500)
    host.submit(host.fence(1), "plan")
    with monkeypatch.context() as patch:
        replace_row(patch, COMMANDS, FenceBrokers, raising)
        assert host.line.run_next()
    assert host.told == [("plan", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert host.line.brokers_being_fenced() == frozenset()
    assert not host.line.run_next()
    host.submit(host.fence(1), "again")
    run_out(host)
    assert is_fenced(host, 1)


def test_a_reply_that_raises_harms_no_other() -> None:
    host = Host()
    outcomes: list[str] = []

    def reply(_: Any) -> None:
        outcomes.append("reply")
        raising()

    host.line.submit(
        host.block(), Waiter(reply, lambda: outcomes.append("lost"), lambda error: outcomes.append(error.name))
    )
    host.submit(host.block(), "fine")
    host.commit()
    assert outcomes == ["reply", "UNKNOWN_SERVER_ERROR"]
    assert host.names == ["fine"]


def test_a_batch_whose_image_cannot_be_built_is_in_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_trouble_behind_the_append_is_a_broken_invariant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    host = Host()
    monkeypatch.setattr(host, name, raising)
    with pytest.raises(InvariantError, match="may be in the log"):
        host.submit(host.block(), "trouble")
    assert host.told == []
