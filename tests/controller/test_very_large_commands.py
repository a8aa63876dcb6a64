"""A very large command holds the queue and runs in steps. The command is applied whole or not at all, and other
commands wait until it is done.
"""

from __future__ import annotations

import pytest

from kraft.controller import command_queue as module
from kraft.image import BatchBuilder, digest, replay
from kraft.image.events import decode_event
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host, large, run_out


def test_very_large_topic_holds_the_queue_until_it_is_created_whole() -> None:
    host = Host(at_once=True)
    before = host.quorum.log_end_offset
    host.submit(large(host, "orders"), "large")
    host.submit(host.block(), "first")
    host.submit(host.block(), "second")
    while host.quorum.log_end_offset == before:
        assert host.queue.is_held
        assert host.told == []
        assert host.queue.image is host.cluster.image
        assert host.queue.run_next()
    assert [one.next_offset - one.base_offset for one in host.quorum.batches] == [5_001]
    run_out(host)
    assert not host.queue.is_held
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["large", "first", "second"]
    assert [reply.first_producer_id for _, reply in host.told[1:]] == [0, 1000]
    assert host.queue.image is not None
    appended = [decode_event(value) for value in host.quorum.values[before:]]
    expected = replay(host.cluster.image, appended, host.quorum.log_end_offset, 1)
    assert digest(host.queue.image) == digest(expected)


def count_events_added(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of events that each later step adds to a batch."""
    taken: list[int] = []
    honest = BatchBuilder.take

    def take(self: BatchBuilder, events_max: int) -> bool:
        before = len(self.values)
        done = honest(self, events_max)
        taken.append(len(self.values) - before)
        return done

    monkeypatch.setattr(BatchBuilder, "take", take)
    return taken


def test_steps_of_a_very_large_topic_stay_within_the_event_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count_events_added(monkeypatch)
    host = Host(at_once=True)
    host.submit(large(host, "orders"), "large")
    assert run_out(host) > 5
    assert sum(taken) == 5_001
    assert max(taken) <= module.EVENTS_PER_STEP_MAX


def test_very_large_batch_is_appended_in_a_step_without_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count_events_added(monkeypatch)
    host = Host(at_once=True)
    end = host.quorum.log_end_offset
    host.submit(large(host, "orders"), "large")
    while host.quorum.log_end_offset == end:
        taken.clear()
        assert host.queue.run_next()
    assert taken == [0]


def test_plans_wait_for_the_command_that_holds_the_queue() -> None:
    host = Host(at_once=True, partitions=600)
    host.submit(host.fence(1), "plan")
    host.submit(large(host, "large"), "large")
    run_out(host)
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["large", "plan"]
    large_topic = host.queue.image.topics.get("large")  # type: ignore[union-attr]
    assert large_topic is not None
    assert all(1 not in state.isr for _, state in large_topic.partitions()), "1 was being fenced"


@pytest.mark.parametrize("steps", [0, 3, 5])
def test_losing_leadership_fails_the_command_that_holds_the_queue_and_those_waiting(steps: int) -> None:
    host = Host()
    host.submit(large(host, "orders"), "large")
    host.submit(host.block(), "waits")
    for _ in range(steps):
        assert host.queue.run_next()
    assert host.queue.is_held
    host.queue.deactivate()
    assert host.told == [("large", "lost"), ("waits", "lost")]
    assert not host.queue.is_held
    assert not host.queue.run_next()
    assert host.quorum.log_end_offset == host.quorum.high_watermark


def test_command_is_decided_again_if_the_quorum_appends_a_record_between_two_of_its_steps() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "orders"), "large")
    for _ in range(5):
        assert host.queue.run_next()
    host.quorum.append([b"a record of the quorum"])
    run_out(host)
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    ((_, reply),) = host.told
    assert reply.topics[0].error_code is ErrorCode.NONE
    assert [one.next_offset - one.base_offset for one in host.quorum.batches] == [1, 5_001]


def test_exception_in_a_queued_command_fails_only_that_command() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "orders"), "large")
    host.submit("no command", "trouble")
    host.submit(host.block(), "fine")
    run_out(host)
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.told[0] == ("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert host.names[1:] == ["large", "fine"]
    assert host.troubles == [("no command", KeyError)]
