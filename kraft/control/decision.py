"""What a decision reads beside the image (`Context`), and what it gives (`Decision`).

Invariants: a decision mutates nothing; it depends on its arguments alone. A reply, with or without events, may leave
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
"""A plan is cut so that no slice holds the loop for long: other commands come between two slices."""

LOOKS_PER_SLICE_MAX = 1_000
"""Elections are cut too after so many partitions that may be concerned, whether they change or not."""

LEAVES_PER_SLICE_MAX = 80
"""And any plan after so many leaves of partitions, of which it looks whether they are concerned at all: 20,000."""

FENCE_CHANGES_PER_SLICE_MAX = 500
"""The slices of a fence are shorter: every node replays them while clients wait for new leaders."""

EVENTS_PER_SLICE = 1_000
"""A client's request that is answered part by part is decided in slices of about so many events."""

EVENTS_PER_COMMAND_MAX = 10_000
"""A client's request that needs more events than this is refused with POLICY_VIOLATION, as in Kafka."""
TOO_LARGE = (
    "Unable to perform excessively large batch operation. It needs more than "
    f"{EVENTS_PER_COMMAND_MAX} metadata events; ask for less at once."
)


class ToldLogEnd(NamedTuple):
    """How far a broker's log of a partition reaches, as of `partition_epoch`. `last_epoch` is the newest leader epoch
    that the log knows (-1: none); `since_ms` is when it was told first; `epochs` are the newest (leader epoch, start
    offset) of the log, oldest first, none from a broker of an older release."""

    partition_epoch: int
    last_epoch: int
    log_end_offset: int
    since_ms: int
    epochs: tuple[tuple[int, int], ...] = ()


_NO_LOG_ENDS: Mapping[tuple[UUID, int], ToldLogEnd] = MappingProxyType({})


class BrokerSession(NamedTuple):
    """What the active controller knows of one broker incarnation beside the log; lost with leadership.

    `connection_number` is the connection that its heartbeats came on last, and `is_connected` says whether that is
    still up. `metadata_offset` is that of the newest image whose roles it has taken, exclusive. `shutdown_offset` is
    where its controlled shutdown was complete in the log; SHUTDOWN_UNDER_WAY until then. `log_ends` are by topic id and
    partition, of those without ISR and ELR.
    """

    broker_epoch: int
    last_heard_ms: int
    connection_number: int | None = None
    is_connected: bool = False
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    log_ends: Mapping[tuple[UUID, int], ToldLogEnd] = _NO_LOG_ENDS


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks: the session's principal and address, as the broker that forwards tells them."""

    principal: str = "User:ANONYMOUS"
    client_address: str = ""
    client_id: str = ""


ANONYMOUS = Requester()

Authorize = Callable[[Requester, str, str, str], bool]
"""(requester, operation, resource type, resource name) -> allowed. Names are Kafka's: DESCRIBE_CONFIGS, TOPIC."""


def allow_all(_requester: Requester, _operation: str, _resource_type: str, _name: str) -> bool:
    """The first implementation of the gate: everything is allowed."""
    return True


SHUTDOWN_UNDER_WAY = (1 << 63) - 1
"""Above every offset: the plan that moves leadership away from a broker that shuts down is not complete."""


_NO_SESSIONS: Mapping[int, BrokerSession] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The moment of the decision.

    `next_offset` is the offset that the first event will get. `sessions` are by broker id. `being_fenced` are brokers
    whose fencing, re-registration or controlled shutdown is under way: they are not eligible for anything. `being_lost`
    are log directories that went offline, whose loss is under way: nor are the replicas in those.
    `recently_fenced` are brokers that were fenced before their session time-out and whose session time-out has not
    passed: no unclean election may go past them (K3).
    """

    now_ms: int
    next_offset: int
    seed: int
    config: NodeConfig
    cluster_id: str
    sessions: Mapping[int, BrokerSession] = field(default_factory=lambda: _NO_SESSIONS)
    being_fenced: frozenset[int] = frozenset()
    being_lost: frozenset[UUID] = frozenset()
    recently_fenced: frozenset[int] = frozenset()
    authorize: Authorize = allow_all

    @property
    def session_timeout_ms(self) -> int:
        return self.config.integer("broker.session.timeout.ms")

    def is_connected(self, broker_id: int) -> bool:
        """Whether the connection that this broker's heartbeats come on is up."""
        session = self.sessions.get(broker_id)
        return session is not None and session.is_connected

    def is_session_live(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this incarnation was heard within the session time-out."""
        session = self.sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == broker_epoch
            and self.now_ms - session.last_heard_ms < self.session_timeout_ms
        )


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The command is not done: decide this one next, on the newest image, with other commands in between. The reply
    belongs to the last of the chain. `at_once`: with no other command in between, for what is decided in steps and
    takes effect as a whole; the decision then has no events. `is_answered`: the reply belongs to this decision, and
    nobody waits for the rest."""

    command: Any
    at_once: bool = False
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class ShutdownOffset:
    """Remember where this broker's controlled shutdown was complete in the log, or that it is under way."""

    broker_id: int
    broker_epoch: int
    offset: int


Effect = FollowUp | ShutdownOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Do in this order: append `events` as one atomic batch; replay them; run `effects`; send `reply` when the high
    watermark has reached `depends_on` (the end offset of the image that was read) and the batch's end."""

    events: tuple[Event, ...] = ()
    reply: Any = None
    depends_on: int = 0
    effects: tuple[Effect, ...] = ()

    @property
    def follow_up(self) -> Any:
        """The command to decide next, or None."""
        return next((effect.command for effect in self.effects if isinstance(effect, FollowUp)), None)
