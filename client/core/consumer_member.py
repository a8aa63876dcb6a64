"""A member of a consumer group (KIP-848) as a state machine. It receives responses to heartbeats, the time, and calls
of the application. It says which heartbeat to send and when, and which partitions to revoke and to assign.

Invariants:
- At most one heartbeat is in flight. A response to a heartbeat of an earlier membership (`life`) is ignored.
- The first heartbeat of a membership, and each heartbeat after one that failed, is full: it has all fields.
- A partition is acknowledged only after the application owns it. An assigned topic whose name is not known yet waits.
- A full heartbeat also reports partitions that the application is about to own. Otherwise the coordinator could give
  them to another member before the reconciliation ends.
- The coordinator learns of each assignment that was received, even if the member owned the same partitions before: a
  heartbeat with the owned partitions follows.
Source: KIP-848, Kafka's AbstractMembershipManager, ConsumerMembershipManager, ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kraft.client.core.heartbeats import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    HeartbeatAnswer,
    MemberSettings,
    TopicIdPartition,
    TopicSubscription,
)
from kraft.client.core.member_state import ASSIGNABLE, AT_ONCE, HEARTBEATING, RELEASING, MemberState
from kraft.client.core.membership import NO_GENERATION, MemberIdentity, Reaction, reaction_to
from kraft.client.core.membership_errors import membership_error
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.wire.error_codes import ErrorCode

NOTHING_OWNED = -1


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Partitions to revoke and then to assign, so that the member owns `owned`. In this order: `ConsumerMember.begin`;
    commit the offsets of `revoked`, call the listener, stop reading them; start reading `added`, call the listener;
    `ConsumerMember.reconciled`. `needs_poll` says that this must wait for the application's next poll. Otherwise the
    assignment is only to be acknowledged."""

    life: int
    number: int
    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    owned: frozenset[TopicIdPartition]
    needs_poll: bool


@dataclass(frozen=True, slots=True)
class Release:
    """All partitions are lost: stop reading them, call the listener, then `ConsumerMember.released`. `needs_poll` says
    that this must wait for the application's next poll even without partitions."""

    life: int
    needs_poll: bool


class ConsumerMember:
    """One member. `backoff_ms` and `backoff_ms_max` are the first and the longest pause after a failed heartbeat."""

    def __init__(
        self,
        settings: MemberSettings,
        member_id: str,
        topics: TopicSubscription,
        *,
        backoff_ms: int,
        backoff_ms_max: int,
    ) -> None:
        self.state = MemberState.JOINING
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.failure: KafkaError | None = None
        """The error with which the coordinator has rejected this member, in state FATAL."""
        self._settings = settings
        self._topics = topics
        self._uses_regex = bool(topics.regex)
        self._backoff_ms = backoff_ms
        self._backoff_ms_max = backoff_ms_max
        self._life = 1
        self._is_id_confirmed = False
        self._is_known = False
        """Whether the coordinator may have this member: a join was sent, and the member was not removed since."""
        self._is_expired = False
        self._names: dict[UUID, str] = {}
        self._target: frozenset[TopicIdPartition] = frozenset()
        self._target_number = NOTHING_OWNED
        self._owned: frozenset[TopicIdPartition] = frozenset()
        self._owned_number = NOTHING_OWNED
        self._coming: frozenset[TopicIdPartition] = frozenset()
        """The partitions that the member owns after the reconciliation in progress."""
        self._reported: _Reported | None = None
        """What the coordinator knows from earlier heartbeats; None if the next one must be full."""
        self._is_in_flight = False
        self._interval_ms = 0
        self._next_ms = 0
        """Time of the next heartbeat by the heartbeat interval."""
        self._retry_ms = 0
        """End of the back-off after failures: no heartbeat is sent before."""
        self._failures = 0

    # the application

    @property
    def identity(self) -> MemberIdentity:
        """The member as its commits name it."""
        if self.epoch <= JOIN_EPOCH:
            return MemberIdentity(self.member_id, NO_GENERATION)
        return MemberIdentity(self.member_id, self.epoch, is_member_epoch=True)

    @property
    def is_lost(self) -> bool:
        """Whether the partitions that the application reads may already belong to other members."""
        return self.state in RELEASING

    @property
    def must_poll(self) -> bool:
        """Whether the member leaves its group if the application does not poll."""
        return self.state in ASSIGNABLE

    def subscribe(self, topics: TopicSubscription) -> None:
        """Change the subscription. The next heartbeat, which is due at once, has it."""
        self._topics = topics
        self._uses_regex |= bool(topics.regex)

    def hurry(self) -> None:
        """Let the next heartbeat not wait for the heartbeat interval."""
        self._next_ms = 0

    def expire_poll(self) -> None:
        """Leave, because the application has not polled for `max.poll.interval.ms`. The member joins again when the
        application polls and has released its partitions."""
        if self.state not in ASSIGNABLE:
            return
        if self._is_known:
            self._is_expired = True
            self.state = MemberState.LEAVING
        else:
            self._drop(MemberState.STALE)

    def prepare_leaving(self) -> None:
        """Begin to leave: accept no more assignments while the partitions are being released."""
        if self.state in ASSIGNABLE:
            self.state = MemberState.PREPARE_LEAVING

    def leave(self) -> None:
        """Leave now. If the coordinator may have this member, the next heartbeat is the last one. An earlier one in
        flight is not waited for."""
        self._is_in_flight = self._is_expired = False
        self.state = MemberState.LEAVING if self._is_known else MemberState.UNSUBSCRIBED

    def fail(self, error: KafkaError) -> None:
        """Give up, because the coordinator or the cluster has rejected this member."""
        if self.state is not MemberState.UNSUBSCRIBED:
            self.failure = error
            self._drop(MemberState.FATAL)

    # heartbeats

    def due_ms(self) -> float:
        """Return the time of the next heartbeat; infinity while none is to be sent."""
        if self._is_in_flight or self.state not in HEARTBEATING:
            return float("inf")
        if self.state is MemberState.PREPARE_LEAVING and self.epoch == JOIN_EPOCH:
            return float("inf")  # the member does not join any more
        if self.state is MemberState.LEAVING:
            return 0
        is_changed = self._reported is not None and self._reported.topics != self._topics
        if self.state in AT_ONCE or (is_changed and self.state in ASSIGNABLE):
            return self._retry_ms
        return max(self._next_ms, self._retry_ms)

    def next_heartbeat(self, now_ms: int) -> ConsumerHeartbeat | None:
        """Return the heartbeat to send now; None if none is due. Afterwards one of `accept`, `refuse` and `lose` must
        be called, except after a heartbeat with which the member leaves."""
        if now_ms < self.due_ms():
            return None
        if self.state is MemberState.LEAVING:
            return self._last_heartbeat()
        heartbeat = self._heartbeat()
        self._reported = _Reported(self._topics, self._owned_number, self._owned)
        self._is_in_flight = self._is_known = True
        self._next_ms = now_ms + self._interval_ms
        if self.state is MemberState.ACKNOWLEDGING:
            self.state = MemberState.STABLE if self._is_reconciled else MemberState.RECONCILING
        return heartbeat

    def _heartbeat(self) -> ConsumerHeartbeat:
        """Return a heartbeat with the fields that the coordinator does not know yet."""
        topics, known = self._topics, self._reported
        is_full = known is None
        names = topics.names if known is None or known.topics.names != topics.names else None
        regex = None
        if (is_full and self._uses_regex) or (known is not None and known.topics.regex != topics.regex):
            regex = topics.regex  # if it is empty, the coordinator forgets an earlier one
        is_owned_known = known is not None and (known.number, known.owned) == (self._owned_number, self._owned)
        return ConsumerHeartbeat(
            settings=self._settings,
            life=self._life,
            member_id=self.member_id,
            epoch=self.epoch,
            is_id_confirmed=self._is_id_confirmed,
            is_full=is_full,
            names=names,
            regex=regex,
            owned=None if is_owned_known else self._owned | self._coming,
        )

    def _last_heartbeat(self) -> ConsumerHeartbeat:
        epoch = LEAVE_EPOCH if self._settings.instance_id is None else STATIC_LEAVE_EPOCH
        heartbeat = ConsumerHeartbeat(
            settings=self._settings,
            life=self._life,
            member_id=self.member_id,
            epoch=epoch,
            is_id_confirmed=self._is_id_confirmed,
        )
        self._is_known = False
        self._drop(MemberState.STALE if self._is_expired else MemberState.UNSUBSCRIBED)
        return heartbeat

    def accept(self, heartbeat: ConsumerHeartbeat, answer: HeartbeatAnswer) -> None:
        """Process the response to a heartbeat that the coordinator has accepted."""
        if not self._is_answer_wanted(heartbeat):
            return
        if not heartbeat.is_join:
            self._failures = 0
        self._is_id_confirmed = True
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.epoch
        self._next_ms += answer.interval_ms - self._interval_ms
        self._interval_ms = answer.interval_ms
        if self.state not in ASSIGNABLE:
            return
        if answer.assignment is not None:
            self._retarget(answer.assignment)
        elif self.state is MemberState.JOINING:
            self._retarget(frozenset())

    def refuse(self, heartbeat: ConsumerHeartbeat, answer: HeartbeatAnswer, now_ms: int) -> Reaction:
        """Process an error response to a heartbeat. Return the reaction; `FIND_COORDINATOR` is up to the caller."""
        reaction = reaction_to(answer.code)
        if answer.code is ErrorCode.GROUP_ID_NOT_FOUND and not heartbeat.is_join:
            reaction = Reaction.FORGET_ID
        if answer.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            reaction = Reaction.RETRY
        if not self._is_answer_wanted(heartbeat):
            return reaction
        self._back_off(now_ms)
        if reaction in (Reaction.FORGET_GENERATION, Reaction.FORGET_ID):
            self._fence(now_ms)
        elif reaction not in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            self._is_known = not heartbeat.is_join and answer.code is not ErrorCode.FENCED_INSTANCE_ID
            self.fail(membership_error(answer.code, answer.message, self._settings))
        return reaction

    def lose(self, heartbeat: ConsumerHeartbeat, now_ms: int) -> None:
        """Process the failure of the connection on which a heartbeat was sent. The coordinator may have received it."""
        if self._is_answer_wanted(heartbeat):
            self._back_off(now_ms)

    def _is_answer_wanted(self, heartbeat: ConsumerHeartbeat) -> bool:
        if heartbeat.life != self._life:
            return False
        self._is_in_flight = False
        return True

    def _back_off(self, now_ms: int) -> None:
        """Send the next heartbeat after a pause, and in full."""
        self._reported = None
        self._next_ms = now_ms
        self._retry_ms = now_ms + min(self._backoff_ms << min(self._failures, 16), self._backoff_ms_max)
        self._failures += 1

    def _fence(self, now_ms: int) -> None:
        """Forget the membership that the coordinator has ended. The first join after it need not back off."""
        self._is_known = False
        if self._failures == 1:
            self._retry_ms = now_ms
        if self._is_expired:
            self._drop(MemberState.STALE)
        else:
            self._drop(MemberState.FENCED if self.state in ASSIGNABLE else MemberState.UNSUBSCRIBED)

    def _drop(self, state: MemberState) -> None:
        """End this membership, and enter `state`. Responses to its heartbeats are ignored from now on."""
        self.state = state
        self.epoch = JOIN_EPOCH
        self._life += 1
        self._is_in_flight = self._is_expired = False
        self._reported = None
        self._target = self._owned = self._coming = frozenset()
        self._target_number = self._owned_number = NOTHING_OWNED

    # partitions

    def _retarget(self, assignment: frozenset[TopicIdPartition]) -> None:
        if self._target_number == NOTHING_OWNED or assignment != self._target:
            self._target = assignment
            self._target_number += 1
        if not self._is_reconciled:
            self.state = MemberState.RECONCILING

    @property
    def _is_reconciled(self) -> bool:
        return (self._owned_number, self._owned) == (self._target_number, self._target)

    def learn_topics(self, names: Mapping[UUID, str]) -> None:
        """Add the names of these topic ids to those that the member knows."""
        self._names.update(names)

    @property
    def unknown_topics(self) -> frozenset[UUID]:
        """The ids of assigned topics whose names are not known."""
        return frozenset(topic_id for topic_id, _ in self._target if topic_id not in self._names)

    def next_step(self) -> Reconciliation | Release | None:
        """Return what must be done with the partitions now; None if nothing."""
        if self.state in RELEASING:
            return Release(self._life, needs_poll=self.state is MemberState.STALE)
        if self.state is not MemberState.RECONCILING:
            return None
        owned = frozenset(one for one in self._target if one[0] in self._names)
        if (self._owned_number, self._owned) == (self._target_number, owned):
            return None  # the rest waits for metadata
        revoked, added = (self._named(some) for some in (self._owned - owned, owned - self._owned))
        needs_poll = bool(revoked or added) or self._owned_number == NOTHING_OWNED
        return Reconciliation(self._life, self._target_number, revoked, added, owned, needs_poll)

    def partitions_after(self, step: Reconciliation) -> frozenset[TopicPartition]:
        """Return the partitions that the member owns after `step`, by the names of their topics."""
        return self._named(step.owned)

    def _named(self, partitions: frozenset[TopicIdPartition]) -> frozenset[TopicPartition]:
        return frozenset((self._names[topic_id], index) for topic_id, index in partitions)

    def begin(self, step: Reconciliation) -> None:
        """The application is about to own the partitions of `step`."""
        self._coming = step.owned

    def is_current(self, step: Reconciliation) -> bool:
        """Whether the reconciliation may continue. False if the membership for which it began has ended."""
        return step.life == self._life and self.state not in RELEASING

    def reconciled(self, step: Reconciliation) -> None:
        """The member owns the partitions of `step` now: acknowledge it. A newer assignment is reconciled afterwards."""
        if step.life == self._life:
            self._owned, self._owned_number = step.owned, step.number
            self._coming = frozenset()
            if self.state in ASSIGNABLE:
                self.state = MemberState.ACKNOWLEDGING

    def released(self, step: Release) -> None:
        """The member has released all partitions. Unless it was rejected, it joins again."""
        if step.life == self._life and self.state in (MemberState.FENCED, MemberState.STALE):
            self.state = MemberState.JOINING


@dataclass(frozen=True, slots=True)
class _Reported:
    """What the heartbeats of a membership have told the coordinator."""

    topics: TopicSubscription
    number: int
    owned: frozenset[TopicIdPartition]
