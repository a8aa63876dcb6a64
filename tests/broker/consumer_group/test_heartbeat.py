"""Heartbeats: joining, sharing partitions, leaving, timeouts, static members, and what a reply has."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.broker.consumer_group.records import MemberState
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import ConsumerGroupState
from kraft.broker.group.requests import DeleteRequest, DescribeRequest
from kraft.wire.error_codes import ErrorCode
from tests.broker.consumer_group.consumer_bench import ConsumerBench
from tests.stages.group_bench import GROUP, REBALANCE_MS

SESSION_MS = 45_000


def numbers(assignment: Any) -> dict[int, set[int]]:
    """Return an assignment as partitions by number of the topic."""
    return {topic_id.int: set(found) for topic_id, found in assignment.items()}


def bench_with(**settings: Any) -> ConsumerBench:
    found = ConsumerGroupSettings(**settings)
    return ConsumerBench(settings_of=lambda group: found)


# joining


def test_the_first_member_gets_every_partition_in_its_first_reply() -> None:
    bench = ConsumerBench()
    reply = bench.enter("m", "orders", "trades")
    assert (reply.error, reply.member_id, reply.epoch, reply.heartbeat_interval_ms) == (ErrorCode.NONE, "m", 1, 5_000)
    assert numbers(reply.assignment) == {1: {0, 1, 2, 3}, 2: {0, 1}}
    assert bench.consumers.state is ConsumerGroupState.STABLE


def test_a_topic_that_does_not_exist_is_assigned_when_it_is_created() -> None:
    bench = ConsumerBench({})
    assert bench.enter("m", "late").assignment == {}
    bench.set_topic("late", 2)
    reply = bench.beat("m", 1, owned={})
    assert (reply.epoch, numbers(reply.assignment)) == (2, {1: {0, 1}})
    assert bench.beat("m", 2).assignment is None


def test_a_member_without_a_subscription_joins_and_gets_partitions_when_it_subscribes() -> None:
    bench = ConsumerBench()
    reply = bench.enter("m")
    assert (reply.error, reply.epoch, reply.assignment) == (ErrorCode.NONE, 1, {})
    assert numbers(bench.beat("m", 1, subscribed_names=("trades",)).assignment) == {2: {0, 1}}


def test_an_answer_waits_until_its_records_are_committed() -> None:
    bench = ConsumerBench(commits_at_once=False)
    asked = bench.ask_heartbeat("m", 0, rebalance_timeout_ms=1, subscribed_names=("orders",), owned={})
    again = bench.ask_heartbeat("m", 1)
    assert asked.is_parked
    assert again.is_parked, "a heartbeat without records must not show uncommitted state"
    bench.commit()
    assert asked.reply.epoch == again.reply.epoch == 1


def test_a_heartbeat_that_is_not_written_changes_nothing() -> None:
    bench = ConsumerBench()
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.enter("m", "orders").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUP not in bench.machine.newest.consumers
    bench.refuses_appends = None
    assert numbers(bench.enter("m", "orders").assignment) == {1: {0, 1, 2, 3}}


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_only_a_joining_member_creates_its_group(epoch: int) -> None:
    assert ConsumerBench().beat("m", epoch, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_heartbeat_of_an_unknown_member_is_refused(epoch: int) -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    assert bench.beat("other", epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_admits_only_its_members_and_returning_static_ones() -> None:
    bench = bench_with(members_max=2)
    bench.enter("m", "orders")
    bench.enter("s", "orders", instance_id="i")
    assert bench.enter("new", "orders").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.enter("m", "orders").error is ErrorCode.NONE
    bench.beat("s", -2, instance_id="i")
    assert bench.enter("s2", "orders", instance_id="i").error is ErrorCode.NONE


def test_a_wrong_epoch_is_fenced() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    assert bench.beat("m", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.enter("m", "orders").error is ErrorCode.NONE


# sharing


def test_a_second_member_gets_partitions_only_after_the_first_has_revoked_them() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders")
    assert bench.enter("two", "orders").assignment == {}
    revoking = bench.beat("one", 1)
    (kept,) = revoking.assignment.values()
    assert (revoking.epoch, len(kept)) == (1, 2)
    assert bench.beat("one", 1).assignment is None
    assert bench.beat("two", 2).assignment is None, "the first member has not revoked yet"
    assert bench.consumers.state is ConsumerGroupState.RECONCILING
    assert bench.beat("one", 1, owned=revoking.assignment).epoch == 2
    (gained,) = bench.beat("two", 2).assignment.values()
    assert kept | gained == {0, 1, 2, 3}
    assert not kept & gained
    assert bench.consumers.state is ConsumerGroupState.STABLE


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders")
    bench.enter("two", "orders")
    bench.beat("one", 1)
    bench.sleep(REBALANCE_MS - 1)
    assert bench.beat("one", 1).error is ErrorCode.NONE
    bench.beat("two", 2)
    bench.sleep(1)
    assert bench.beat("one", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    reply = bench.beat("two", 2)
    assert (reply.epoch, numbers(reply.assignment)) == (3, {1: {0, 1, 2, 3}})


def test_the_time_to_revoke_restarts_when_the_coordinator_moves() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders")
    bench.enter("two", "orders")
    bench.beat("one", 1)
    bench.sleep(REBALANCE_MS - 1)
    bench.move()
    bench.sleep(REBALANCE_MS - 1)
    assert bench.beat("one", 1).error is ErrorCode.NONE
    bench.sleep(1)
    assert bench.beat("one", 1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_reply_is_answered_again_in_the_previous_epoch() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders")
    bench.enter("two", "orders")
    kept = bench.beat("one", 1).assignment
    assert bench.beat("one", 1, owned=kept).epoch == 2
    assert bench.beat("one", 1, owned=kept).epoch == 2
    assert bench.beat("one", 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_request_is_answered_with_the_assignment() -> None:
    bench = ConsumerBench()
    owned = bench.enter("m", "orders").assignment
    fields = {"rebalance_timeout_ms": 1, "subscribed_names": ("orders",)}
    assert bench.beat("m", 1, owned=owned).assignment is None
    assert bench.beat("m", 1, **fields).assignment is None
    assert bench.beat("m", 1, owned=owned, **fields).assignment == owned


def test_an_unsubscribed_topic_is_taken_before_the_new_assignment() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders", "trades")
    reply = bench.beat("m", 1, subscribed_names=("trades",))
    assert (reply.epoch, numbers(reply.assignment)) == (1, {2: {0, 1}})
    assert bench.beat("m", 1, owned=reply.assignment).epoch == 2


def test_a_grown_and_a_deleted_topic_change_the_assignment() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders", "trades")
    bench.set_topic("orders", 5)
    assert numbers(bench.beat("m", 1).assignment) == {1: {0, 1, 2, 3, 4}, 2: {0, 1}}
    bench.delete_topic("trades")
    reply = bench.beat("m", 2)
    assert (reply.epoch, numbers(reply.assignment)) == (2, {1: {0, 1, 2, 3, 4}})


def test_a_change_of_other_topics_does_not_begin_an_epoch() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.set_topic("trades", 9)
    records = len(bench.log)
    assert bench.beat("m", 1).epoch == 1
    assert len(bench.log) == records


# leaving


def test_the_partitions_of_a_leaving_member_go_to_the_others() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders")
    bench.enter("two", "orders")
    reply = bench.beat("one", -1)
    assert (reply.error, reply.member_id, reply.epoch) == (ErrorCode.NONE, "one", -1)
    assert bench.consumers.state is ConsumerGroupState.ASSIGNING
    assert numbers(bench.beat("two", 2).assignment) == {1: {0, 1, 2, 3}}


def test_the_assignment_epoch_follows_when_the_last_member_leaves() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.beat("m", -1)
    group = bench.consumers
    assert (group.epoch, group.assignment_epoch, group.metadata_hash) == (2, 2, 0)
    assert group.state is ConsumerGroupState.EMPTY
    assert [len(group.targets), len(group.current), len(group.holders)] == [0, 0, 0]


def test_a_silent_member_is_removed_after_its_session() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.sleep(SESSION_MS - 1)
    bench.beat("m", 1)
    bench.sleep(SESSION_MS - 1)
    assert "m" in bench.consumers.members
    bench.sleep(1)
    assert "m" not in bench.consumers.members


def test_a_session_restarts_when_the_coordinator_moves() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.sleep(SESSION_MS - 1)
    bench.move()
    bench.sleep(SESSION_MS - 1)
    assert "m" in bench.consumers.members
    bench.sleep(1)
    assert "m" not in bench.consumers.members


def test_a_removal_that_the_log_refuses_is_tried_again() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.sleep(SESSION_MS)
    assert "m" in bench.consumers.members
    bench.refuses_appends = None
    bench.sleep(500)
    assert "m" not in bench.consumers.members


def test_a_member_whose_leaving_the_log_refuses_is_removed_after_its_session() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.beat("m", -1).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuses_appends = None
    bench.sleep(SESSION_MS)
    assert "m" not in bench.consumers.members


def test_a_removal_that_times_out_in_the_log_does_not_fence_a_member_that_has_joined_again() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders")
    bench.commits_at_once = False
    bench.sleep(SESSION_MS)
    assert not bench.consumers.members
    joined = bench.ask_heartbeat("m", 0, rebalance_timeout_ms=REBALANCE_MS, subscribed_names=("orders",), owned={})
    removal, *later = bench.waiting
    bench.waiting = later
    bench.take(bench.machine.failed(removal[1], ErrorCode.COORDINATOR_NOT_AVAILABLE, bench.now))
    bench.commit()
    assert joined.reply.error is ErrorCode.NONE
    bench.sleep(SESSION_MS - 1)
    assert "m" in bench.consumers.members
    bench.sleep(1)
    assert "m" not in bench.consumers.members


# static members


def test_a_returning_static_member_continues_with_its_assignment() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders", instance_id="i")
    bench.enter("two", "orders")
    bench.beat("one", 1, instance_id="i", owned=bench.beat("one", 1, instance_id="i").assignment)
    held = bench.consumers.assignment_of("one").assigned
    assert bench.beat("one", -2, instance_id="i").epoch == -2
    assert bench.beat("two", 2).epoch == 2
    reply = bench.enter("new", "orders", instance_id="i")
    assert (reply.epoch, bench.consumers.epoch) == (2, 2)
    assert bench.consumers.assignment_of("new").assigned == held
    assert "one" not in bench.consumers.members


def test_a_static_member_that_does_not_return_is_removed_after_its_session() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders", instance_id="i")
    bench.beat("m", -2, instance_id="i")
    bench.sleep(SESSION_MS)
    assert not bench.consumers.members


def test_a_static_member_that_leaves_for_a_while_gives_up_what_it_was_revoking() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders", instance_id="i")
    bench.enter("two", "orders")
    bench.beat("one", 1, instance_id="i")
    bench.beat("one", -2, instance_id="i")
    (gained,) = bench.beat("two", 2).assignment.values()
    assert len(gained) == 2


def test_a_static_member_that_leaves_while_it_revokes_keeps_its_place_until_its_session_ends() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders", instance_id="i", rebalance_timeout_ms=10_000)
    bench.enter("two", "orders")
    bench.beat("one", 1, instance_id="i")
    bench.sleep(5_000)
    bench.beat("one", -2, instance_id="i")
    bench.sleep(15_000)
    bench.beat("two", 2)
    bench.sleep(SESSION_MS - 20_001)
    assert "one" in bench.consumers.members
    bench.beat("two", 2)
    bench.sleep(5_001)
    assert "one" not in bench.consumers.members


def test_an_instance_id_in_use_is_refused_but_a_repeated_join_is_not() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders", instance_id="i")
    assert bench.enter("two", "orders", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert bench.enter("one", "orders", instance_id="i").error is ErrorCode.NONE


def test_a_replaced_static_member_is_fenced() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders", instance_id="i")
    bench.beat("one", -2, instance_id="i")
    assert bench.beat("one", 1, instance_id="i").error is ErrorCode.FENCED_MEMBER_EPOCH
    bench.enter("two", "orders", instance_id="i")
    for epoch in (1, -1, -2):
        assert bench.beat("one", epoch, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.beat("two", 1, instance_id="other").error is ErrorCode.UNKNOWN_MEMBER_ID


# assignors


def test_the_assignor_that_most_members_wish_is_used() -> None:
    bench = ConsumerBench({"a": 3, "b": 3})
    bench.enter("one", "a", "b", server_assignor="range")
    bench.enter("two", "a", "b", server_assignor="range")
    bench.enter("three", "a", "b", server_assignor="uniform")
    assert bench.describe().assignor == "range"
    bench.enter("two", "a", "b", server_assignor="uniform")
    assert bench.describe().assignor == "uniform"


def test_the_first_allowed_assignor_is_the_default() -> None:
    bench = bench_with(assignors=("range", "uniform"))
    bench.enter("m", "orders")
    assert bench.describe().assignor == "range"


# a group and its neighbours


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    bench = ConsumerBench()
    member = bench.join(protocols=(("range", b""),)).reply.member_id
    bench.settle([member])
    bench.leave(member)
    bench.commit_offset(5)
    bench.enter("m", "orders")
    assert bench.consumers.members
    assert GROUP not in bench.machine.groups
    assert GROUP not in bench.machine.newest.groups
    assert bench.committed() == 5


def test_a_group_of_the_other_protocol_is_not_found_in_a_description() -> None:
    bench = ConsumerBench()
    bench.join(group="classic")
    bench.enter("m", "orders")
    assert bench.describe("classic").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.describe("none").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.ask(DescribeRequest(GROUP)).reply.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_description_has_each_members_assignment_and_target() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders", client_id="c", client_host="/h", rack="r")
    bench.enter("two", "orders")
    found = bench.describe()
    assert (found.state, found.epoch, found.assignment_epoch, found.assignor) == ("Reconciling", 2, 2, "uniform")
    one, two = found.members
    assert (one.member_id, one.client_id, one.client_host, one.rack, one.epoch) == ("one", "c", "/h", "r", 1)
    assert [(row.topic, row.partitions) for row in one.assignment] == [("orders", (0, 1, 2, 3))]
    assert two.assignment == ()
    assert [(row.topic_id, row.topic, len(row.partitions)) for row in two.target] == [(UUID(int=1), "orders", 2)]


def test_only_an_empty_group_is_deleted_with_all_its_records() -> None:
    bench = ConsumerBench()
    bench.enter("m", "orders", subscribed_regex="x.*")
    bench.commit_offset(5, "m", 1)
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NON_EMPTY_GROUP
    bench.beat("m", -1)
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NONE
    assert GROUP not in bench.machine.newest.consumers
    assert GROUP not in bench.machine.newest.offsets
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.GROUP_ID_NOT_FOUND
    bench.move()
    assert not bench.machine.group_ids()


def test_an_unknown_member_state_of_a_newer_release_is_fenced_while_it_owns_partitions() -> None:
    bench = ConsumerBench()
    owned = bench.enter("m", "orders").assignment
    for index, record in enumerate(bench.log):
        if record.key[:2] == b"\0\x08":
            assert record.value is not None
            bench.log[index] = record._replace(value=record.value[:10] + b"\x09" + record.value[11:])
    bench.move_after_loss(len(bench.log))
    assert bench.consumers.assignment_of("m").state is MemberState.UNKNOWN
    assert bench.beat("m", 1, owned=owned).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert numbers(bench.enter("m", "orders").assignment) == {1: {0, 1, 2, 3}}
