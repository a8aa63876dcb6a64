"""The inputs of a decision beside the image (`Context`), and its result (`Decision`).

Invariants: a decision mutates nothing and depends only on its arguments. A reply, with or without events, may be sent
only when the high watermark has reached both `depends_on` and the decision's own events (M9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kraft.config import NodeConfig
from kraft.image.events import Event

PARTITION_CHANGES_PER_SLICE_MAX = 1_000
"""Maximum partition changes in one slice of a plan, so that no slice blocks the loop for long. Other commands run
between two slices."""

PARTITIONS_PER_SLICE_MAX = 1_000
"""Maximum number of partitions that one slice of an election checks, changed or not."""

LEAVES_PER_SLICE_MAX = 80
"""Maximum number of leaves (blocks of 256 partitions) that one slice of any plan searches for affected partitions:
20,000 partitions."""

FENCE_CHANGES_PER_SLICE_MAX = 500
"""Maximum changes in one slice of a fence. It is smaller because every node replays the slice while clients wait for
new leaders."""

EVENTS_PER_SLICE = 1_000
"""Approximate number of events in one slice of a client's request that is answered part by part."""

EVENTS_PER_COMMAND_MAX = 10_000
"""Maximum number of events that a client's request may need. A request that needs more is rejected with
POLICY_VIOLATION, as in Kafka."""
TOO_LARGE = (
    "Unable to perform excessively large batch operation. It needs more than "
    f"{EVENTS_PER_COMMAND_MAX} metadata events; ask for less at once."
)


class ReportedLogEnd(NamedTuple):
    """The log end that a broker has reported for its replica of a partition, as of `partition_epoch`.

    `last_epoch` is the newest leader epoch in the log (-1: none). `since_ms` is when this end was first reported.
    `epochs` are the newest (leader epoch, start offset) of the log, oldest first; empty for a broker of an older
    release."""

    partition_epoch: int
    last_epoch: int
    log_end_offset: int
    since_ms: int
    epochs: tuple[tuple[int, int], ...] = ()


_NO_LOG_ENDS: Mapping[tuple[UUID, int], ReportedLogEnd] = MappingProxyType({})


class BrokerSession(NamedTuple):
    """The active controller's volatile state of one broker incarnation, which is lost with leadership.

    `connection_number` is the connection of its last heartbeat, and `is_connected` tells whether that connection is up.
    `metadata_offset` is the end offset of the newest image that it has applied. `shutdown_offset` is where its
    controlled shutdown was complete in the log; SHUTDOWN_UNDER_WAY until then. `log_ends` are by topic id and
    partition, for partitions without ISR and ELR."""

    broker_epoch: int
    last_heard_ms: int
    connection_number: int | None = None
    is_connected: bool = False
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    log_ends: Mapping[tuple[UUID, int], ReportedLogEnd] = _NO_LOG_ENDS


@dataclass(frozen=True, slots=True)
class Requester:
    """The requester: principal and address of the session; a broker that forwards a request passes them on."""

    principal: str = "User:ANONYMOUS"
    client_address: str = ""
    client_id: str = ""


ANONYMOUS = Requester()

Authorize = Callable[[Requester, str, str, str], bool]
"""(requester, operation, resource type, resource name) -> allowed. Names are Kafka's: DESCRIBE_CONFIGS, TOPIC."""


def allow_all(_requester: Requester, _operation: str, _resource_type: str, _name: str) -> bool:
    """Allow everything."""
    return True


SHUTDOWN_UNDER_WAY = (1 << 63) - 1
"""Value of `shutdown_offset` while the plan that moves leadership away from the stopping broker is not complete: an
offset above all others."""


_NO_SESSIONS: Mapping[int, BrokerSession] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The circumstances of a decision.

    `next_offset` is the offset that the first event will get. `sessions` are by broker id. `being_fenced` are brokers
    with a fencing, re-registration or controlled shutdown in progress: they are not eligible for anything.
    `directories_going_offline` are offline log directories that a plan is handling: their replicas are not eligible
    either. `recently_fenced` are brokers that were fenced before their session timeout, and whose session timeout has
    not passed: no unclean election may pass them over (K3)."""

    now_ms: int
    next_offset: int
    seed: int
    config: NodeConfig
    cluster_id: str
    sessions: Mapping[int, BrokerSession] = field(default_factory=lambda: _NO_SESSIONS)
    being_fenced: frozenset[int] = frozenset()
    directories_going_offline: frozenset[UUID] = frozenset()
    recently_fenced: frozenset[int] = frozenset()
    authorize: Authorize = allow_all

    @property
    def session_timeout_ms(self) -> int:
        return self.config.integer("broker.session.timeout.ms")

    def is_connected(self, broker_id: int) -> bool:
        """Return whether the connection of this broker's heartbeats is up."""
        session = self.sessions.get(broker_id)
        return session is not None and session.is_connected

    def is_session_live(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether this incarnation sent a heartbeat within the session timeout."""
        session = self.sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == broker_epoch
            and self.now_ms - session.last_heard_ms < self.session_timeout_ms
        )


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Effect of a decision that does not complete its command: `command` is to be decided next, on the newest image.
    Other commands may run in between, and the reply belongs to the last command of the chain.

    `at_once`: no other command may run in between, because the result takes effect as a whole; the decision then has no
    events. `is_answered`: the reply belongs to this decision, and the remaining slices have no requester."""

    command: Any
    at_once: bool = False
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class ShutdownOffset:
    """Effect of a decision: store the offset at which this broker's controlled shutdown was complete in the log, or
    that it is in progress."""

    broker_id: int
    broker_epoch: int
    offset: int


Effect = FollowUp | ShutdownOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of a decision, to be carried out in this order: append `events` as one atomic batch, replay them, and
    run `effects`. Send `reply` when the high watermark has reached the end of the batch and `depends_on`, the end
    offset of the image that was read."""

    events: tuple[Event, ...] = ()
    reply: Any = None
    depends_on: int = 0
    effects: tuple[Effect, ...] = ()

    @property
    def follow_up(self) -> Any:
        """The command to decide next, or None."""
        return next((effect.command for effect in self.effects if isinstance(effect, FollowUp)), None)
