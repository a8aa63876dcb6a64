"""The volatile state of brokers on the active controller: when each last sent a heartbeat, and on which connection.

Invariants: the state is dropped when leadership is lost. A new active controller gives every unfenced broker a full
session timeout. A heartbeat counts when it arrives, even if commands are queued before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from uuid import UUID

from rpds import HashTrieMap

from kraft.control import BrokerSession, FenceTarget
from kraft.control.decision import ReportedLogEnd
from kraft.image import MetadataImage
from kraft.wire.rpc.controller_messages import LOG_ENDS_MAX, LogEndRow, LogEpochs


class Sessions:
    """The sessions of all brokers, by broker id. Times are ms of the monotonic clock."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, BrokerSession] = {}
        self._recently_fenced: dict[int, int] = {}
        self.view: Mapping[int, BrokerSession] = MappingProxyType(self._sessions)

    def clear(self) -> None:
        """Drop everything, because leadership is lost."""
        self._sessions.clear()
        self._recently_fenced.clear()

    def begin(self, image: MetadataImage, now_ms: int, connections: Mapping[int, tuple[int, bool]]) -> None:
        """Start all sessions when this node becomes the active controller. `connections`: broker id → (connection
        number, whether that connection is up)."""
        self.clear()
        for broker in image.sorted_brokers():
            if broker.fenced:
                self._recently_fenced[broker.broker_id] = now_ms + self._timeout_ms
                continue
            number, is_up = connections.get(broker.broker_id, (None, False))
            self._sessions[broker.broker_id] = BrokerSession(broker.broker_epoch, now_ms, number, is_up)

    def registered(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Start a session as soon as a registration is decided, before it is committed and answered. If another process
        registers with this id in between, the controller then recognises that a live broker has the id."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms)

    def record_heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        connection_number: int,
        now_ms: int,
        metadata_offset: int = -1,
        log_ends: Sequence[LogEndRow] = (),
        log_epochs: Sequence[LogEpochs] = (),
    ) -> None:
        """Renew the session on a registration or heartbeat of the current incarnation."""
        old = self._sessions.get(broker_id)
        if old is None or old.broker_epoch != broker_epoch:
            old = BrokerSession(broker_epoch, now_ms)
        self._sessions[broker_id] = old._replace(
            last_heard_ms=now_ms,
            connection_number=connection_number,
            is_connected=True,
            metadata_offset=max(old.metadata_offset, metadata_offset),
            log_ends=_merge_log_ends(old.log_ends, log_ends, log_epochs, now_ms),
        )

    def connection_ended(self, connection_number: int) -> None:
        """Record that a connection has ended."""
        for broker_id, session in self._sessions.items():
            if session.connection_number == connection_number:
                self._sessions[broker_id] = session._replace(is_connected=False)

    def shutdown_offset(self, broker_id: int, broker_epoch: int, offset: int | None) -> None:
        """Store the offset at which a controlled shutdown is complete in the log; None if no shutdown is in
        progress."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            self._sessions[broker_id] = session._replace(shutdown_offset=offset)

    def forget(self, broker_id: int) -> None:
        """Drop the session of a broker that is no longer registered."""
        self._sessions.pop(broker_id, None)
        self._recently_fenced.pop(broker_id, None)

    def fenced_fast(self, broker_id: int, now_ms: int) -> None:
        """Record that a broker was fenced before its session timeout. Until that timeout, no unclean election may
        choose another replica instead of waiting for this broker."""
        session = self._sessions.get(broker_id)
        heard_ms = now_ms if session is None else session.last_heard_ms
        self._recently_fenced[broker_id] = heard_ms + self._timeout_ms

    def unfenced(self, broker_id: int) -> None:
        """Record that a broker is unfenced again."""
        self._recently_fenced.pop(broker_id, None)

    @property
    def recently_fenced(self) -> frozenset[int]:
        """Fenced brokers whose session timeout has not passed yet."""
        return frozenset(self._recently_fenced)

    def end_recent_fences(self, now_ms: int) -> bool:
        """Forget fenced brokers whose session timeout has passed. Return whether there was one."""
        over = [broker_id for broker_id, until_ms in self._recently_fenced.items() if until_ms <= now_ms]
        for broker_id in over:
            del self._recently_fenced[broker_id]
        return bool(over)

    def expired(self, image: MetadataImage, now_ms: int) -> tuple[FenceTarget, ...]:
        """Return unfenced brokers that have sent no heartbeat for the session timeout."""
        targets: list[FenceTarget] = []
        for broker in image.sorted_brokers():
            if broker.fenced:
                continue
            session = self._sessions.get(broker.broker_id)
            if session is None or session.broker_epoch != broker.broker_epoch:
                self._sessions[broker.broker_id] = BrokerSession(broker.broker_epoch, now_ms)
            elif now_ms - session.last_heard_ms >= self._timeout_ms:
                targets.append(FenceTarget(broker.broker_id, broker.broker_epoch, session.connection_number))
        return tuple(targets)

    def next_deadline_ms(self, image: MetadataImage, being_fenced: frozenset[int] = frozenset()) -> int | None:
        """Return when the next session expires, or when the session timeout of the next recently fenced broker has
        passed. Brokers that a plan is already fencing do not count."""
        times = list(self._recently_fenced.values())
        for broker_id, broker in image.brokers.items():
            session = self._sessions.get(broker_id)
            if not broker.fenced and session is not None and broker_id not in being_fenced:
                times.append(session.last_heard_ms + self._timeout_ms)
        return min(times, default=None)


def _merge_log_ends(
    known: Mapping[tuple[UUID, int], ReportedLogEnd],
    rows: Sequence[LogEndRow],
    log_epochs: Sequence[LogEpochs],
    now_ms: int,
) -> Mapping[tuple[UUID, int], ReportedLogEnd]:
    """Merge the log ends that a broker reports into those that it reported before. A report of the maximum size may be
    one part of many, so earlier log ends stay; a smaller report replaces them. An unchanged log end keeps the time of
    its first report."""
    taken: HashTrieMap[tuple[UUID, int], ReportedLogEnd] = HashTrieMap()
    if len(rows) >= LOG_ENDS_MAX:
        taken = known if isinstance(known, HashTrieMap) else HashTrieMap(known)
    told = zip(rows, chain(log_epochs, repeat(())), strict=False)
    for (topic_id, partition_id, partition_epoch, last_epoch, log_end_offset), epochs in told:
        old = known.get((topic_id, partition_id))
        is_known = old is not None and old.partition_epoch == partition_epoch
        since_ms = old.since_ms if old is not None and is_known else now_ms
        end = ReportedLogEnd(partition_epoch, last_epoch, log_end_offset, since_ms, epochs)
        taken = taken.insert((topic_id, partition_id), end)
    return taken
