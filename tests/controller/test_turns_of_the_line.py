"""Who has the line of commands when many want it: fences, plans and those that wait take turns."""

from __future__ import annotations

import pytest

from kraft.control import (
    ElectLeaderless,
)
from kraft.controller import command_queue as module
from kraft.wire.error_codes import ErrorCode
from tests.stages.command_host import Host, is_fenced, large, partitions_of, run_out


@pytest.mark.parametrize("steps_per_commit", [1, 5])
def test_a_fence_goes_on_while_very_large_topics_are_made_one_after_the_other(steps_per_commit: int) -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    assert partitions_of(host, 1) == 2_500
    host.submit(large(host, "large-0"), "large")
    made = 1
    for step in range(60):
        if host.line.is_taken and not host.line._waiting:
            host.submit(large(host, f"large-{made}"), "large")
            made += 1
        host.line.run_next()
        if step % steps_per_commit == 0:
            host.commit()
    assert is_fenced(host, 1)
    assert host.names.count("large") >= 2, "both get on"
    assert made > host.names.count("large")


def test_plans_and_those_that_wait_take_turns() -> None:
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


def test_those_that_wait_let_a_plan_go_first_also_while_it_waits_for_commits() -> None:
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


def test_what_others_have_appended_stops_no_plan() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large"), "large")
    while host.line.is_taken:
        assert host.line.run_next()
    assert host.line.run_next()
    assert host.line.run_next()
    assert partitions_of(host, 1) == 1_500
    assert not host.line.run_next(), "three slices of 500 are under way"


def test_a_plan_that_takes_a_broker_out_comes_before_others() -> None:
    host = Host(at_once=True, partitions=1_200)
    host.submit(large(host, *[f"small-{number}" for number in range(4)], partitions=900), "topics")
    host.submit(host.fence(1), "fence")
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["fence", "topics"]


def test_of_those_that_waited_as_many_are_decided_in_a_step_as_fit_into_a_turn() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    for number in range(30):
        host.submit(host.block(), f"block {number}")
    while host.line.is_taken:
        assert host.line.run_next()
    looks = 3  # at the clock, for each decision: when it begins and ends, and whether the turn is over
    host.clock.step_ns = 1 + module.TURN_NS_MAX // (10 * looks)
    assert host.line.run_next()
    assert host.commands.count(host.block()) == 10
    host.clock.step_ns = 0
    assert host.line.run_next()
    assert host.commands.count(host.block()) == 30
    assert not host.line.run_next()


def test_a_turn_ends_when_a_command_takes_the_line() -> None:
    host = Host(at_once=True)
    for name in ("first", "second"):
        host.submit(large(host, name), name)
    host.submit(host.block(), "block")
    while host.line.is_taken:
        assert host.line.run_next()
    assert host.line.run_next()
    assert host.line.is_taken
    assert host.block() not in host.commands


def test_while_too_many_wait_others_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    for name in ("first", "second", "third"):
        host.submit(host.block(), name)
    host.line.submit(ElectLeaderless())
    assert host.told == [("third", ErrorCode.REQUEST_TIMED_OUT)]
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["third", "large", "first", "second"]
    assert ElectLeaderless() in host.commands, "the controller's own commands are not turned away"


def test_the_controllers_own_command_comes_before_those_that_wait() -> None:
    host = Host(at_once=True, partitions=5)
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "waits")
    host.line.submit_first(host.fence(1))
    assert not host.line.brokers_being_fenced(), "what has the line is decided on an image that stays as it is"
    while host.line.is_taken:
        assert host.line.run_next()
    host.line.submit_first(host.fence(2))
    assert host.line.brokers_being_fenced() == {2}, "those that wait keep nobody up"
    assert host.line.run_next()
    assert host.line.brokers_being_fenced() == {1, 2}
    assert host.block() not in host.commands
    run_out(host)
    assert host.block() in host.commands
    assert is_fenced(host, 1)
    assert is_fenced(host, 2)
