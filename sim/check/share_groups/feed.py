"""Keeps the ledger of share partitions and the models of their leaders up to date, and turns the steps of leaders into
events. An event has the facts that checks judge, as they were when the step happened.

A record of the share coordinators is committed when a high watermark of any replica has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.broker.share_coordinator.records import NO_OFFSET, ShareKey
from kraft.sim.check.observations import BatchWritten, Observation, PartitionSeen, TopicPartition
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import ShadowLog, Shadows
from kraft.sim.check.share_groups import steps
from kraft.sim.check.share_groups.leaders import Holding, LedRecords
from kraft.sim.check.share_groups.ledger import RecordedDelivery, RecordedShare, ShareLedger, deliveries_in
from kraft.sim.check.share_groups.steps import ShareLeader

OPEN = "its transaction is open"


@dataclass(frozen=True, slots=True)
class ShareStateCommitted:
    """Event: a record of a share coordinator was committed. `before` and `after` are the states of its share
    partition."""

    key: ShareKey
    value: Any
    before: RecordedShare
    after: RecordedShare


@dataclass(frozen=True, slots=True)
class StateCompared:
    """Event: a leader has read the persisted state. `is_committed`: the share partition was in that state at some time
    since the leader began to read. For a leader that has been replaced and does not know it yet, at any time: the share
    coordinator that it asks may have been replaced as well."""

    leader: ShareLeader
    start_offset: int
    deliveries: Mapping[int, RecordedDelivery]
    is_committed: bool
    committed: RecordedShare


@dataclass(frozen=True, slots=True)
class RecordDelivered:
    """Event: a leader gives one record to a member.

    `held_by` is the member that held the record until then, "" if none did. `count_before` is the number of its
    deliveries before. `deliveries_max` is the highest limit of deliveries so far: a record stays available that was
    released before an administrator lowered the limit, in Kafka too. `complete` describes why the record must not be
    delivered any more, and `hidden` why the group may not read it; "" if it may. `is_accepted`: a client was told that
    its acknowledgement of the record is stored."""

    leader: ShareLeader
    member: str
    offset: int
    delivery_count: int
    count_before: int
    deliveries_max: int
    held_by: str
    complete: str
    hidden: str
    is_accepted: bool
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class WriteCompared:
    """Event: a leader sends a change of the state. `sent` are the deliveries in it, and `due` those that members, locks
    and sessions have caused. `unfinished` are offsets below the new start offset whose records are not finished.
    `start_before` is the start offset of the leader's last write that was confirmed."""

    leader: ShareLeader
    write: int
    start_before: int
    start_offset: int
    sent: Mapping[int, RecordedDelivery]
    due: Mapping[int, RecordedDelivery]
    unfinished: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteConfirmed:
    """Event: a share coordinator has confirmed a change. `newer` describes the newer epoch that was committed before
    the leader sent the change; "" if there was none."""

    leader: ShareLeader
    write: int
    newer: str


@dataclass(frozen=True, slots=True)
class AnswerCompared:
    """Event: a leader answers acknowledgements without an error. `missing` are the deliveries that they cause and that
    are not committed."""

    leader: ShareLeader
    member: str
    due: int
    missing: Mapping[int, RecordedDelivery]


@dataclass(frozen=True, slots=True)
class AcceptCompared:
    """Event: a client was told that its acknowledgements are stored. `missing` are the offsets of those that are
    not."""

    confirmed: steps.AcceptConfirmed
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DrainCompared:
    """Event: a group has had time to process everything. `left` are the offsets of the records that are not
    complete."""

    drained: steps.ShareGroupDrained
    start_offset: int
    left: tuple[int, ...]


@dataclass(slots=True)
class _Led:
    """A leader, from the begin of reading the state. `version` is the number of versions of the state at that time,
    `newer` the newer epoch that was committed before the leader's last write, `sent_start` the start offset of that
    write, and `ended` the last write that has ended, with its deliveries."""

    version: int
    records: LedRecords | None = None
    read: steps.StateRead | None = None
    newer: str = ""
    sent_start: int = 0
    ended: tuple[int, Mapping[int, RecordedDelivery]] | None = None


class ShareFeed:
    """Source of the events of share groups. `observe` returns those that follow from one observation."""

    def __init__(self, shadows: Shadows, partitions: PartitionLedgers) -> None:
        self.ledger = ShareLedger()
        self._shadows = shadows
        self._partitions = partitions
        self._upto: dict[TopicPartition, int] = {}
        """Partition of the topic of share states that has had records → the end of the records in the ledger."""
        self._leaders: dict[ShareLeader, _Led] = {}
        self._keys: dict[tuple[str, TopicPartition], ShareKey] = {}
        """(group, partition) → its share partition."""
        self._started: dict[ShareKey, int] = {}
        """Share partition → highest start offset of a leader. Acknowledgements below it have no effect. A leader moves
        it past acknowledged records when they are persisted."""
        self._limits: dict[ShareKey, int] = {}
        """Share partition → highest limit of deliveries so far."""
        self._accepted: dict[ShareKey, set[int]] = {}
        self._steps: dict[type, Callable[[Any], Iterator[Observation]]] = {
            steps.StateRequested: self._requested,
            steps.StateRead: self._read,
            steps.LeaderBegun: self._begun,
            steps.RecordsAcquired: self._acquired,
            steps.RecordsAcknowledged: self._acknowledged,
            steps.MemberReleased: self._released,
            steps.LocksExpired: self._expired,
            steps.LogStartSeen: self._log_started,
            steps.WriteSent: self._sent,
            steps.WriteEnded: self._ended,
            steps.AcknowledgementAnswered: self._answered,
            steps.LeaderClosed: self._closed,
            steps.AcceptConfirmed: self._confirmed,
            steps.ShareGroupDrained: self._drained,
        }

    def observe(self, seen: Observation) -> Iterator[Observation]:
        """Yield the events that follow from this observation."""
        if isinstance(seen, BatchWritten):
            if seen.log is not None and seen.share_entries:
                self._upto.setdefault(seen.log, 0)
        elif isinstance(seen, PartitionSeen):
            if self._upto:
                yield from self._partition_seen(seen)
        else:
            step = self._steps.get(type(seen))
            if step is not None:
                yield from step(seen)

    def _partition_seen(self, seen: PartitionSeen) -> Iterator[Observation]:
        log = seen.topic_partition
        begin = self._upto.get(log)
        if begin is None or seen.high_watermark <= begin or self._partitions.is_void(log):
            return
        self._upto[log] = seen.high_watermark
        for batch in self._shadows.log(seen.node, log).between(begin, seen.high_watermark):
            for key, value in batch.share_entries:
                before = self.ledger.state(key)
                yield ShareStateCommitted(key, value, before, self.ledger.add(key, value))

    # a leader reads the state

    def _requested(self, seen: steps.StateRequested) -> Iterator[Observation]:
        leader = seen.leader
        self._keys[leader.key.group, leader.log] = leader.key
        self._leaders[leader] = _Led(len(self.ledger.versions.get(leader.key, ())))
        yield from ()

    def _read(self, seen: steps.StateRead) -> Iterator[Observation]:
        leader, led = seen.leader, self._leaders.get(seen.leader)
        if led is None:
            return
        led.read = seen
        committed, deliveries = self.ledger.state(leader.key), deliveries_in(seen.batches)
        first = 0 if committed.leader_epoch > leader.leader_epoch else max(led.version - 1, 0)
        versions = self.ledger.versions.get(leader.key, [])[first:]
        found = (seen.state_epoch, seen.start_offset, deliveries)
        is_committed = any((one.state_epoch, one.start_offset, one.deliveries) == found for one in versions)
        yield StateCompared(leader, seen.start_offset, deliveries, is_committed, committed)

    def _begun(self, seen: steps.LeaderBegun) -> Iterator[Observation]:
        led = self._leaders[seen.leader]
        assert led.read is not None
        start = seen.start_offset if led.read.start_offset == NO_OFFSET else led.read.start_offset
        led.records = LedRecords(led.read.state_epoch, start)
        led.records.take_state(deliveries_in(led.read.batches))
        self._note_start(seen.leader.key, start)
        yield from ()

    def _closed(self, seen: steps.LeaderClosed) -> Iterator[Observation]:
        self._leaders.pop(seen.leader, None)
        yield from ()

    # a leader delivers records, and gets them back

    def _acquired(self, seen: steps.RecordsAcquired) -> Iterator[Observation]:
        leader, records = seen.leader, self._records(seen.leader)
        log, limit = self._shadows.log(leader.node, leader.log), self._limit(leader.key, seen.deliveries_max)
        for batch in seen.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                known = records.held.get(offset)
                before = records.counts.get(offset, 0) if known is None else known.delivery_count
                is_transactional, hidden = _visibility(log, offset, is_read_committed=seen.is_read_committed)
                yield RecordDelivered(
                    leader,
                    seen.member,
                    offset,
                    batch.delivery_count,
                    before,
                    limit,
                    "" if known is None else known.member,
                    self._complete(leader, records, offset),
                    hidden,
                    offset in self._accepted.get(leader.key, ()) and not self._is_superseded(leader, records),
                    is_transactional,
                )
                records.give(offset, Holding(seen.member, batch.delivery_count, seen.lock_until_ms))

    def _acknowledged(self, seen: steps.RecordsAcknowledged) -> Iterator[Observation]:
        self._limit(seen.leader.key, seen.deliveries_max)
        self._records(seen.leader).acknowledge(seen.items, seen.write, seen.lock_until_ms, seen.deliveries_max)
        yield from ()

    def _released(self, seen: steps.MemberReleased) -> Iterator[Observation]:
        self._limit(seen.leader.key, seen.deliveries_max)
        self._records(seen.leader).release(seen.member, seen.deliveries_max, seen.write)
        yield from ()

    def _expired(self, seen: steps.LocksExpired) -> Iterator[Observation]:
        self._limit(seen.leader.key, seen.deliveries_max)
        self._records(seen.leader).expire(seen.now_ms, seen.deliveries_max, seen.write)
        self._note_start(seen.leader.key, seen.start_offset)
        yield from ()

    def _log_started(self, seen: steps.LogStartSeen) -> Iterator[Observation]:
        self._records(seen.leader).drop_below(seen.log_start_offset)
        self._note_start(seen.leader.key, seen.log_start_offset)
        yield from ()

    # a leader persists changes

    def _sent(self, seen: steps.WriteSent) -> Iterator[Observation]:
        leader, led, records = seen.leader, self._leaders[seen.leader], self._records(seen.leader)
        log = self._shadows.log(leader.node, leader.log)
        sent, changes = deliveries_in(seen.batches), records.changes.get(seen.write, {})
        due = {offset: delivery for offset, delivery in changes.items() if offset >= seen.start_offset}
        if seen.write in records.repeated:
            due = records.due_again(seen.write, seen.start_offset, sent)
        unfinished = [
            offset
            for offset in records.unfinished_below(seen.start_offset, seen.write)
            if _visibility(log, offset, is_read_committed=seen.is_read_committed)[1] in ("", OPEN)
        ]
        self._note_start(leader.key, min((seen.start_offset, *records.completed_by(seen.write))))
        led.sent_start = seen.start_offset
        led.newer = self._newer_epoch(leader, records)
        before = records.start_offset
        yield WriteCompared(leader, seen.write, before, seen.start_offset, sent, due, tuple(unfinished))

    def _ended(self, seen: steps.WriteEnded) -> Iterator[Observation]:
        led, records = self._leaders[seen.leader], self._records(seen.leader)
        led.ended = (seen.write, records.changes.get(seen.write, {}))
        if seen.is_stored:
            yield WriteConfirmed(seen.leader, seen.write, led.newer)
            records.start_offset = max(records.start_offset, led.sent_start)
            self._note_start(seen.leader.key, led.sent_start)
        records.end_write(seen.write, is_stored=seen.is_stored)

    def _answered(self, seen: steps.AcknowledgementAnswered) -> Iterator[Observation]:
        led, records = self._leaders[seen.leader], self._records(seen.leader)
        state = self.ledger.state(seen.leader.key)
        is_ended = led.ended is not None and led.ended[0] == seen.write
        due = led.ended[1] if led.ended is not None and is_ended else records.changes.get(seen.write, {})
        missing = {offset: delivery for offset, delivery in due.items() if not state.has(offset, delivery)}
        if seen.write != steps.NO_WRITE and state.state_epoch <= records.state_epoch:
            yield AnswerCompared(seen.leader, seen.member, len(due), missing)

    # clients

    def _confirmed(self, seen: steps.AcceptConfirmed) -> Iterator[Observation]:
        key = self._keys.get((seen.group, seen.log))
        if key is None:
            yield AcceptCompared(seen, seen.offsets)
            return
        state, started = self.ledger.state(key), self._started.get(key, 0)
        missing = tuple(offset for offset in seen.offsets if offset >= started and not state.is_complete(offset))
        self._accepted.setdefault(key, set()).update(offset for offset in seen.offsets if state.is_complete(offset))
        yield AcceptCompared(seen, missing)

    def _drained(self, seen: steps.ShareGroupDrained) -> Iterator[Observation]:
        yield DrainCompared(seen, self.ledger.state(seen.key).start_offset, tuple(self.left_of(seen)))

    # facts

    def left_of(self, drained: steps.ShareGroupDrained) -> Iterator[int]:
        """Yield the offsets of the records that are not complete, and that the group may read."""
        state, log = self.ledger.state(drained.key), self._shadows.log(drained.node, drained.log)
        for offset in range(max(state.start_offset, 0), drained.end):
            if not state.is_complete(offset):
                _, hidden = _visibility(log, offset, is_read_committed=drained.is_read_committed)
                if hidden in ("", OPEN):
                    yield offset

    def _records(self, leader: ShareLeader) -> LedRecords:
        records = self._leaders[leader].records
        assert records is not None, "a leader begins before it takes other steps"
        return records

    def _limit(self, key: ShareKey, deliveries_max: int) -> int:
        """Note the present limit of deliveries. Return the highest one so far."""
        limit = self._limits[key] = max(self._limits.get(key, 0), deliveries_max)
        return limit

    def _note_start(self, key: ShareKey, start_offset: int) -> None:
        self._started[key] = max(self._started.get(key, 0), start_offset)

    def _newer_epoch(self, leader: ShareLeader, records: LedRecords) -> str:
        """Return the epoch of the committed state that is newer than the leader's; "" if there is none."""
        state = self.ledger.state(leader.key)
        if state.leader_epoch > leader.leader_epoch:
            return f"leader epoch {state.leader_epoch}"
        return f"state epoch {state.state_epoch}" if state.state_epoch > records.state_epoch else ""

    def _is_superseded(self, leader: ShareLeader, records: LedRecords) -> bool:
        """Return whether there is a newer leader or a newer state. An older leader that does not know it yet may
        deliver a record that was acknowledged since then; whatever it persists is rejected."""
        return bool(self._newer_epoch(leader, records))

    def _complete(self, leader: ShareLeader, records: LedRecords, offset: int) -> str:
        """Return why a record must not be delivered by this leader: the committed state has it as complete. A leader
        may deliver a record again whose completion it could not confirm."""
        state = self.ledger.state(leader.key)
        if not state.is_complete(offset) or offset in records.unknown or self._is_superseded(leader, records):
            return ""
        return f"start offset {state.start_offset}, delivery {state.deliveries.get(offset)}"


def _visibility(log: ShadowLog, offset: int, *, is_read_committed: bool) -> tuple[bool, str]:
    """Return whether the record at this offset belongs to a transaction, and why a group may not read it; "" if it
    may."""
    batch = log.holding(offset)
    if batch is None or batch.base_offset > offset:
        return False, "there is no record"
    if batch.marker is not None:
        return True, "it is a marker"
    producer = batch.producer
    if producer is None or not producer.is_transactional or not is_read_committed:
        return False, ""
    markers = (later.marker for later in log.batches if later.base_offset > offset and later.marker is not None)
    marker = next((one for one in markers if one.producer_id == producer.producer_id), None)
    if marker is None:
        return True, OPEN
    return True, "" if marker.is_commit else "its transaction was aborted"
