"""Members of share groups at the group coordinator: heartbeats, initialization, leaving, sessions, deletion."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.records import decode_entry, encode_entry
from kraft.broker.group.requests import (
    CommitRequest,
    DeleteReply,
    DeleteRequest,
    JoinRequest,
    ListReply,
    ListRequest,
    OffsetToCommit,
    Request,
    TopicsGoneRequest,
    TxnCommitRequest,
)
from kraft.broker.group.shard import GroupSettings
from kraft.broker.group.step import CoordinatorStep, DeleteShareStates, InitializeShareStates
from kraft.broker.shard.now import Now
from kraft.broker.share_group.heartbeat import INITIALIZING_HEARTBEAT_MS
from kraft.broker.share_group.requests import (
    PrepareAlterRequest,
    PrepareDeleteRequest,
    RaiseEpochRequest,
    ShareDescribeRequest,
    ShareHeartbeatRequest,
    ShareInitializedRequest,
    ShareMembershipSettings,
    StatesDeletedRequest,
)
from kraft.wire.error_codes import ErrorCode

TOPIC = UUID(int=7)
SESSION_MS, RETRY_MS = 45_000, 30_000
BOTH = [(TOPIC, 0), (TOPIC, 1)]


class OneTopic:
    """A cluster with the topic `orders`."""

    name, topic_id = "orders", TOPIC

    def __init__(self, partition_count: int = 2) -> None:
        self.partition_count = partition_count

    def get(self, name: str, /) -> Any:
        return self if name == self.name else None

    def name_of(self, topic_id: UUID, /) -> str | None:
        return self.name if topic_id == TOPIC else None

    def __iter__(self) -> Any:
        return iter((self,))


def heartbeat(
    member: str = "m1", epoch: int = 0, names: tuple[str, ...] | None = None, group: str = "g"
) -> ShareHeartbeatRequest:
    return ShareHeartbeatRequest(group, member, epoch, "c", "/h", None, names)


class Shares:
    """A group coordinator whose writes are committed at once, or wait in `waiting`."""

    def __init__(self, *, members_max: int = 200, assignment_interval_ms: int = 0) -> None:
        settings = ShareMembershipSettings(members_max=members_max, assignment_interval_ms=assignment_interval_ms)
        self.settings = GroupSettings(share_settings_of=lambda group: settings)
        self.machine = GroupCoordinator(self.settings, EMPTY_STATE, 0)
        self.machine.topics_changed(OneTopic())
        self.now = Now(0, 0)
        self.log: list[Any] = []
        self.work: list[Any] = []
        self.commits_at_once = True
        self.waiting: list[Any] = []

    def do(self, step: CoordinatorStep) -> None:
        if step.entries:
            for entry in step.entries:
                assert decode_entry(*encode_entry(entry)) == entry  # type: ignore[arg-type]
            self.log += step.entries
            self.machine.appended(step.entries, len(self.log))
            if self.commits_at_once:
                self.machine.advance(len(self.log))
        for ticket, reply in step.replies:
            ticket(reply)
        self.work += step.share_states
        self.waiting += step.after
        if self.commits_at_once:
            self.commit()

    def commit(self) -> None:
        """Commit what waits."""
        self.machine.advance(len(self.log))
        waiting, self.waiting = self.waiting, []
        for after in waiting:
            self.do(self.machine.stored(after, self.now))

    def refuse(self, step: CoordinatorStep) -> None:
        """Let the log refuse the records of a step."""
        for after in step.after:
            self.do(self.machine.failed(after, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now))

    def ask(self, request: Request) -> Any:
        replies: list[Any] = []
        self.do(self.machine.handle(request, replies.append, self.now))
        return replies[0] if replies else None

    def beat(self, member: str = "m1", epoch: int = 0, names: tuple[str, ...] | None = None, group: str = "g") -> Any:
        subscribed = ("orders",) if names is None and epoch == 0 else names
        return self.ask(heartbeat(member, epoch, subscribed, group))

    def initialize(self, *partitions: int, state_epoch: int | None = None) -> None:
        """Report that the share coordinator has begun these states, by default in the newest epoch."""
        places = tuple((TOPIC, number) for number in partitions)
        epoch = self.machine.committed.shares["g"].epoch if state_epoch is None else state_epoch
        self.ask(ShareInitializedRequest("g", places, epoch))

    def pass_time(self, passed_ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + passed_ms, self.now.wall_ms + passed_ms)
        while (step := self.machine.fire(self.now)) is not None:
            self.do(step)

    def failover(self) -> Shares:
        """Return another coordinator that has loaded the log."""
        other = Shares()
        other.log = list(self.log)
        other.machine = GroupCoordinator(self.settings, EMPTY_STATE.with_entries(self.log), len(self.log))
        other.machine.topics_changed(OneTopic())
        other.do(other.machine.begin(other.now))
        return other

    def describe(self) -> Any:
        return self.ask(ShareDescribeRequest("g"))


def test_a_member_gets_partitions_once_their_states_are_initialized() -> None:
    shares = Shares()
    reply = shares.beat()
    assert (reply.error, reply.epoch, reply.assignment) == (ErrorCode.NONE, 1, {})
    (work,) = shares.work
    assert isinstance(work, InitializeShareStates)
    assert work.initialization.partitions == ((TOPIC, 0), (TOPIC, 1))
    shares.initialize(0, 1)
    reply = shares.beat(epoch=1)
    assert (reply.epoch, reply.assignment) == (2, {TOPIC: {0, 1}})
    assert shares.beat(epoch=2).assignment is None


def test_members_send_heartbeats_soon_while_partitions_are_being_initialized() -> None:
    shares = Shares()
    assert shares.beat().heartbeat_interval_ms == INITIALIZING_HEARTBEAT_MS
    shares.initialize(1)
    assert shares.beat(epoch=1).heartbeat_interval_ms == INITIALIZING_HEARTBEAT_MS
    shares.initialize(0)
    assert shares.beat(epoch=2).heartbeat_interval_ms == ShareMembershipSettings().heartbeat_interval_ms


def test_only_the_initialized_partitions_are_assigned() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(1)
    assert shares.beat(epoch=1).assignment == {TOPIC: {1}}


def test_an_initialization_that_was_not_finished_is_begun_again_after_the_retry_interval() -> None:
    shares = Shares()
    shares.beat()
    shares.pass_time(RETRY_MS - 1)
    shares.beat(epoch=1)
    assert len(shares.work) == 1
    shares.pass_time(1)
    shares.beat(epoch=1)
    assert len(shares.work) == 2


def test_a_new_coordinator_begins_the_initialization_again() -> None:
    shares = Shares()
    shares.beat()
    other = shares.failover()
    other.beat(epoch=1)
    assert len(other.work) == 1


def test_new_partitions_of_a_topic_are_initialized_and_assigned() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    shares.beat(epoch=1)
    shares.machine.topics_changed(OneTopic(3))
    shares.beat(epoch=2)
    assert shares.work[-1].initialization.partitions == ((TOPIC, 2),)
    shares.initialize(2)
    assert shares.beat(epoch=shares.describe().members[0].epoch).assignment == {TOPIC: {0, 1, 2}}


def test_two_members_divide_the_partitions_and_three_share_them() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    for name in ("m2", "m3"):
        shares.beat(name)
    assignments = {}
    for member in shares.describe().members:
        reply = shares.beat(member.member_id, member.epoch, ("orders",))
        assignments[member.member_id] = reply.assignment
    assert set().union(*(one[TOPIC] for one in assignments.values())) == {0, 1}
    assert all(one[TOPIC] for one in assignments.values())


def test_a_member_that_leaves_or_is_silent_is_removed() -> None:
    shares = Shares()
    shares.beat()
    shares.beat("m2")
    assert shares.beat("m2", -1).epoch == -1
    assert [member.member_id for member in shares.describe().members] == ["m1"]
    shares.pass_time(SESSION_MS)
    assert shares.describe().members == ()
    assert shares.describe().state == "Empty"
    assert shares.beat(epoch=1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_keeps_the_session() -> None:
    shares = Shares()
    shares.beat()
    for _ in range(3):
        shares.pass_time(SESSION_MS - 1)
        assert shares.beat(epoch=1).error is ErrorCode.NONE


def test_members_keep_their_session_over_a_failover() -> None:
    shares = Shares()
    shares.beat()
    other = shares.failover()
    other.pass_time(SESSION_MS - 1)
    assert len(other.describe().members) == 1
    other.pass_time(1)
    assert other.describe().members == ()


def test_a_lost_reply_is_repeated_and_other_epochs_are_fenced() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    shares.beat(epoch=1)
    assert shares.beat(epoch=1).epoch == 2
    assert shares.beat(epoch=3).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_removal_that_times_out_in_the_log_does_not_fence_a_member_that_has_joined_again() -> None:
    shares = Shares()
    shares.beat()
    shares.commits_at_once = False
    shares.pass_time(SESSION_MS)
    (removal,) = shares.waiting
    shares.waiting = []
    shares.beat()
    shares.do(shares.machine.failed(removal, ErrorCode.COORDINATOR_NOT_AVAILABLE, shares.now))
    shares.commits_at_once = True
    shares.commit()
    shares.pass_time(SESSION_MS - 1)
    assert [member.member_id for member in shares.describe().members] == ["m1"]
    shares.pass_time(1)
    assert shares.describe().members == ()


def test_a_removal_that_the_log_refuses_is_tried_again() -> None:
    shares = Shares()
    shares.beat()
    shares.now = Now(SESSION_MS, SESSION_MS)
    removal = shares.machine.fire(shares.now)
    assert removal is not None
    shares.refuse(removal)
    assert len(shares.describe().members) == 1
    shares.pass_time(500)
    assert shares.describe().members == ()


def test_a_full_group_takes_no_new_member() -> None:
    shares = Shares(members_max=1)
    shares.beat()
    assert shares.beat("m2").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shares.beat().error is ErrorCode.NONE


def test_groups_of_different_types_do_not_mix() -> None:
    shares = Shares()
    shares.beat()
    joining = JoinRequest("g", "", None, "c", "/h", 10_000, 10_000, "consumer", (("range", b""),), "fresh")
    assert shares.ask(joining).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    shares.ask(joining._replace(group="classic"))
    assert shares.beat(group="classic").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert shares.beat(group="unknown", epoch=3).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_cannot_be_committed_to_a_share_group() -> None:
    shares = Shares()
    shares.beat()
    row = OffsetToCommit("orders", 0, 5, -1, "")
    commits = (CommitRequest("g", -1, "", None, (row,)), TxnCommitRequest("g", 7, 0, -1, "", None, (row,)))
    for commit in commits:
        assert shares.ask(commit).rows[0].error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_is_listed_with_its_type() -> None:
    shares = Shares()
    shares.beat()
    listed = shares.ask(ListRequest())
    assert isinstance(listed, ListReply)
    assert [(one.group, one.state, one.group_type) for one in listed.groups] == [("g", "Stable", "share")]


def test_a_group_is_deleted_after_the_states_of_its_partitions() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0)
    assert shares.ask(DeleteRequest("g")) == DeleteReply(ErrorCode.NON_EMPTY_GROUP)
    shares.beat(epoch=-1)
    assert shares.ask(DeleteRequest("g")) is None
    work = shares.work[-1]
    assert isinstance(work, DeleteShareStates)
    assert sorted(work.partitions) == [(TOPIC, 0), (TOPIC, 1)]
    assert shares.ask(DeleteRequest("g", states_deleted=True)) == DeleteReply(ErrorCode.NONE)
    assert shares.describe().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert shares.failover().describe().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deletion_of_a_group_is_repeated_for_the_states_that_an_earlier_one_began_to_delete() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    shares.beat(epoch=-1)
    shares.ask(DeleteRequest("g"))
    first = shares.work[-1]
    shares.ask(DeleteRequest("g"))
    assert shares.work[-1] is not first
    assert sorted(shares.work[-1].partitions) == sorted(first.partitions)
    other = shares.failover()
    other.ask(DeleteRequest("g"))
    assert sorted(other.work[-1].partitions) == sorted(first.partitions)


def empty_with_states() -> Shares:
    """Return a group without members that has initialized both partitions."""
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    shares.beat(epoch=-1)
    return shares


@pytest.mark.parametrize("request_", [DeleteRequest("g"), PrepareDeleteRequest("g", frozenset((TOPIC,)))])
def test_states_that_are_being_deleted_are_initialized_again_in_an_epoch_that_the_deletion_does_not_reach(
    request_: Request,
) -> None:
    shares = empty_with_states()
    prepared = shares.ask(request_)
    deleted = shares.work[-1].state_epoch if prepared is None else prepared.state_epoch
    assert deleted == shares.machine.committed.shares["g"].epoch
    assert shares.beat().assignment == {}
    begun = shares.work[-1].initialization
    assert begun.partitions == tuple(BOTH)
    assert begun.state_epoch >= deleted
    assert not shares.machine.committed.shares["g"].states.deleting


def test_a_second_deletion_of_offsets_takes_away_what_was_initialized_after_the_first() -> None:
    shares = empty_with_states()
    first = shares.ask(PrepareDeleteRequest("g", frozenset((TOPIC,))))
    shares.beat()
    shares.initialize(0, 1)
    shares.beat(epoch=-1)
    second = shares.ask(PrepareDeleteRequest("g", frozenset((TOPIC,))))
    assert (sorted(first.partitions), sorted(second.partitions)) == (BOTH, BOTH)
    assert second.state_epoch > first.state_epoch
    shares.ask(StatesDeletedRequest("g", frozenset((TOPIC,))))
    assert shares.beat().assignment == {}


def test_an_initialization_that_is_reported_after_a_deletion_has_begun_does_not_count() -> None:
    shares = Shares()
    shares.beat()
    begun = shares.work[-1].initialization.state_epoch
    shares.beat(epoch=-1)
    shares.ask(PrepareDeleteRequest("g", frozenset((TOPIC,))))
    shares.ask(StatesDeletedRequest("g", frozenset((TOPIC,))))
    shares.pass_time(RETRY_MS)
    shares.beat()
    shares.initialize(0, 1, state_epoch=begun)
    assert not shares.machine.committed.shares["g"].states.initialized


def test_offsets_that_are_set_in_a_topic_that_is_being_deleted_leave_no_other_state_unknown() -> None:
    shares = empty_with_states()
    shares.ask(PrepareDeleteRequest("g", frozenset((TOPIC,))))
    altered = shares.ask(PrepareAlterRequest("g", ((TOPIC, "orders", 0),)))
    shares.initialize(0, state_epoch=altered.state_epoch)
    assert shares.ask(DeleteRequest("g")) is None
    assert sorted(shares.work[-1].partitions) == BOTH


def test_partitions_of_a_topic_to_which_nobody_subscribes_any_more_stay_known() -> None:
    shares = Shares()
    shares.beat()
    shares.beat(epoch=1, names=("others",))
    shares.initialize(0)
    shares.beat(epoch=-1)
    assert shares.ask(DeleteRequest("g")) is None
    assert sorted(shares.work[-1].partitions) == BOTH


def test_a_member_that_joins_does_not_begin_the_states_whose_offsets_are_being_set() -> None:
    shares = Shares()
    shares.beat()
    shares.beat(epoch=-1)
    shares.pass_time(RETRY_MS)
    altered = shares.ask(PrepareAlterRequest("g", ((TOPIC, "orders", 0), (TOPIC, "orders", 1))))
    begun = len(shares.work)
    joined = shares.beat()
    assert len(shares.work) == begun
    shares.initialize(0, 1, state_epoch=altered.state_epoch)
    assert shares.beat(epoch=joined.epoch).assignment == {TOPIC: frozenset((0, 1))}


def test_a_group_whose_initializations_are_fenced_by_an_older_state_continues_in_a_newer_epoch() -> None:
    shares = Shares()
    joined = shares.beat()
    shares.ask(RaiseEpochRequest("g", 40))
    shares.beat(epoch=joined.epoch)
    assert shares.work[-1].initialization.state_epoch == 41
    shares.ask(RaiseEpochRequest("g", 3))
    assert shares.machine.committed.shares["g"].epoch == 41


def test_a_refused_heartbeat_does_not_make_the_next_one_ask_again_for_what_is_being_begun() -> None:
    shares = Shares()
    joined = shares.beat()
    begun = len(shares.work)
    shares.machine.topics_changed(OneTopic(3))
    shares.refuse(shares.machine.handle(heartbeat(epoch=joined.epoch), lambda reply: None, shares.now))
    shares.beat(epoch=joined.epoch)
    assert [work.initialization.partitions for work in shares.work[begun:]] == [((TOPIC, 2),)]


def test_new_partitions_do_not_begin_states_again_that_are_being_begun() -> None:
    shares = Shares()
    shares.beat()
    shares.machine.topics_changed(OneTopic(3))
    shares.beat(epoch=1)
    assert shares.work[-1].initialization.partitions == ((TOPIC, 2),)
    shares.pass_time(RETRY_MS)
    shares.beat(epoch=shares.describe().members[0].epoch)
    assert shares.work[-1].initialization.partitions == ((TOPIC, 0), (TOPIC, 1), (TOPIC, 2))


def test_a_member_whose_leave_the_log_refuses_is_removed_after_its_session_timeout() -> None:
    shares = Shares()
    shares.beat()
    leave = ShareHeartbeatRequest("g", "m1", -1, "c", "/h", None, None)
    shares.refuse(shares.machine.handle(leave, lambda _: None, shares.now))
    assert list(shares.machine.newest.shares["g"].members) == ["m1"]
    shares.pass_time(SESSION_MS)
    assert list(shares.machine.newest.shares["g"].members) == []


def test_a_group_forgets_the_states_of_a_deleted_topic_and_keeps_those_of_others() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    before = shares.machine.newest.shares["g"].states
    other = frozenset({("other", UUID(int=8))})
    shares.do(shares.machine.handle(TopicsGoneRequest("g", other), lambda _: None, shares.now))
    assert shares.machine.newest.shares["g"].states == before
    gone = frozenset(shares.machine.topics_of("g"))
    assert gone == {("orders", TOPIC)}
    shares.do(shares.machine.handle(TopicsGoneRequest("g", gone), lambda _: None, shares.now))
    assert shares.machine.newest.shares["g"].states.topics() == {}


def test_a_coordinator_remembers_nothing_of_a_deleted_group() -> None:
    shares = Shares()
    shares.beat()
    shares.initialize(0, 1)
    shares.beat(epoch=-1)
    shares.ask(DeleteRequest("g", states_deleted=False))
    shares.ask(DeleteRequest("g", states_deleted=True))
    assert shares.machine.newest.shares.get("g") is None
    assert shares.machine._shard.share_memories == {}


def test_the_epochs_of_share_groups_are_counted_as_rebalances() -> None:
    shares = Shares()
    counts = shares.machine._shard.counts
    shares.beat()
    assert (counts.share_rebalances, counts.consumer_rebalances) == (1, 0)
    shares.initialize(0, 1)
    assert counts.share_rebalances == 2


def test_members_that_join_within_the_assignment_interval_get_partitions_together_after_it() -> None:
    shares = Shares(assignment_interval_ms=1_000)
    shares.pass_time(5_000)
    shares.beat("m1")
    shares.initialize(0, 1)
    shares.pass_time(1_000)
    assert shares.beat("m1", epoch=1).assignment == {TOPIC: {0, 1}}
    shares.pass_time(999)
    for member in ("m2", "m3"):
        reply = shares.beat(member)
        assert (reply.error, reply.epoch, reply.assignment) == (ErrorCode.NONE, 2, {})
    assert (shares.describe().epoch, shares.describe().assignment_epoch) == (4, 2)
    shares.pass_time(1)
    reply = shares.beat("m2", epoch=2)
    assert (reply.epoch, sum(map(len, reply.assignment.values()))) == (4, 1)
    assert sum(map(len, shares.beat("m3", epoch=2).assignment.values())) == 1


def test_the_assignment_interval_of_a_share_group_goes_on_at_the_next_coordinator() -> None:
    shares = Shares(assignment_interval_ms=1_000)
    shares.pass_time(5_000)
    shares.beat("m1")
    moved = shares.failover()
    moved.pass_time(5_999)
    assert moved.beat("m2").epoch == 1
    moved.pass_time(1)
    assert moved.beat("m2", epoch=1).epoch == 2
