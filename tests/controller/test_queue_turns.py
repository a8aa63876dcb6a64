"""Order of work in the command queue: fences, plans and waiting commands take turns."""

from __future__ import annotations

import pytest

from kraft.control import (
    ElectLeaderless,
)
from kraft.controller import command_queue as module
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host, is_fenced, large, partitions_of, run_out


@pytest.mark.parametrize("steps_per_commit", [1, 5])
def test_fence_progresses_while_very_large_topics_are_created_one_after_the_other(steps_per_commit: int) -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    assert partitions_of(host, 1) == 2_500
    host.submit(large(host, "large-0"), "large")
    made = 1
    for step in range(60):
        if host.queue.is_held and not host.queue._waiting:
            host.submit(large(host, f"large-{made}"), "large")
            made += 1
        host.queue.run_next()
        if step % steps_per_commit == 0:
            host.commit()
    assert is_fenced(host, 1)
    assert host.names.count("large") >= 2, "both get on"
    assert made > host.names.count("large")


def test_plans_and_waiting_commands_take_turns() -> None:
    host = Host(at_once=True, partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large", partitions=1_500), "large")
    for number in range(4):
        host.submit(host.block(), f"block {number}")
    host.clock.step_ns = module.TURN_NS_MAX
    host.commands.clear()
    run_out(host)
    kinds = [type(command).__name__ for command in host.commands]
    begin = kinds.index("AllocateProducerIds")
    assert kinds[begin : begin + 4] == ["AllocateProducerIds", "FenceBrokers"] * 2
    assert kinds.count("AllocateProducerIds") == 4
    assert is_fenced(host, 1)


def test_waiting_commands_do_not_overtake_a_plan_that_waits_for_commits() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "waits")
    run_out(host)
    assert partitions_of(host, 1) == 1_500
    assert host.block() not in host.commands
    host.commit()
    run_out(host)
    host.commit()
    run_out(host)
    assert is_fenced(host, 1)
    assert host.block() in host.commands


def test_uncommitted_events_of_other_commands_do_not_stop_a_plan() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large"), "large")
    while host.queue.is_held:
        assert host.queue.run_next()
    assert host.queue.run_next()
    assert host.queue.run_next()
    assert partitions_of(host, 1) == 1_500
    assert not host.queue.run_next(), "three slices of 500 are under way"


def test_plan_that_removes_a_broker_comes_before_other_plans() -> None:
    host = Host(at_once=True, partitions=1_200)
    host.submit(large(host, *[f"small-{number}" for number in range(4)], partitions=900), "topics")
    host.submit(host.fence(1), "fence")
    run_out(host)
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["fence", "topics"]


def test_one_step_decides_as_many_waiting_commands_as_fit_into_its_time() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    for number in range(30):
        host.submit(host.block(), f"block {number}")
    while host.queue.is_held:
        assert host.queue.run_next()
    looks = 3  # calls of the clock for each decision: at its begin, at its end, and to check whether the turn is over
    host.clock.step_ns = 1 + module.TURN_NS_MAX // (10 * looks)
    assert host.queue.run_next()
    assert host.commands.count(host.block()) == 10
    host.clock.step_ns = 0
    assert host.queue.run_next()
    assert host.commands.count(host.block()) == 30
    assert not host.queue.run_next()


def test_turn_of_waiting_commands_ends_when_one_holds_the_queue() -> None:
    host = Host(at_once=True)
    for name in ("first", "second"):
        host.submit(large(host, name), name)
    host.submit(host.block(), "block")
    while host.queue.is_held:
        assert host.queue.run_next()
    assert host.queue.run_next()
    assert host.queue.is_held
    assert host.block() not in host.commands


def test_commands_are_answered_request_timed_out_while_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    for name in ("first", "second", "third"):
        host.submit(host.block(), name)
    host.queue.submit(ElectLeaderless())
    assert host.told == [("third", ErrorCode.REQUEST_TIMED_OUT)]
    run_out(host)
    host.queue.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["third", "large", "first", "second"]
    assert ElectLeaderless() in host.commands, "the controller's own commands are not turned away"


def test_command_of_the_controller_itself_comes_before_waiting_commands() -> None:
    host = Host(at_once=True, partitions=5)
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "waits")
    host.queue.submit_first(host.fence(1))
    assert not host.queue.brokers_being_fenced(), "what has the line is decided on an image that stays as it is"
    while host.queue.is_held:
        assert host.queue.run_next()
    host.queue.submit_first(host.fence(2))
    assert host.queue.brokers_being_fenced() == {2}, "waiting commands have no effect on it"
    assert host.queue.run_next()
    assert host.queue.brokers_being_fenced() == {1, 2}
    assert host.block() not in host.commands
    run_out(host)
    assert host.block() in host.commands
    assert is_fenced(host, 1)
    assert is_fenced(host, 2)
