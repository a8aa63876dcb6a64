"""The command queue: replies wait for the high watermark, and nothing uncommitted survives a loss of leadership."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import (
    ElectLeaderless,
)
from kraft.controller import command_queue as module
from kraft.controller.command_queue import CommandQueue
from kraft.image import MetadataImage, digest, replay
from kraft.image.events import decode_event
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host


def test_reply_of_a_command_waits_until_its_events_are_committed() -> None:
    host = Host()
    host.submit(host.block(), "first")
    assert host.told == []
    host.commit()
    assert host.names == ["first"]


def test_reply_without_events_waits_until_the_state_it_read_is_committed() -> None:
    host = Host()
    host.submit(host.block(), "writes")
    host.submit(ElectLeaderless(), "reads what is pending")
    assert host.told == []
    host.commit()
    assert host.names == ["writes", "reads what is pending"]


def test_reply_of_a_command_that_depends_on_no_uncommitted_state_is_sent_at_once() -> None:
    host = Host()
    host.submit(ElectLeaderless(), "reads")
    assert host.names == ["reads"]


def test_replies_are_sent_in_order_up_to_the_high_watermark() -> None:
    host = Host()
    ends = []
    for name in ("a", "b", "c"):
        host.submit(host.block(), name)
        ends.append(host.quorum.log_end_offset)
    host.commit(ends[1])
    assert host.names == ["a", "b"]
    host.commit(ends[2])
    assert host.names == ["a", "b", "c"]


def test_next_controller_command_is_decided_on_an_image_with_uncommitted_events() -> None:
    host = Host()
    host.submit(host.block(), "first")
    host.submit(host.block(), "second")
    host.commit()
    assert [reply.first_producer_id for _, reply in host.told] == [0, 1000]


def test_speculative_image_is_the_committed_image_plus_appended_events() -> None:
    host = Host(partitions=5)
    before = host.cluster.image
    host.submit(host.fence(1), "fence")
    host.submit(host.block(), "block")
    appended = [decode_event(value) for value in host.quorum.values[before.offset :]]
    assert host.queue.image is not None
    expected = replay(before, appended, host.quorum.log_end_offset, 1)
    assert digest(host.queue.image) == digest(expected)


def test_losing_leadership_drops_uncommitted_state_and_fails_waiting_requests() -> None:
    host = Host(partitions=1_500)
    host.submit(host.block(), "committed")
    host.commit()
    host.submit(host.block(), "pending")
    host.submit(host.fence(1), "plan")
    assert host.waiting == 1
    host.queue.deactivate()
    assert host.told[1:] == [("pending", "lost"), ("plan", "lost")]
    assert host.queue.image is None
    assert not host.queue.run_next()
    host.submit(host.block(), "later")
    assert host.told[-1] == ("later", "lost")


def test_new_leadership_starts_from_the_committed_image() -> None:
    host = Host()
    host.submit(host.block(), "lost")
    host.queue.deactivate()
    host.quorum.truncate()
    host.queue.activate(host.cluster.image, 2, host.quorum.high_watermark)
    host.submit(host.block(), "again")
    host.commit()
    assert host.told[-1][1].first_producer_id == 0


def test_refused_append_fails_only_its_command() -> None:
    host = Host()
    host.quorum.is_leader = False
    host.submit(host.block(), "refused")
    assert host.told == [("refused", "lost")]
    assert host.queue.image is host.cluster.image
    assert host.commands == []


def test_append_at_an_offset_other_than_the_decided_one_raises_an_invariant_error() -> None:
    host = Host()
    host.quorum.on_append = lambda: host.quorum.values.append(b"somebody else")
    with pytest.raises(InvariantError, match="decided for offset"):
        host.submit(host.block(), "surprised")


def test_plan_runs_in_slices_with_other_commands_in_between() -> None:
    host = Host(at_once=True, partitions=1_250)
    host.submit(host.fence(1), "plan")
    assert (host.waiting, host.told) == (1, [])
    assert host.queue.brokers_being_fenced() == frozenset((1,))
    host.submit(host.block(), "in between")
    assert host.queue.run_next()
    assert host.queue.run_next()
    assert not host.queue.run_next()
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["in between", "plan"]
    assert host.queue.brokers_being_fenced() == frozenset()
    assert host.queue.image is not None
    assert host.queue.image.brokers[1].fenced


def test_broker_in_controlled_shutdown_joins_no_isr_between_slices() -> None:
    """Between two slices the image shows the broker as active, but the broker is not eligible for anything."""
    host = Host(at_once=True, partitions=1_500)
    host.submit(host.shut_down(1), "plan")
    assert host.queue.brokers_being_fenced() == frozenset((1,))
    host.submit(host.join(1), "join")
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    (refused,) = host.told[-1][1].partitions
    assert refused.error_code is ErrorCode.INELIGIBLE_REPLICA
    assert host.queue.run_next()
    assert not host.queue.run_next()
    assert host.queue.image is not None
    assert not host.queue.image.is_active(1)
    assert host.queue.brokers_being_fenced() == frozenset()


def test_shutdown_heartbeats_are_answered_after_the_first_slice_of_the_plan() -> None:
    """A broker considers a controller dead that does not answer for two seconds, and a plan over very many partitions
    takes longer."""
    host = Host(partitions=2_500)
    host.submit(host.shut_down(1), "stop")
    assert [name for name in host.told if isinstance(name, tuple)] == []
    host.commit()
    (first,) = [told[1] for told in host.told if isinstance(told, tuple)]
    assert not first.should_shut_down
    assert host.queue.brokers_being_fenced() == frozenset((1,))
    host.submit(host.shut_down(1), "again")
    assert host.queue.run_next()
    host.commit()
    assert [told[0] for told in host.told if isinstance(told, tuple)] == ["stop", "again"]
    while host.queue.run_next():
        host.commit()
    assert host.queue.image is not None
    assert not host.queue.image.is_active(1)


def test_reply_of_a_plan_waits_until_its_last_slice_is_committed() -> None:
    host = Host(partitions=750)
    host.submit(host.fence(1), "plan")
    host.commit()
    assert host.told == []
    host.queue.run_next()
    assert host.told == []
    host.commit()
    assert host.names == ["plan"]


def test_plan_in_slices_pauses_while_too_many_of_its_events_are_uncommitted() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "plan")
    assert host.queue.run_next()
    assert host.queue.run_next()
    assert not host.queue.run_next(), "three slices of 500 are under way"
    host.submit(host.block(), "other")
    assert host.quorum.log_end_offset - host.quorum.high_watermark == 1_501
    waiting = host.waiting
    host.commit(host.quorum.high_watermark + 1_000)
    assert host.waiting > waiting
    assert host.queue.run_next()
    host.commit()
    assert host.names == ["other"]


# planted bugs


def reply_on_append(self: CommandQueue, parked: Any) -> None:
    """The bug: send the reply when the events are appended, before they are committed (B31)."""
    parked.asked.waiter.reply(parked.reply)


def keep_on_resign(self: CommandQueue) -> None:
    """The bug: keep uncommitted state after the loss of leadership (B32)."""
    kept = self.image
    honest_deactivate(self)
    self.image = kept


def activate_only_if_empty(self: CommandQueue, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
    """The bug: start a new leadership with the kept state (B32)."""
    honest_activate(self, self.image or committed, epoch, high_watermark)


honest_deactivate = CommandQueue.deactivate
honest_activate = CommandQueue.activate


def test_checks_catch_a_reply_sent_before_its_events_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CommandQueue, "_park", reply_on_append)
    for notices in (
        test_reply_of_a_command_waits_until_its_events_are_committed,
        test_reply_without_events_waits_until_the_state_it_read_is_committed,
        test_reply_of_a_plan_waits_until_its_last_slice_is_committed,
    ):
        with pytest.raises(AssertionError):
            notices()


def test_checks_catch_uncommitted_state_kept_after_resignation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CommandQueue, "deactivate", keep_on_resign)
    with pytest.raises(AssertionError):
        test_losing_leadership_drops_uncommitted_state_and_fails_waiting_requests()
    monkeypatch.setattr(module.CommandQueue, "activate", activate_only_if_empty)
    with pytest.raises((AssertionError, InvariantError)):
        test_new_leadership_starts_from_the_committed_image()
