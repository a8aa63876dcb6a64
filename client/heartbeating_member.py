"""A member of a group whose coordinator assigns partitions in the responses to heartbeats. This is the common part of
consumer groups (KIP-848) and share groups (KIP-932).

`ConsumerMember` decides; this module sends. One task sends heartbeats, one at a time. Two others tell the member its
subscription, and the names of topics. Source: Kafka's AbstractHeartbeatRequestManager, AbstractMembershipManager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import trio

from kraft.client.cluster import Cluster, ClusterUnreachable
from kraft.client.connections import VersionMismatch
from kraft.client.coordinator import HEARTBEATS, Coordinator
from kraft.client.core.configs import GroupReaderConfig
from kraft.client.core.consumer_member import ConsumerMember
from kraft.client.core.heartbeats import ConsumerHeartbeat, HeartbeatAnswer, MemberSettings, TopicSubscription
from kraft.client.core.membership import MemberIdentity, Reaction
from kraft.client.core.membership_errors import membership_error
from kraft.client.core.records import KafkaError
from kraft.client.poll_clock import PollClock
from kraft.client.subscription import SubscribedTopics
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

LEAVE_TIMEOUT_MS = 1_500


class HeartbeatingMember(ABC):
    """A member that sends heartbeats. A subclass says what to do with the partitions that it is assigned."""

    heartbeat_key: ApiKey
    """The API of the heartbeats."""

    def __init__(
        self,
        config: GroupReaderConfig,
        cluster: Cluster,
        settings: MemberSettings,
        member_id: str,
        topics: SubscribedTopics,
    ) -> None:
        seam = cluster.seam
        self.coordinator = Coordinator(config, cluster, settings.group_id)
        self.poll_clock = PollClock(seam.clock, config.max_poll_interval_ms)
        self._settings = settings
        self._member = ConsumerMember(
            settings,
            member_id,
            TopicSubscription(),
            backoff_ms=config.retry_backoff_ms,
            backoff_ms_max=config.retry_backoff_max_ms,
        )
        self._cluster = cluster
        self._clock = seam.clock
        self._topics = topics
        self._request_timeout_ms = config.request_timeout_ms
        self._metadata_max_age_ms = config.metadata_max_age_ms
        self._backoff_ms = config.retry_backoff_ms
        self._backoff_ms_max = config.retry_backoff_max_ms
        self._woken = trio.Event()
        """Set after each change of the member's state, and then replaced."""
        self._subscribed = trio.Event()
        self._sending = trio.CancelScope()

    @property
    def member(self) -> MemberIdentity:
        """The member as its requests name it."""
        return self._member.identity

    # what a subclass decides

    @abstractmethod
    def _message(self, heartbeat: ConsumerHeartbeat, version: int) -> Any:
        """Return the request of a heartbeat."""

    @abstractmethod
    def _lost(self) -> None:
        """The partitions may already belong to other members."""

    @abstractmethod
    def _failed(self, error: KafkaError) -> None:
        """Report an error to the application. The member stays in the group."""

    # heartbeats

    def _wake(self) -> None:
        """Let each task look at the member's new state."""
        if self._member.is_lost:
            self._lost()
        self._member.learn_topics(self._cluster.names_of(self._member.unknown_topics))
        self._woken.set()
        self._woken = trio.Event()

    async def _send_heartbeats(self) -> None:
        while True:
            if self.poll_clock.is_exceeded() and self._member.must_poll:
                self._member.expire_poll()
                self._wake()
            now_ms = self._clock.monotonic_ms()
            heartbeat = self._member.next_heartbeat(now_ms)
            if heartbeat is None:
                deadline_ms = self.poll_clock.deadline_ms if self._member.must_poll else float("inf")
                wait_ms = min(self._member.due_ms(), deadline_ms) - now_ms
                with trio.move_on_after(max(wait_ms, 0) / 1000):
                    await self._woken.wait()
            elif heartbeat.is_leave:
                self._wake()
                await self._send_last(heartbeat)
            else:
                await self._send(heartbeat)
                self._wake()

    async def _send(self, heartbeat: ConsumerHeartbeat) -> None:
        """Send a heartbeat, and give the response to the member."""

        def build(version: int) -> object:
            # Without the response, the member would not know its id, and could not leave.
            self._sending.shield = heartbeat.requests_member_id(version)
            return self._message(heartbeat, version)

        try:
            with trio.CancelScope() as self._sending:
                answer = await self.coordinator.ask_in_version(
                    self.heartbeat_key, HEARTBEATS, build, timeout_ms=self._request_timeout_ms
                )
        except trio.Cancelled:
            # `leave` continues with heartbeats.
            self._member.lose(heartbeat, self._clock.monotonic_ms())
            self._wake()
            raise
        except VersionMismatch as mismatch:
            self._member.fail(membership_error(ErrorCode.UNSUPPORTED_VERSION, str(mismatch), self._settings))
        except KafkaError as failure:
            self._member.fail(failure)
        else:
            if answer is None:
                self._member.lose(heartbeat, self._clock.monotonic_ms())
            else:
                self._accept(heartbeat, HeartbeatAnswer.of(answer))
        finally:
            self._sending.shield = False

    def _accept(self, heartbeat: ConsumerHeartbeat, answer: HeartbeatAnswer) -> None:
        if answer.code is ErrorCode.NONE:
            self._member.accept(heartbeat, answer)
            return
        reaction = self._member.refuse(heartbeat, answer, self._clock.monotonic_ms())
        if reaction is Reaction.FIND_COORDINATOR:
            self.coordinator.forget()
        elif answer.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._failed(membership_error(answer.code, answer.message, self._settings))

    async def _send_last(self, heartbeat: ConsumerHeartbeat) -> None:
        """Send the heartbeat with which the member leaves, once. If no response comes in time, the coordinator removes
        the member when its session expires. A cancellation does not prevent it."""
        with trio.move_on_after(LEAVE_TIMEOUT_MS / 1000, shield=True):
            try:
                await self.coordinator.ask_in_version(
                    self.heartbeat_key,
                    HEARTBEATS,
                    lambda version: self._message(heartbeat, version),
                    timeout_ms=LEAVE_TIMEOUT_MS,
                )
            except (KafkaError, VersionMismatch):
                return  # the coordinator does not accept this client, so there is no member

    async def _send_leave(self) -> None:
        """Leave the group, unless the coordinator does not have this member."""
        with trio.move_on_after(LEAVE_TIMEOUT_MS / 1000, shield=True):
            while self._sending.shield:
                await self._woken.wait()
        self._sending.shield = False
        self._member.leave()
        heartbeat = self._member.next_heartbeat(self._clock.monotonic_ms())
        if heartbeat is not None:
            await self._send_last(heartbeat)

    # subscription and metadata

    async def _follow_subscription(self) -> None:
        """Tell the member its subscription: after each change, and every `metadata.max.age.ms` for the names that match
        a pattern."""
        while True:
            self._subscribed = trio.Event()
            self._member.subscribe(await self._topics.for_coordinator())
            self._wake()
            with trio.move_on_after(self._metadata_max_age_ms / 1000):
                await self._subscribed.wait()
            if not self._subscribed.is_set():
                await self._topics.refresh()

    async def _learn_topics(self) -> None:
        """Request metadata of assigned topics while their names are not known."""
        pause_ms = self._backoff_ms
        while True:
            unknown = self._member.unknown_topics
            if not unknown:
                pause_ms = self._backoff_ms
                await self._woken.wait()
                continue
            try:
                await self._cluster.refresh_ids(unknown)
            except ClusterUnreachable:
                continue
            self._wake()
            if self._member.unknown_topics:
                await self._clock.sleep_ms(pause_ms)
                pause_ms = min(pause_ms * 2, self._backoff_ms_max)
