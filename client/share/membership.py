"""A member of a share group: it sends heartbeats, and fetches from the partitions that the coordinator assigns.

Members may share a partition, so an assignment takes effect at once. Source: KIP-932, Kafka's ShareMembershipManager,
ShareHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraft.client.cluster import Cluster
from kraft.client.core.configs import ShareConsumerConfig
from kraft.client.core.consumer_member import Release
from kraft.client.core.heartbeats import ConsumerHeartbeat, MemberSettings
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.heartbeats import share_heartbeat_message
from kraft.client.heartbeating_member import HeartbeatingMember
from kraft.client.subscription import SubscribedTopics
from kraft.wire.api_keys import ApiKey


class ShareGroupMembership(HeartbeatingMember):
    """This consumer's membership in its share group. `assign(partitions)` is called with each new assignment, and
    `failed(error)` with an error after which the member stays in the group."""

    heartbeat_key = ApiKey.SHARE_GROUP_HEARTBEAT

    def __init__(
        self,
        config: ShareConsumerConfig,
        cluster: Cluster,
        member_id: str,
        topics: SubscribedTopics,
        assign: Callable[[frozenset[TopicPartition]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        assert config.group_id is not None
        settings = MemberSettings(config.group_id, rack=config.client_rack or None, is_share_group=True)
        super().__init__(config, cluster, settings, member_id, topics)
        self._assign = assign
        self._report = failed
        self._polled = trio.Event()

    def subscribe(self, topics: SubscribedTopics) -> None:
        """Change the subscription without leaving the group."""
        self._topics = topics
        self._subscribed.set()

    def poll_begins(self) -> None:
        """The application is in `poll`."""
        self.poll_clock.is_polled = True
        self._polled.set()

    def poll_ends(self) -> None:
        self.poll_clock.is_polled = False
        self._polled = trio.Event()

    async def run(self) -> None:
        """Keep this consumer a member of the group until cancelled. Raise KafkaError if the group rejects this
        member."""
        self._member.subscribe(await self._topics.for_coordinator())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_heartbeats)
            nursery.start_soon(self._learn_topics)
            nursery.start_soon(self._follow_subscription)
            while self._member.failure is None:
                await self._take_step()
            nursery.cancel_scope.cancel()
        failure = self._member.failure
        self._assign(frozenset())
        await self._send_leave()
        raise failure

    def _message(self, heartbeat: ConsumerHeartbeat, version: int) -> Any:
        return share_heartbeat_message(heartbeat, version)

    def _lost(self) -> None:
        self._assign(frozenset())

    def _failed(self, error: KafkaError) -> None:
        self._report(error)

    async def _take_step(self) -> None:
        """Use the new assignment, or wait until the member's state changes."""
        step = self._member.next_step()
        if step is None:
            await self._woken.wait()
            return
        if isinstance(step, Release):
            if step.needs_poll:
                await self._polled.wait()
            self._assign(frozenset())
            self._member.released(step)
        else:
            self._assign(self._member.partitions_after(step))
            self._member.reconciled(step)
        self._wake()

    async def leave(self) -> None:
        """Leave the group. A cancellation does not prevent it. Call it after `run` was cancelled."""
        await self._send_leave()
