"""The line of commands: replies wait for the high watermark, and nothing uncommitted outlives leadership."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import (
    ElectLeaderless,
)
from kraft.controller import command_queue as module
from kraft.controller.command_queue import CommandLine
from kraft.image import MetadataImage, digest, replay
from kraft.image.events import decode_event
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host


def test_a_reply_waits_until_its_events_are_committed() -> None:
    host = Host()
    host.submit(host.block(), "first")
    assert host.told == []
    host.commit()
    assert host.names == ["first"]


def test_a_reply_without_events_waits_for_what_it_has_read() -> None:
    host = Host()
    host.submit(host.block(), "writes")
    host.submit(ElectLeaderless(), "reads what is pending")
    assert host.told == []
    host.commit()
    assert host.names == ["writes", "reads what is pending"]


def test_a_reply_that_depends_on_nothing_pending_leaves_at_once() -> None:
    host = Host()
    host.submit(ElectLeaderless(), "reads")
    assert host.names == ["reads"]


def test_replies_leave_in_order_and_only_as_far_as_the_high_watermark() -> None:
    host = Host()
    ends = []
    for name in ("a", "b", "c"):
        host.submit(host.block(), name)
        ends.append(host.quorum.log_end_offset)
    host.commit(ends[1])
    assert host.names == ["a", "b"]
    host.commit(ends[2])
    assert host.names == ["a", "b", "c"]


def test_the_next_command_sees_what_is_not_committed_yet() -> None:
    host = Host()
    host.submit(host.block(), "first")
    host.submit(host.block(), "second")
    host.commit()
    assert [reply.first_producer_id for _, reply in host.told] == [0, 1000]


def test_the_speculative_image_is_the_committed_one_plus_what_is_appended() -> None:
    host = Host(partitions=5)
    before = host.cluster.image
    host.submit(host.fence(1), "fence")
    host.submit(host.block(), "block")
    appended = [decode_event(value) for value in host.quorum.values[before.offset :]]
    assert host.line.image is not None
    expected = replay(before, appended, host.quorum.log_end_offset, 1)
    assert digest(host.line.image) == digest(expected)


def test_losing_leadership_drops_what_is_pending_and_fails_who_waits() -> None:
    host = Host(partitions=1_500)
    host.submit(host.block(), "committed")
    host.commit()
    host.submit(host.block(), "pending")
    host.submit(host.fence(1), "plan")
    assert host.waiting == 1
    host.line.deactivate()
    assert host.told[1:] == [("pending", "lost"), ("plan", "lost")]
    assert host.line.image is None
    assert not host.line.run_next()
    host.submit(host.block(), "later")
    assert host.told[-1] == ("later", "lost")


def test_a_new_leadership_starts_from_the_committed_image() -> None:
    host = Host()
    host.submit(host.block(), "lost")
    host.line.deactivate()
    host.quorum.truncate()
    host.line.activate(host.cluster.image, 2, host.quorum.high_watermark)
    host.submit(host.block(), "again")
    host.commit()
    assert host.told[-1][1].first_producer_id == 0


def test_an_append_that_is_refused_fails_the_command_alone() -> None:
    host = Host()
    host.quorum.is_leader = False
    host.submit(host.block(), "refused")
    assert host.told == [("refused", "lost")]
    assert host.line.image is host.cluster.image
    assert host.commands == []


def test_an_offset_that_differs_from_what_was_decided_is_a_broken_invariant() -> None:
    host = Host()
    host.quorum.on_append = lambda: host.quorum.values.append(b"somebody else")
    with pytest.raises(InvariantError, match="decided for offset"):
        host.submit(host.block(), "surprised")


def test_a_plan_runs_slice_by_slice_with_other_commands_in_between() -> None:
    host = Host(at_once=True, partitions=1_250)
    host.submit(host.fence(1), "plan")
    assert (host.waiting, host.told) == (1, [])
    assert host.line.brokers_being_fenced() == frozenset((1,))
    host.submit(host.block(), "in between")
    assert host.line.run_next()
    assert host.line.run_next()
    assert not host.line.run_next()
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["in between", "plan"]
    assert host.line.brokers_being_fenced() == frozenset()
    assert host.line.image is not None
    assert host.line.image.brokers[1].fenced


def test_a_broker_that_shuts_down_joins_no_isr_while_its_plan_runs() -> None:
    """Between two slices it is active by the image still, and not eligible for anything."""
    host = Host(at_once=True, partitions=1_500)
    host.submit(host.shut_down(1), "plan")
    assert host.line.brokers_being_fenced() == frozenset((1,))
    host.submit(host.join(1), "join")
    host.line.high_watermark_reached(host.quorum.high_watermark)
    (refused,) = host.told[-1][1].partitions
    assert refused.error_code is ErrorCode.INELIGIBLE_REPLICA
    assert host.line.run_next()
    assert not host.line.run_next()
    assert host.line.image is not None
    assert not host.line.image.is_active(1)
    assert host.line.brokers_being_fenced() == frozenset()


def test_a_broker_that_shuts_down_is_answered_behind_the_first_slice_of_its_plan_and_whenever_it_asks_again() -> None:
    """It takes a controller that says nothing for two seconds for dead, and a plan over very many takes longer."""
    host = Host(partitions=2_500)
    host.submit(host.shut_down(1), "stop")
    assert [name for name in host.told if isinstance(name, tuple)] == []
    host.commit()
    (first,) = [told[1] for told in host.told if isinstance(told, tuple)]
    assert not first.should_shut_down
    assert host.line.brokers_being_fenced() == frozenset((1,))
    host.submit(host.shut_down(1), "again")
    assert host.line.run_next()
    host.commit()
    assert [told[0] for told in host.told if isinstance(told, tuple)] == ["stop", "again"]
    while host.line.run_next():
        host.commit()
    assert host.line.image is not None
    assert not host.line.image.is_active(1)


def test_the_reply_of_a_plan_waits_for_its_last_slice_to_commit() -> None:
    host = Host(partitions=750)
    host.submit(host.fence(1), "plan")
    host.commit()
    assert host.told == []
    host.line.run_next()
    assert host.told == []
    host.commit()
    assert host.names == ["plan"]


def test_a_plan_waits_while_much_that_it_appended_is_not_committed() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "plan")
    assert host.line.run_next()
    assert host.line.run_next()
    assert not host.line.run_next(), "three slices of 500 are under way"
    host.submit(host.block(), "other")
    assert host.quorum.log_end_offset - host.quorum.high_watermark == 1_501
    waiting = host.waiting
    host.commit(host.quorum.high_watermark + 1_000)
    assert host.waiting > waiting
    assert host.line.run_next()
    host.commit()
    assert host.names == ["other"]


# planted bugs


def reply_on_append(self: CommandLine, parked: Any) -> None:
    """Send the reply when the events are appended, before they are committed (B31)."""
    parked.asked.waiter.reply(parked.reply)


def keep_on_resign(self: CommandLine) -> None:
    """Keep uncommitted state after the loss of leadership (B32)."""
    kept = self.image
    honest_deactivate(self)
    self.image = kept


def activate_only_if_empty(self: CommandLine, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
    """Start a leadership with the kept state (B32)."""
    honest_activate(self, self.image or committed, epoch, high_watermark)


honest_deactivate = CommandLine.deactivate
honest_activate = CommandLine.activate


def test_planted_reply_on_append_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CommandLine, "_park", reply_on_append)
    for notices in (
        test_a_reply_waits_until_its_events_are_committed,
        test_a_reply_without_events_waits_for_what_it_has_read,
        test_the_reply_of_a_plan_waits_for_its_last_slice_to_commit,
    ):
        with pytest.raises(AssertionError):
            notices()


def test_planted_no_rollback_on_resign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CommandLine, "deactivate", keep_on_resign)
    with pytest.raises(AssertionError):
        test_losing_leadership_drops_what_is_pending_and_fails_who_waits()
    monkeypatch.setattr(module.CommandLine, "activate", activate_only_if_empty)
    with pytest.raises((AssertionError, InvariantError)):
        test_a_new_leadership_starts_from_the_committed_image()
