"""SharePersister: ask the share coordinator of a share partition to read or change its persisted state.

The share coordinator is the leader of a partition of `__share_group_state`. One on this broker is called directly. A
request is repeated while the coordinator moves or loads, for PERSIST_MS_MAX at most. The first request creates the
topic. Requests about one share partition come one at a time from its leader, so repetition keeps their order.
Source: KIP-932, Kafka's PersisterStateManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.coordinator.internal_topics import SHARE_TOPIC
from kraft.broker.coordinator.share_state_messages import message_of, reply_of
from kraft.broker.serving.purgatory import Parked
from kraft.broker.shard.placement import partition_of
from kraft.broker.share_coordinator.requests import Request, StateReply, Ticket
from kraft.image.partitions import NO_LEADER
from kraft.wire import messages
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.serving.loop import Loop
    from kraft.image import MetadataImage

PERSIST_MS_MAX = 15_000
RETRY_MS_FIRST, RETRY_MS_MAX = 20, 1_000

MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which a request is repeated."""

SendRequest = Callable[[int, int, int, Any, Callable[[Any], None]], None]
"""Function that sends a request: (broker id, API key, version, request, callback). The callback gets the response, or
None if there is none."""


class SharePersister:
    """The requests of one broker to share coordinators. No method is a coroutine."""

    def __init__(
        self,
        node_id: int,
        loop: Loop,
        newest_image: Callable[[], MetadataImage],
        *,
        send: SendRequest,
        ask_here: Callable[[Request, Ticket], None],
        create_topic: Callable[[str], None],
    ) -> None:
        """`send` sends a request to another broker, `ask_here` is `ShareCoordinators.submit` of this broker, and
        `create_topic` creates an internal topic in the background."""
        self._node_id = node_id
        self._loop = loop
        self._newest_image = newest_image
        self._send = send
        self._ask_here = ask_here
        self._create_topic = create_topic

    def ask(self, request: Request, ticket: Ticket) -> None:
        """Call `ticket` with the reply, now or later."""
        self.try_once(PersisterCall(self, request, ticket, self._loop.clock.monotonic_ms() + PERSIST_MS_MAX))

    def try_once(self, call: PersisterCall) -> None:
        """Send a call to the coordinator in the newest image."""
        broker_id = self._coordinator_of(call.request)
        if broker_id == NO_LEADER:
            self._answered(call, call.request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif broker_id == self._node_id:
            self._ask_here(call.request, partial(self._answered, call))
        else:
            key, message = message_of(call.request)
            self._send(broker_id, key, messages.newest_version(key), message, partial(self._responded, call))

    def _coordinator_of(self, request: Request) -> int:
        topic = self._newest_image().topics.get(SHARE_TOPIC)
        if topic is None:
            self._create_topic(SHARE_TOPIC)
            return NO_LEADER
        return topic.partition(partition_of(request.key.coordinator_key, topic.partition_count)).leader

    def _responded(self, call: PersisterCall, response: Any) -> None:
        if response is None:
            self._answered(call, call.request.refused(ErrorCode.NETWORK_EXCEPTION))
        else:
            self._answered(call, reply_of(call.request, response))

    def _answered(self, call: PersisterCall, reply: StateReply) -> None:
        now_ms = self._loop.clock.monotonic_ms()
        if reply.error in MOVED and now_ms < call.deadline_ms:
            self._loop.deadlines.add(call, now_ms + min(RETRY_MS_FIRST << min(call.tries, 10), RETRY_MS_MAX))
            call.tries += 1
        else:
            call.ticket(reply)
            self._loop.request_pass()


class PersisterCall(Parked):
    """One request. While it waits for its next try, it is parked."""

    __slots__ = ("_persister", "deadline_ms", "request", "ticket", "tries")

    def __init__(self, persister: SharePersister, request: Request, ticket: Ticket, deadline_ms: int) -> None:
        self.bucket = -1
        self._persister = persister
        self.request = request
        self.ticket = ticket
        self.deadline_ms = deadline_ms
        self.tries = 0

    def expire(self) -> None:
        self._persister.try_once(self)
