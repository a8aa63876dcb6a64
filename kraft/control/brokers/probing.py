"""Fast failure detection: which brokers to suspect, which to probe, and which are proven dead. A pure state machine.

The controller probes a broker whose connection ended with Identify. Invariants:
- About a suspect, OTHER proves that this incarnation is gone. REFUSED and CLOSED prove it only together: two such
  results at least 50 ms apart, with no heartbeat of this broker epoch in between, and only if this address has answered
  SAME for this broker epoch before (K1). SILENT proves nothing: the session timeout stays in charge.
- A process that ends by an exception closes its connections while its listener still answers. So a suspect that answers
  SAME, or not at all, is asked again, less and less often, until it is connected again or fenced.
- A fence names broker id, broker epoch and connection number (K2). A connection that we closed starts no probe.
- Losses within 20 ms are fenced in one plan. At most 32 probes are under way, at most one per broker, and two probes of
  one broker start at least 50 ms apart (K5).
- Standby controllers fence no broker, but they probe: each asks an unfenced broker once, so that it knows its SAME when
  it becomes active, and again when the connection ends. A new active controller suspects every unfenced broker that is
  not connected to it after 100 ms. It does so at once if its own last probe, less than 1 s ago, gave a bad result. That
  result then counts as the first of two.
Source: docs/decisions/05-fast-fencing.md#brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from kraft.control.commands import FenceTarget
from kraft.image import Endpoint

RESULTS_APART_MS = 50
"""Two bad results prove a death only if they are at least this far apart; probes of a broker are never closer."""

LOOK_AGAIN_MS = 50
LOOK_AGAIN_MS_MAX = 1_000
"""A suspect that proved nothing is asked again after the first time, which doubles up to the second."""

GATHER_MS = 20
"""Losses within this time are fenced in one plan."""

CONNECT_GRACE_MS = 100
"""A new active controller gives brokers this long to connect before it suspects them."""

DOUBT_MS = 1_000
"""How long a bad result that a standby got stays of use when that becomes active."""

PROBES_UNDER_WAY_MAX = 32

PROBE_TIMEOUT_MS = 1_000
"""After this a probe is SILENT."""

FIRST_ANSWER_TRIES = 3
"""How often an unfenced broker's address is asked until it has answered SAME once."""

FIRST_ANSWER_RETRY_MS = 1_000

NEVER_HEARD = (-1, -1)
"""(broker epoch, connection number) of no heartbeat."""


class ProbeOutcome(Enum):
    """What an address told about the incarnation that registered it."""

    SAME = "it answered as this incarnation"
    OTHER = "another node, incarnation or cluster answered"
    REFUSED = "the connection was refused"
    CLOSED = "the connection was accepted and ended without an answer"
    SILENT = "no answer in time"


BAD_OUTCOMES = (ProbeOutcome.REFUSED, ProbeOutcome.CLOSED)


@dataclass(frozen=True, slots=True)
class BrokerKnown:
    """A committed registration: new, or changed."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    endpoint: Endpoint
    fenced: bool


@dataclass(frozen=True, slots=True)
class BrokerForgotten:
    """The registration is gone."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class HeartbeatHeard:
    """A heartbeat of this incarnation came on this connection."""

    broker_id: int
    broker_epoch: int
    connection_number: int


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """A broker's connection is over; `closed_by_us` if we ended it."""

    connection_number: int
    closed_by_us: bool


@dataclass(frozen=True, slots=True)
class BecameActive:
    """This node is the active controller now."""


@dataclass(frozen=True, slots=True)
class BecameStandby:
    """This node is no longer the active controller."""


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """A probe's outcome."""

    probe_id: int
    outcome: ProbeOutcome


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened but time."""


ProbeInput = (
    BrokerKnown
    | BrokerForgotten
    | HeartbeatHeard
    | ConnectionEnded
    | BecameActive
    | BecameStandby
    | ProbeAnswered
    | Tick
)


class Probe(NamedTuple):
    """Ask this address; report under this id. `incarnation_id` is whom SAME means."""

    probe_id: int
    broker_id: int
    incarnation_id: UUID
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeActions:
    """What to do now, in this order: start the probes; fence the targets in one plan; come back at `deadline_ms`."""

    probes: tuple[Probe, ...] = ()
    fence: tuple[FenceTarget, ...] = ()
    deadline_ms: int | None = None


@dataclass(slots=True)
class _Watch:
    """What is known of one broker incarnation."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    endpoint: Endpoint
    fenced: bool
    connection_number: int | None = None
    is_connected: bool = False
    answered_same: bool = False
    first_answer_tries: int = 0
    is_suspect: bool = False
    look_again_ms: int = LOOK_AGAIN_MS
    first_bad_result_ms: int | None = None
    doubted_ms: int | None = None
    proven_ms: int | None = None
    is_fence_sent: bool = False
    next_probe_ms: int | None = None
    last_probe_ms: int | None = None
    probe_id: int | None = None

    def trust(self) -> None:
        """It is alive: whatever was gathered against it is void."""
        self.is_suspect = False
        self.first_bad_result_ms = None
        self.doubted_ms = None
        self.proven_ms = None
        self.is_fence_sent = False


@dataclass(slots=True)
class Probing:
    """The machine. `step` takes one input and the time, and says what to do."""

    is_active: bool = False
    _watches: dict[int, _Watch] = field(default_factory=dict)
    _connections: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Open connections: number → (broker id, broker epoch), also for brokers that are not known yet."""
    _last_heard: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Broker id → (broker epoch, connection number) of the last heartbeat, also for brokers that are not known yet, and
    when the connection has ended since."""
    _probes: dict[int, int] = field(default_factory=dict)
    """Probe id → broker id."""
    _next_probe_id: int = 1

    def step(self, happened: ProbeInput, now_ms: int) -> ProbeActions:
        """Take in what happened at `now_ms`."""
        match happened:
            case BrokerKnown():
                self._broker_known(happened, now_ms)
            case BrokerForgotten(broker_id):
                self._watches.pop(broker_id, None)
                self._last_heard.pop(broker_id, None)
            case HeartbeatHeard():
                self._heartbeat_heard(happened)
            case ConnectionEnded():
                self._connection_ended(happened, now_ms)
            case BecameActive():
                self._became_active(now_ms)
            case BecameStandby():
                self.is_active = False
                for watch in self._watches.values():
                    watch.trust()
            case ProbeAnswered():
                self._probe_answered(happened, now_ms)
            case Tick():
                pass
        return self._actions(now_ms)

    def connection(self, broker_id: int) -> tuple[int, bool] | None:
        """The connection that this incarnation's heartbeats came on last, and whether it is up; None before the
        first."""
        watch = self._watches.get(broker_id)
        if watch is None or watch.connection_number is None:
            return None
        return watch.connection_number, watch.is_connected

    def _broker_known(self, known: BrokerKnown, now_ms: int) -> None:
        watch = self._watches.get(known.broker_id)
        if watch is None or watch.broker_epoch != known.broker_epoch:
            watch = self._watches[known.broker_id] = _Watch(
                known.broker_id, known.broker_epoch, known.incarnation_id, known.endpoint, True
            )
            broker_epoch, number = self._last_heard.get(known.broker_id, NEVER_HEARD)
            if broker_epoch == known.broker_epoch:
                watch.connection_number, watch.is_connected = number, number in self._connections
        if watch.endpoint != known.endpoint:
            watch.endpoint, watch.answered_same, watch.first_answer_tries = known.endpoint, False, 0
        if known.fenced:
            watch.trust()
            watch.next_probe_ms = None
        elif watch.fenced and not watch.answered_same:
            watch.first_answer_tries = 0
            watch.next_probe_ms = now_ms
        watch.fenced = known.fenced

    def _heartbeat_heard(self, heard: HeartbeatHeard) -> None:
        self._connections[heard.connection_number] = (heard.broker_id, heard.broker_epoch)
        if heard.broker_epoch >= self._last_heard.get(heard.broker_id, NEVER_HEARD)[0]:
            self._last_heard[heard.broker_id] = (heard.broker_epoch, heard.connection_number)
        watch = self._watches.get(heard.broker_id)
        if watch is not None and watch.broker_epoch == heard.broker_epoch:
            watch.connection_number, watch.is_connected = heard.connection_number, True
            watch.trust()
            if watch.answered_same:
                watch.next_probe_ms = None

    def _connection_ended(self, ended: ConnectionEnded, now_ms: int) -> None:
        broker = self._connections.pop(ended.connection_number, None)
        watch = None if broker is None else self._watches.get(broker[0])
        if watch is None or watch.connection_number != ended.connection_number:
            return
        watch.is_connected = False
        if not ended.closed_by_us and not watch.fenced:
            self._suspect(watch, now_ms)

    def _became_active(self, now_ms: int) -> None:
        self.is_active = True
        for watch in self._watches.values():
            if watch.fenced or watch.is_connected:
                continue
            if watch.doubted_ms is not None and now_ms - watch.doubted_ms <= DOUBT_MS:
                watch.next_probe_ms = now_ms
                if watch.first_bad_result_ms is not None:
                    watch.next_probe_ms = max(now_ms, watch.first_bad_result_ms + RESULTS_APART_MS)
            else:
                self._suspect(watch, now_ms + CONNECT_GRACE_MS)

    def _suspect(self, watch: _Watch, at_ms: int, look_again_ms: int = LOOK_AGAIN_MS) -> None:
        watch.trust()
        watch.is_suspect = True
        watch.look_again_ms = look_again_ms
        watch.next_probe_ms = at_ms

    def _look_again(self, watch: _Watch, now_ms: int) -> None:
        """Nothing is proven, and nothing is connected: its process may be about to end."""
        self._suspect(watch, now_ms + watch.look_again_ms, min(2 * watch.look_again_ms, LOOK_AGAIN_MS_MAX))

    def _probe_answered(self, answered: ProbeAnswered, now_ms: int) -> None:
        broker_id = self._probes.pop(answered.probe_id, None)
        watch = None if broker_id is None else self._watches.get(broker_id)
        if watch is None or watch.probe_id != answered.probe_id:
            return
        watch.probe_id = None
        outcome = answered.outcome
        if outcome is ProbeOutcome.SAME:
            watch.answered_same = True
            if watch.is_suspect:
                self._look_again(watch, now_ms)
            return
        if watch.is_suspect:
            self._judge(watch, outcome, now_ms)
        elif not watch.fenced and not watch.answered_same and watch.first_answer_tries < FIRST_ANSWER_TRIES:
            watch.next_probe_ms = now_ms + FIRST_ANSWER_RETRY_MS

    def _judge(self, watch: _Watch, outcome: ProbeOutcome, now_ms: int) -> None:
        """One more result about a suspect."""
        if outcome is ProbeOutcome.SILENT:
            self._look_again(watch, now_ms)
        elif outcome is not ProbeOutcome.OTHER and not watch.answered_same:
            watch.trust()
        elif not self.is_active:
            watch.doubted_ms = now_ms
            watch.first_bad_result_ms = None if outcome is ProbeOutcome.OTHER else now_ms
        elif outcome is ProbeOutcome.OTHER:
            watch.proven_ms = now_ms
        elif watch.first_bad_result_ms is None:
            watch.first_bad_result_ms = now_ms
            watch.next_probe_ms = now_ms + RESULTS_APART_MS
        elif now_ms - watch.first_bad_result_ms >= RESULTS_APART_MS:
            watch.proven_ms = now_ms
        else:
            watch.next_probe_ms = watch.first_bad_result_ms + RESULTS_APART_MS

    def _actions(self, now_ms: int) -> ProbeActions:
        probes = self._due_probes(now_ms)
        fence = self._due_fences(now_ms)
        return ProbeActions(probes=probes, fence=fence, deadline_ms=self._deadline(now_ms))

    def _due_probes(self, now_ms: int) -> tuple[Probe, ...]:
        """Probes to start: suspects before first questions."""
        due = [
            watch
            for _, watch in sorted(self._watches.items())
            if watch.next_probe_ms is not None and watch.probe_id is None and self._probe_time(watch) <= now_ms
        ]
        due.sort(key=lambda watch: not watch.is_suspect)
        started: list[Probe] = []
        for watch in due[: max(0, PROBES_UNDER_WAY_MAX - len(self._probes))]:
            watch.next_probe_ms = None
            watch.first_answer_tries += not watch.is_suspect
            watch.probe_id = self._next_probe_id
            watch.last_probe_ms = now_ms
            self._next_probe_id += 1
            self._probes[watch.probe_id] = watch.broker_id
            started.append(Probe(watch.probe_id, watch.broker_id, watch.incarnation_id, watch.endpoint))
        return tuple(started)

    def _probe_time(self, watch: _Watch) -> int:
        wanted = watch.next_probe_ms or 0
        if watch.last_probe_ms is None:
            return wanted
        return max(wanted, watch.last_probe_ms + RESULTS_APART_MS)

    def _due_fences(self, now_ms: int) -> tuple[FenceTarget, ...]:
        """All that is proven, as soon as nobody else is about to be, or the first proof is 20 ms old."""
        proven = [
            watch
            for _, watch in sorted(self._watches.items())
            if watch.proven_ms is not None and not watch.is_fence_sent
        ]
        if not self.is_active or not proven:
            return ()
        oldest = min(watch.proven_ms or 0 for watch in proven)
        others = any(watch.is_suspect and watch.proven_ms is None for watch in self._watches.values())
        if others and now_ms < oldest + GATHER_MS:
            return ()
        for watch in proven:
            watch.is_fence_sent = True
        return tuple(FenceTarget(watch.broker_id, watch.broker_epoch, watch.connection_number) for watch in proven)

    def _deadline(self, now_ms: int) -> int | None:
        times = [
            self._probe_time(watch)
            for watch in self._watches.values()
            if watch.next_probe_ms is not None and watch.probe_id is None
        ]
        if len(self._probes) >= PROBES_UNDER_WAY_MAX:
            times = []
        times += [
            watch.proven_ms + GATHER_MS
            for watch in self._watches.values()
            if watch.proven_ms is not None and not watch.is_fence_sent
        ]
        return max(now_ms, min(times)) if times else None
