"""Fast failure detection: which brokers to suspect, which to probe, and which are proven dead. A pure state machine.

When a broker's connection ends, the controller probes the broker: it asks the process at the registered address which
incarnation it is (request Identify). `ProbeOutcome` lists the results. Invariants:
- For a suspect, OTHER proves that this incarnation is gone. REFUSED and CLOSED prove it only in pairs: two such results
  at least 50 ms apart, with no heartbeat of this broker epoch in between. This holds only if this address has answered
  SAME for this broker epoch before (K1). SILENT proves nothing: the session timeout decides.
- A process that ends by an exception closes its connections while its listener still answers. So a suspect that answers
  SAME, or not at all, is probed again at growing intervals, until it is connected again or fenced.
- A fence names broker id, broker epoch and connection number (K2). A connection that the controller itself closed
  starts no probe.
- Losses within 20 ms are fenced in one plan. At most 32 probes are in flight, at most one per broker, and two probes of
  one broker start at least 50 ms apart (K5).
- Standby controllers fence no broker, but they probe. Each probes an unfenced broker once, so that it has a SAME answer
  when it becomes active, and again when the connection ends.
- A new active controller suspects every unfenced broker that is not connected to it after 100 ms. It does so at once if
  its own last probe, less than 1 s ago, gave a bad result. That result then counts as the first of two.

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
"""Minimum milliseconds between two bad probe results that together prove a broker dead, and between two probes of one
broker."""

FIRST_REPROBE_MS = 50
REPROBE_MS_MAX = 1_000
"""Maximum milliseconds between two probes of a suspect that is not proven dead. The delay starts at FIRST_REPROBE_MS
and doubles."""

GATHER_MS = 20
"""Milliseconds during which brokers proven dead are collected, to be fenced in one plan."""

CONNECT_GRACE_MS = 100
"""Milliseconds that a new active controller gives brokers to connect before it suspects them."""

STANDBY_RESULT_MS_MAX = 1_000
"""Maximum age in ms of a bad probe result that a standby controller has seen, for it to count once the standby is
active."""

PROBES_UNDER_WAY_MAX = 32

PROBE_TIMEOUT_MS = 1_000
"""Milliseconds after which a probe without an answer counts as SILENT."""

FIRST_ANSWER_TRIES = 3
"""Maximum number of probes of an unfenced broker's address until it answers SAME for the first time."""

FIRST_ANSWER_RETRY_MS = 1_000

NO_HEARTBEAT = (-1, -1)
"""Value of (broker epoch, connection number) before the first heartbeat."""


class ProbeOutcome(Enum):
    """Result of probing the address that an incarnation registered."""

    SAME = "it answered as this incarnation"
    OTHER = "another node, incarnation or cluster answered"
    REFUSED = "the connection was refused"
    CLOSED = "the connection was accepted and ended without an answer"
    SILENT = "no answer in time"


@dataclass(frozen=True, slots=True)
class BrokerKnown:
    """Input: a new or changed registration of a broker was committed."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    endpoint: Endpoint
    fenced: bool


@dataclass(frozen=True, slots=True)
class BrokerForgotten:
    """Input: the registration of a broker was removed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """Input: a heartbeat of this broker epoch arrived on this connection."""

    broker_id: int
    broker_epoch: int
    connection_number: int


@dataclass(frozen=True, slots=True)
class BrokerConnectionEnded:
    """Input: a connection of a broker ended; `closed_by_us` if this controller closed it."""

    connection_number: int
    closed_by_us: bool


@dataclass(frozen=True, slots=True)
class BecameActive:
    """Input: this node became the active controller."""


@dataclass(frozen=True, slots=True)
class BecameStandby:
    """Input: this node is no longer the active controller."""


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """Input: a probe ended with this outcome."""

    probe_id: int
    outcome: ProbeOutcome


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Input: time has passed, and nothing else happened."""


ProbeInput = (
    BrokerKnown
    | BrokerForgotten
    | HeartbeatReceived
    | BrokerConnectionEnded
    | BecameActive
    | BecameStandby
    | ProbeAnswered
    | TimePassed
)


class Probe(NamedTuple):
    """A probe to send to this address. The answer counts as SAME if it comes from the incarnation `incarnation_id`."""

    probe_id: int
    broker_id: int
    incarnation_id: UUID
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeActions:
    """Actions that the controller must take, in this order: start the probes, fence the targets in one plan, and call
    again at `deadline_ms`."""

    probes: tuple[Probe, ...] = ()
    fence: tuple[FenceTarget, ...] = ()
    deadline_ms: int | None = None


@dataclass(slots=True)
class _Watch:
    """The failure detector's state of one broker incarnation."""

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
    reprobe_ms: int = FIRST_REPROBE_MS
    first_bad_result_ms: int | None = None
    bad_result_on_standby_ms: int | None = None
    proven_ms: int | None = None
    is_fence_sent: bool = False
    next_probe_ms: int | None = None
    last_probe_ms: int | None = None
    probe_id: int | None = None

    def clear_suspicion(self) -> None:
        """Clear all results against the broker, because it is alive."""
        self.is_suspect = False
        self.first_bad_result_ms = None
        self.bad_result_on_standby_ms = None
        self.proven_ms = None
        self.is_fence_sent = False


@dataclass(slots=True)
class Probing:
    """The failure detector. `step` takes one input and the time, and returns the actions."""

    is_active: bool = False
    _watches: dict[int, _Watch] = field(default_factory=dict)
    _connections: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Open connections: number → (broker id, broker epoch), also for brokers that are not registered yet."""
    _last_heartbeat: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Broker id → (broker epoch, connection number) of the last heartbeat. An entry exists also for brokers that are
    not registered yet, and stays when the connection ends."""
    _probes: dict[int, int] = field(default_factory=dict)
    """Probe id → broker id."""
    _next_probe_id: int = 1

    def step(self, happened: ProbeInput, now_ms: int) -> ProbeActions:
        """Handle one input at `now_ms`; return the resulting actions."""
        match happened:
            case BrokerKnown():
                self._broker_known(happened, now_ms)
            case BrokerForgotten(broker_id):
                self._watches.pop(broker_id, None)
                self._last_heartbeat.pop(broker_id, None)
            case HeartbeatReceived():
                self._heartbeat_received(happened)
            case BrokerConnectionEnded():
                self._connection_ended(happened, now_ms)
            case BecameActive():
                self._became_active(now_ms)
            case BecameStandby():
                self.is_active = False
                for watch in self._watches.values():
                    watch.clear_suspicion()
            case ProbeAnswered():
                self._probe_answered(happened, now_ms)
            case TimePassed():
                pass
        return self._actions(now_ms)

    def connection(self, broker_id: int) -> tuple[int, bool] | None:
        """Return the connection of this incarnation's last heartbeat, and whether it is up; None before the first
        heartbeat."""
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
            broker_epoch, number = self._last_heartbeat.get(known.broker_id, NO_HEARTBEAT)
            if broker_epoch == known.broker_epoch:
                watch.connection_number, watch.is_connected = number, number in self._connections
        if watch.endpoint != known.endpoint:
            watch.endpoint, watch.answered_same, watch.first_answer_tries = known.endpoint, False, 0
        if known.fenced:
            watch.clear_suspicion()
            watch.next_probe_ms = None
        elif watch.fenced and not watch.answered_same:
            watch.first_answer_tries = 0
            watch.next_probe_ms = now_ms
        watch.fenced = known.fenced

    def _heartbeat_received(self, heard: HeartbeatReceived) -> None:
        self._connections[heard.connection_number] = (heard.broker_id, heard.broker_epoch)
        if heard.broker_epoch >= self._last_heartbeat.get(heard.broker_id, NO_HEARTBEAT)[0]:
            self._last_heartbeat[heard.broker_id] = (heard.broker_epoch, heard.connection_number)
        watch = self._watches.get(heard.broker_id)
        if watch is not None and watch.broker_epoch == heard.broker_epoch:
            watch.connection_number, watch.is_connected = heard.connection_number, True
            watch.clear_suspicion()
            if watch.answered_same:
                watch.next_probe_ms = None

    def _connection_ended(self, ended: BrokerConnectionEnded, now_ms: int) -> None:
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
            if (
                watch.bad_result_on_standby_ms is not None
                and now_ms - watch.bad_result_on_standby_ms <= STANDBY_RESULT_MS_MAX
            ):
                watch.next_probe_ms = now_ms
                if watch.first_bad_result_ms is not None:
                    watch.next_probe_ms = max(now_ms, watch.first_bad_result_ms + RESULTS_APART_MS)
            else:
                self._suspect(watch, now_ms + CONNECT_GRACE_MS)

    def _suspect(self, watch: _Watch, at_ms: int, reprobe_ms: int = FIRST_REPROBE_MS) -> None:
        watch.clear_suspicion()
        watch.is_suspect = True
        watch.reprobe_ms = reprobe_ms
        watch.next_probe_ms = at_ms

    def _schedule_next_probe(self, watch: _Watch, now_ms: int) -> None:
        """Schedule another probe of a suspect: nothing is proven and no connection is up, but its process may be about
        to end."""
        self._suspect(watch, now_ms + watch.reprobe_ms, min(2 * watch.reprobe_ms, REPROBE_MS_MAX))

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
                self._schedule_next_probe(watch, now_ms)
            return
        if watch.is_suspect:
            self._judge(watch, outcome, now_ms)
        elif not watch.fenced and not watch.answered_same and watch.first_answer_tries < FIRST_ANSWER_TRIES:
            watch.next_probe_ms = now_ms + FIRST_ANSWER_RETRY_MS

    def _judge(self, watch: _Watch, outcome: ProbeOutcome, now_ms: int) -> None:
        """Evaluate one more probe result of a suspect."""
        if outcome is ProbeOutcome.SILENT:
            self._schedule_next_probe(watch, now_ms)
        elif outcome is not ProbeOutcome.OTHER and not watch.answered_same:
            watch.clear_suspicion()
        elif not self.is_active:
            watch.bad_result_on_standby_ms = now_ms
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
        """Return the probes to start: of suspects first, then of brokers that have not answered yet."""
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
        """Return all brokers proven dead, as soon as every suspect is proven dead or the oldest proof is 20 ms old;
        until then, none."""
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
