"""A member of a consumer group as a state machine: when it sends which heartbeat, and what it does with its
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

import pytest

from kraft.client.core.consumer_member import ConsumerMember, Reconciliation, Release
from kraft.client.core.heartbeats import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
    MemberSettings,
    TopicIdPartition,
    TopicSubscription,
)
from kraft.client.core.member_state import HEARTBEATING, MemberState
from kraft.client.core.membership import NO_GENERATION, Reaction
from kraft.client.core.records import KafkaError
from kraft.wire.error_codes import ErrorCode

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
NAMES = {ORDERS: "orders", PAYMENTS: "payments"}
ORDERS_ONLY = TopicSubscription(("orders",))
INTERVAL_MS, BACKOFF_MS, BACKOFF_MS_MAX = 5_000, 20, 1_000


def orders(*partitions: int) -> frozenset[TopicIdPartition]:
    return frozenset((ORDERS, partition) for partition in partitions)


class Conversation:
    """A member and the coordinator's responses to it, which the test decides."""

    def __init__(self, instance_id: str | None = None, topics: TopicSubscription = ORDERS_ONLY) -> None:
        settings = MemberSettings("billing", instance_id, "rack-a", 60_000, "uniform")
        self.member = ConsumerMember(settings, "m-1", topics, backoff_ms=BACKOFF_MS, backoff_ms_max=BACKOFF_MS_MAX)
        self.member.learn_topics({ORDERS: "orders"})
        self.now_ms = 1_000
        self.epoch = 0

    def send(self) -> ConsumerHeartbeat:
        """Return the next heartbeat, after waiting until it is due."""
        due_ms = self.member.due_ms()
        assert due_ms < float("inf"), self.member.state
        self.now_ms = max(self.now_ms, int(due_ms))
        heartbeat = self.member.next_heartbeat(self.now_ms)
        assert heartbeat is not None
        return heartbeat

    def accept(self, heartbeat: ConsumerHeartbeat, assignment: Iterable[TopicIdPartition] | None = None) -> None:
        """Answer with success, and with the next member epoch if there is an assignment."""
        self.epoch += assignment is not None
        partitions = None if assignment is None else frozenset(assignment)
        answer = HeartbeatAnswer(ErrorCode.NONE, "", heartbeat.member_id, self.epoch, INTERVAL_MS, partitions)
        self.member.accept(heartbeat, answer)

    def refuse(self, heartbeat: ConsumerHeartbeat, code: ErrorCode) -> Reaction:
        return self.member.refuse(heartbeat, HeartbeatAnswer(code, "", "", 0, 0, None), self.now_ms)

    def beat(self, assignment: Iterable[TopicIdPartition] | None = None) -> ConsumerHeartbeat:
        """Send a heartbeat and accept it."""
        heartbeat = self.send()
        self.accept(heartbeat, assignment)
        return heartbeat

    def reconcile(self) -> Reconciliation:
        step = self.member.next_step()
        assert isinstance(step, Reconciliation)
        self.member.reconciled(step)
        return step

    def release(self) -> Release:
        step = self.member.next_step()
        assert isinstance(step, Release)
        self.member.released(step)
        return step


def stable(*partitions: int) -> Conversation:
    """A member in state STABLE that owns these partitions of orders."""
    talk = Conversation()
    talk.beat(orders(*partitions))
    talk.reconcile()
    talk.beat()
    assert talk.member.state is MemberState.STABLE
    return talk


def reconciling() -> Conversation:
    talk = stable(0, 1)
    talk.beat(orders(0))
    assert talk.member.state is MemberState.RECONCILING
    return talk


def acknowledging() -> Conversation:
    talk = reconciling()
    talk.reconcile()
    return talk


def leaving_for_lack_of_polls() -> Conversation:
    talk = stable(0)
    talk.member.expire_poll()
    return talk


def preparing() -> Conversation:
    talk = stable(0)
    talk.member.prepare_leaving()
    return talk


IN_STATE: dict[MemberState, Callable[[], Conversation]] = {
    MemberState.JOINING: Conversation,
    MemberState.RECONCILING: reconciling,
    MemberState.ACKNOWLEDGING: acknowledging,
    MemberState.STABLE: lambda: stable(0),
    MemberState.PREPARE_LEAVING: preparing,
}
"""How a conversation gets to each state in which the member sends heartbeats more than once."""


# heartbeats


def test_the_first_heartbeat_has_every_field_and_later_ones_only_what_changed() -> None:
    talk = Conversation()
    join = talk.send().message(1)
    assert (join.member_epoch, join.member_id, join.subscribed_topic_names) == (0, "m-1", ("orders",))
    assert (join.rack_id, join.server_assignor, join.topic_partitions) == ("rack-a", "uniform", ())
    assert (join.rebalance_timeout.total_seconds(), join.subscribed_topic_regex) == (60, None)
    assert talk.member.next_heartbeat(10**9) is None, "one heartbeat is in flight"
    talk = stable(0)
    usual = talk.send().message(1)
    assert (usual.member_epoch, usual.subscribed_topic_names, usual.topic_partitions) == (1, None, None)
    assert (usual.rack_id, usual.server_assignor, usual.rebalance_timeout.total_seconds()) == (None, None, -0.001)


def test_heartbeats_follow_the_interval_of_the_last_response() -> None:
    talk = stable(0)
    sent_ms = talk.now_ms
    assert talk.member.next_heartbeat(sent_ms + INTERVAL_MS - 1) is None
    assert talk.member.next_heartbeat(sent_ms + INTERVAL_MS) is not None


def test_a_heartbeat_follows_a_reconciliation_at_once_with_the_owned_partitions() -> None:
    talk = Conversation()
    talk.beat(orders(0, 1))
    assert talk.member.due_ms() == talk.now_ms + INTERVAL_MS, "there is nothing to acknowledge yet"
    talk.reconcile()
    assert talk.member.due_ms() <= talk.now_ms
    assert talk.beat().owned == orders(0, 1)
    assert talk.beat().owned is None


def test_an_assignment_that_returns_to_the_former_one_is_acknowledged_again() -> None:
    """The coordinator waits for the member to report that it does not own the partition in between."""
    talk = stable(0)
    talk.beat(orders(0, 1))
    talk.beat(orders(0))
    step = talk.reconcile()
    assert (step.revoked, step.added, step.needs_poll) == (frozenset(), frozenset(), False)
    assert talk.send().owned == orders(0)
    assert talk.member.state is MemberState.STABLE


@pytest.mark.parametrize("state", IN_STATE)
def test_the_heartbeat_after_a_lost_one_is_full_and_backs_off(state: MemberState) -> None:
    talk = IN_STATE[state]()
    for pause_ms in (20, 40, 80, 160, 320, 640, 1_000, 1_000):
        talk.member.lose(talk.send(), talk.now_ms)
        assert talk.member.due_ms() == talk.now_ms + pause_ms
    heartbeat = talk.send()
    assert (heartbeat.is_full, heartbeat.names) == (True, ("orders",))
    assert heartbeat.owned is not None
    talk.accept(heartbeat)
    if state is not MemberState.JOINING:
        assert talk.member.due_ms() >= talk.now_ms
        talk.now_ms += INTERVAL_MS
        assert not talk.send().is_full


def test_a_new_subscription_is_sent_at_once() -> None:
    talk = stable(0)
    talk.member.subscribe(TopicSubscription(("orders", "payments")))
    assert talk.member.due_ms() <= talk.now_ms
    assert talk.beat().names == ("orders", "payments")
    assert talk.beat().names is None


def test_a_pattern_replaces_names_and_names_replace_a_pattern() -> None:
    talk = stable(0)
    talk.member.subscribe(TopicSubscription(regex="^orders"))
    heartbeat = talk.beat()
    assert (heartbeat.names, heartbeat.regex) == ((), "^orders")
    talk.member.subscribe(TopicSubscription(("orders",)))
    heartbeat = talk.send()
    assert (heartbeat.names, heartbeat.regex) == (("orders",), "")
    talk.member.lose(heartbeat, talk.now_ms)
    heartbeat = talk.send()
    assert (heartbeat.names, heartbeat.regex) == (("orders",), ""), "the coordinator may not have received it"


def test_version_0_takes_the_member_id_from_the_first_response() -> None:
    talk = Conversation()
    join = talk.send()
    assert join.requests_member_id(0)
    assert join.message(0).member_id == ""
    answer = HeartbeatAnswer(ErrorCode.NONE, "", "from-the-broker", 1, INTERVAL_MS, frozenset())
    talk.member.accept(join, answer)
    talk.reconcile()
    assert talk.send().message(0).member_id == "from-the-broker"
    assert talk.member.identity.member_id == "from-the-broker"


def test_a_rejoin_in_version_0_keeps_the_member_id() -> None:
    talk = stable(0)
    talk.refuse(talk.send(), ErrorCode.FENCED_MEMBER_EPOCH)
    talk.release()
    assert talk.send().message(0).member_id == "m-1"


def test_a_pattern_in_version_0_is_an_error_that_names_the_alternative() -> None:
    heartbeat = Conversation(topics=TopicSubscription(regex="^orders")).send()
    assert heartbeat.message(1).subscribed_topic_regex == "^orders"
    with pytest.raises(KafkaError, match="subscribe to a compiled pattern") as refused:
        heartbeat.message(0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


# assignment


def test_partitions_are_revoked_and_added_by_name() -> None:
    talk = stable(0, 1)
    talk.member.learn_topics(NAMES)
    talk.beat(orders(1) | {(PAYMENTS, 3)})
    step = talk.member.next_step()
    assert isinstance(step, Reconciliation)
    assert step.revoked == {("orders", 0)}
    assert step.added == {("payments", 3)}
    assert talk.member.partitions_after(step) == {("orders", 1), ("payments", 3)}


def test_a_topic_without_a_known_name_is_not_owned_before_metadata_names_it() -> None:
    talk = stable(0)
    talk.beat(orders(0) | {(PAYMENTS, 1)})
    assert talk.member.unknown_topics == {PAYMENTS}
    assert not talk.reconcile().needs_poll
    assert talk.beat().owned == orders(0)
    assert talk.member.state is MemberState.RECONCILING
    assert talk.member.next_step() is None
    talk.member.learn_topics(NAMES)
    assert talk.reconcile().added == {("payments", 1)}
    assert talk.beat().owned == orders(0) | {(PAYMENTS, 1)}
    assert talk.member.state is MemberState.STABLE


def test_an_unknown_topic_does_not_delay_a_revocation() -> None:
    talk = stable(0, 1)
    talk.beat(orders(0) | {(PAYMENTS, 1)})
    assert talk.reconcile().revoked == {("orders", 1)}
    assert talk.send().owned == orders(0)


def test_a_recreated_topic_is_revoked_and_added_under_the_same_name() -> None:
    talk = stable(0)
    talk.member.learn_topics({PAYMENTS: "orders"})
    talk.beat({(PAYMENTS, 0)})
    step = talk.reconcile()
    assert step.revoked == step.added == {("orders", 0)}


def test_an_assignment_that_arrives_during_a_reconciliation_is_reconciled_after_it() -> None:
    talk = stable(0, 1, 2)
    talk.beat(orders(0, 1))
    step = talk.member.next_step()
    assert isinstance(step, Reconciliation)
    talk.beat(orders(0))
    assert talk.member.is_current(step)
    talk.member.reconciled(step)
    assert talk.send().owned == orders(0, 1)
    assert talk.member.state is MemberState.RECONCILING
    assert talk.reconcile().revoked == {("orders", 1)}


def test_a_full_heartbeat_reports_partitions_that_the_application_is_about_to_own() -> None:
    """The coordinator may want one of them back. It must not give it to another member yet."""
    talk = Conversation()
    talk.beat(orders(0, 1))
    step = talk.member.next_step()
    assert isinstance(step, Reconciliation)
    talk.member.begin(step)
    talk.member.lose(talk.send(), talk.now_ms)
    heartbeat = talk.send()
    assert heartbeat.owned == orders(0, 1)
    talk.accept(heartbeat, orders(0))
    talk.member.reconciled(step)
    assert talk.beat().owned == orders(0, 1)
    assert talk.reconcile().revoked == {("orders", 1)}
    assert talk.send().owned == orders(0)


def test_a_join_without_partitions_is_acknowledged_after_the_application_polls() -> None:
    talk = Conversation()
    talk.beat(())
    assert talk.reconcile().needs_poll
    talk.beat()
    assert talk.member.state is MemberState.STABLE


def test_the_epoch_of_commits_is_that_of_the_last_response() -> None:
    talk = Conversation()
    assert talk.member.identity.generation == NO_GENERATION
    talk.beat(orders(0))
    assert (talk.member.identity.generation, talk.member.identity.is_member_epoch) == (1, True)
    talk.beat(orders(1))
    assert talk.member.identity.generation == 2
    talk.refuse(talk.send(), ErrorCode.UNKNOWN_MEMBER_ID)
    assert not talk.member.identity.is_in_group


# errors


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("state", IN_STATE)
def test_a_fenced_member_releases_everything_and_joins_again(state: MemberState, code: ErrorCode) -> None:
    talk = IN_STATE[state]()
    heartbeat = talk.send()
    talk.refuse(heartbeat, code)
    if state is MemberState.PREPARE_LEAVING:
        assert talk.member.state is MemberState.UNSUBSCRIBED
        talk.member.leave()
        assert talk.member.next_heartbeat(10**9) is None
        return
    assert talk.member.state is MemberState.FENCED
    assert talk.member.next_heartbeat(10**9) is None
    assert not talk.release().needs_poll
    rejoin = talk.send()
    assert (rejoin.epoch, rejoin.is_full, rejoin.owned) == (0, True, frozenset())
    assert rejoin.life > heartbeat.life


def test_a_group_that_was_deleted_is_joined_again_but_one_that_refuses_a_join_is_not() -> None:
    talk = stable(0)
    talk.refuse(talk.send(), ErrorCode.GROUP_ID_NOT_FOUND)
    assert talk.member.state is MemberState.FENCED
    talk.release()
    talk.refuse(talk.send(), ErrorCode.GROUP_ID_NOT_FOUND)
    assert talk.member.state is MemberState.FATAL


def test_a_member_that_is_fenced_again_and_again_backs_off() -> None:
    talk = stable(0)
    pauses = []
    for _ in range(8):
        talk.refuse(talk.send(), ErrorCode.FENCED_MEMBER_EPOCH)
        talk.release()
        pauses.append(talk.member.due_ms() - talk.now_ms)
    assert pauses == [0, 40, 80, 160, 320, 640, 1_000, 1_000]


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Reaction.RETRY),
        (ErrorCode.NOT_COORDINATOR, Reaction.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Reaction.FIND_COORDINATOR),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Reaction.RETRY),
    ],
)
@pytest.mark.parametrize("state", IN_STATE)
def test_a_transient_error_keeps_the_membership(state: MemberState, code: ErrorCode, reaction: Reaction) -> None:
    talk = IN_STATE[state]()
    heartbeat = talk.send()
    assert talk.refuse(heartbeat, code) is reaction
    retried = talk.send()
    assert (retried.epoch, retried.life, retried.is_full) == (heartbeat.epoch, heartbeat.life, True)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, "stop that member or give this one another id"),
        (ErrorCode.FENCED_INSTANCE_ID, "give each member an id of its own"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "do not have the assignor uniform"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "the syntax of RE2"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "the right READ on the group"),
        (ErrorCode.UNSUPPORTED_VERSION, "set group.protocol=classic, or upgrade"),
        (ErrorCode.INVALID_REQUEST, "the member was rejected"),
    ],
)
@pytest.mark.parametrize("state", IN_STATE)
def test_a_permanent_error_says_what_to_do(state: MemberState, code: ErrorCode, advice: str) -> None:
    talk = IN_STATE[state]()
    heartbeat = talk.send()
    assert talk.refuse(heartbeat, code) is Reaction.GIVE_UP
    assert talk.member.state is MemberState.FATAL
    assert talk.member.failure is not None
    assert talk.member.failure.code is code
    assert advice in talk.member.failure.message
    assert talk.member.next_heartbeat(10**9) is None
    talk.release()
    assert talk.member.state is MemberState.FATAL
    # the coordinator keeps a member whose later request it rejects
    talk.member.leave()
    left = talk.member.next_heartbeat(talk.now_ms)
    is_kept = not heartbeat.is_join and code is not ErrorCode.FENCED_INSTANCE_ID
    assert (left is not None) == is_kept


# leaving


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("me", -2)])
def test_a_leaving_member_sends_one_last_heartbeat(instance_id: str | None, epoch: int) -> None:
    talk = Conversation(instance_id)
    talk.beat(orders(0))
    talk.member.prepare_leaving()
    talk.member.leave()
    heartbeat = talk.send()
    assert (heartbeat.epoch, heartbeat.is_leave) == (epoch, True)
    message = heartbeat.message(1)
    assert (message.member_id, message.instance_id, message.topic_partitions) == ("m-1", instance_id, None)
    assert talk.member.state is MemberState.UNSUBSCRIBED
    talk.member.leave()
    assert talk.member.next_heartbeat(10**9) is None


def test_a_member_that_never_sent_a_join_does_not_leave() -> None:
    talk = Conversation()
    talk.member.prepare_leaving()
    talk.member.leave()
    assert talk.member.state is MemberState.UNSUBSCRIBED
    assert talk.member.next_heartbeat(10**9) is None


def test_a_member_whose_join_is_unanswered_leaves() -> None:
    talk = Conversation()
    talk.send()
    talk.member.prepare_leaving()
    talk.member.leave()
    assert talk.send().epoch == -1


def test_a_member_that_prepares_to_leave_joins_no_more() -> None:
    talk = Conversation()
    heartbeat = talk.send()
    talk.member.prepare_leaving()
    talk.member.lose(heartbeat, talk.now_ms)
    assert talk.member.next_heartbeat(10**9) is None
    talk.member.leave()
    assert talk.send().epoch == -1


def test_a_member_that_prepares_to_leave_accepts_no_assignment() -> None:
    talk = stable(0)
    talk.member.prepare_leaving()
    talk.beat(orders(0, 1))
    assert talk.member.next_step() is None
    assert talk.member.state is MemberState.PREPARE_LEAVING


def test_a_response_after_the_last_heartbeat_is_ignored() -> None:
    talk = stable(0)
    heartbeat = talk.send()
    talk.member.leave()
    talk.send()
    talk.accept(heartbeat, orders(0, 1))
    talk.refuse(heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)
    talk.member.lose(heartbeat, talk.now_ms)
    assert talk.member.state is MemberState.UNSUBSCRIBED
    assert not talk.member.identity.is_in_group


# max.poll.interval.ms


@pytest.mark.parametrize("state", [state for state in IN_STATE if state is not MemberState.PREPARE_LEAVING])
def test_a_member_whose_application_does_not_poll_leaves_and_joins_after_the_next_poll(state: MemberState) -> None:
    talk = IN_STATE[state]()
    assert talk.member.must_poll
    heartbeat = talk.send()
    talk.member.expire_poll()
    assert talk.member.next_heartbeat(10**9) is None, "a heartbeat is in flight"
    talk.accept(heartbeat)
    assert talk.send().epoch == -1
    assert (talk.member.state, talk.member.must_poll) == (MemberState.STALE, False)
    assert talk.release().needs_poll
    assert talk.send().epoch == 0


def test_a_member_that_was_fenced_while_it_left_for_lack_of_polls_waits_for_the_next_poll() -> None:
    talk = stable(0)
    heartbeat = talk.send()
    talk.member.expire_poll()
    talk.refuse(heartbeat, ErrorCode.FENCED_MEMBER_EPOCH)
    assert talk.member.state is MemberState.STALE
    assert talk.release().needs_poll


def test_a_member_that_never_sent_a_join_is_stale_without_a_heartbeat() -> None:
    talk = Conversation()
    talk.member.expire_poll()
    assert talk.member.state is MemberState.STALE
    assert talk.member.next_heartbeat(10**9) is None


def test_a_closing_member_that_is_stale_does_not_leave_again() -> None:
    talk = leaving_for_lack_of_polls()
    talk.send()
    talk.member.prepare_leaving()
    talk.member.leave()
    assert talk.member.state is MemberState.UNSUBSCRIBED
    assert talk.member.next_heartbeat(10**9) is None


# stale steps


def test_a_reconciliation_that_ends_after_a_fence_acknowledges_nothing() -> None:
    talk = reconciling()
    step = talk.member.next_step()
    assert isinstance(step, Reconciliation)
    talk.refuse(talk.send(), ErrorCode.FENCED_MEMBER_EPOCH)
    assert not talk.member.is_current(step)
    talk.member.reconciled(step)
    assert talk.member.state is MemberState.FENCED
    talk.release()
    assert talk.send().owned == frozenset()


def test_a_reconciliation_that_ends_while_the_member_prepares_to_leave_is_not_acknowledged() -> None:
    talk = reconciling()
    step = talk.member.next_step()
    assert isinstance(step, Reconciliation)
    talk.member.prepare_leaving()
    talk.member.reconciled(step)
    assert talk.member.state is MemberState.PREPARE_LEAVING


def test_a_hurried_member_sends_its_heartbeat_at_once() -> None:
    talk = stable(0)
    assert talk.member.due_ms() > talk.now_ms
    talk.member.hurry()
    assert talk.member.due_ms() <= talk.now_ms


def test_a_member_sends_heartbeats_in_exactly_the_states_of_the_table() -> None:
    assert {state for state in MemberState if state in HEARTBEATING} == {*IN_STATE, MemberState.LEAVING}
