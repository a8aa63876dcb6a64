"""Keeps the ledger of share partitions and the models of their leaders up to date, and turns the steps of leaders into
events. An event has the facts that checks judge, as they were when the step happened.

A record of the share coordinators is committed when a high watermark of any replica has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.broker.share_coordinator.records import NO_COUNT, NO_OFFSET, ShareKey
from kraft.broker.share_partition.states import AcknowledgeType, RecordState
from kraft.sim.check.observations import BatchWritten, Observation, PartitionSeen, TopicPartition
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import ShadowLog, Shadows
from kraft.sim.check.share_groups import steps
from kraft.sim.check.share_groups.events import (
    AcceptCompared,
    AnswerCompared,
    DrainCompared,
    OffsetChangeCompared,
    PositionCompared,
    RecordDelivered,
    ShareStateCommitted,
    StateCompared,
    WriteCompared,
    WriteConfirmed,
)
from kraft.sim.check.share_groups.leaders import Holding, LedRecords
from kraft.sim.check.share_groups.ledger import RecordedDelivery, RecordedShare, ShareLedger, deliveries_in
from kraft.sim.check.share_groups.steps import ShareLeader

OPEN = "its transaction is open"


@dataclass(slots=True)
class _Led:
    """A leader, from the begin of reading the state. `version` is the number of versions of the state at that time,
    `begin` the number of the begin of the state that it has read, `newer` the newer epoch that was committed before the
    leader's last write, `sent_start` the start offset of that write, and `ended` the last write that has ended, with
    its deliveries."""

    version: int
    begin: int = 0
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
        self._answered_accepts: dict[ShareKey, set[int]] = {}
        """Share partition → offsets whose acceptance a leader has answered, and no client has confirmed yet."""
        self._late: dict[ShareKey, set[int]] = {}
        """Share partition → those of them that were answered before the state began again. A client may confirm each of
        them once although the new state does not have it."""
        self._positions: dict[tuple[ShareKey, int], list[tuple[int, int]]] = {}
        """(share partition, begin of its state) → the positions that leaders have sent, from the one on that was
        committed last."""
        self._moved: dict[TopicPartition, list[tuple[ShareKey, RecordedShare, RecordedShare]]] = {}
        """Partition of the topic of share states → changes of positions that were committed last, with the states
        before and after. A commit may be observed before the steps of the same pass, so it is judged at the next
        one."""
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
            steps.OffsetsChanged: self._changed,
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
        yield from self._judge_moved(log)
        for batch in self._shadows.log(seen.node, log).between(begin, seen.high_watermark):
            for key, value in batch.share_entries:
                before = self.ledger.state(key)
                after = self.ledger.add(key, value)
                yield ShareStateCommitted(key, value, before, after)
                if after.begin != before.begin:
                    self._begin_again(key)
                elif after.position != before.position:
                    self._moved.setdefault(log, []).append((key, before, after))

    def _judge_moved(self, log: TopicPartition) -> Iterator[Observation]:
        """Compare changes of positions with what leaders have sent."""
        for key, before, after in self._moved.pop(log, ()):
            sent = self._positions.get((key, after.begin), [])
            is_sent = after.position in sent
            yield PositionCompared(key, before, after, is_sent)
            if is_sent:
                del sent[: sent.index(after.position)]

    def _begin_again(self, key: ShareKey) -> None:
        """Forget what leaders and clients have done before the state of this share partition began."""
        self._started.pop(key, None)
        self._accepted.pop(key, None)
        self._late.setdefault(key, set()).update(self._answered_accepts.pop(key, ()))

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
        same = [
            one
            for one in versions
            if (one.state_epoch, one.start_offset, one.deliveries) == found
            and seen.complete_count in (NO_COUNT, one.complete_count)
        ]
        led.begin = same[-1].begin if same else committed.begin
        yield StateCompared(leader, seen.start_offset, seen.complete_count, deliveries, bool(same), committed)

    def _begun(self, seen: steps.LeaderBegun) -> Iterator[Observation]:
        led = self._leaders[seen.leader]
        assert led.read is not None
        start = seen.start_offset if led.read.start_offset == NO_OFFSET else led.read.start_offset
        led.records = LedRecords(led.begin, start)
        led.records.take_state(deliveries_in(led.read.batches))
        self._note_start(seen.leader, start)
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
        records = self._records(seen.leader)
        ignored = (
            offset
            for item in seen.items
            if item.type is AcknowledgeType.ACCEPT
            for offset in range(item.first, item.end)
            if offset not in records.held
        )
        self._note_answered(seen.leader, ignored)
        records.acknowledge(seen.items, seen.write, seen.lock_until_ms, seen.deliveries_max)
        yield from ()

    def _released(self, seen: steps.MemberReleased) -> Iterator[Observation]:
        self._limit(seen.leader.key, seen.deliveries_max)
        self._records(seen.leader).release(seen.member, seen.deliveries_max, seen.write)
        yield from ()

    def _expired(self, seen: steps.LocksExpired) -> Iterator[Observation]:
        self._limit(seen.leader.key, seen.deliveries_max)
        self._records(seen.leader).expire(seen.now_ms, seen.deliveries_max, seen.write)
        self._note_start(seen.leader, seen.start_offset)
        yield from ()

    def _log_started(self, seen: steps.LogStartSeen) -> Iterator[Observation]:
        self._records(seen.leader).drop_below(seen.log_start_offset)
        self._note_start(seen.leader, seen.log_start_offset)
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
        self._note_start(leader, min((seen.start_offset, *records.completed_by(seen.write))))
        led.sent_start = seen.start_offset
        led.newer = self._newer_epoch(leader, records)
        self._positions.setdefault((leader.key, records.begin), []).append((seen.start_offset, seen.complete_count))
        before, counts = (records.start_offset, seen.start_offset, seen.complete_count), self._counts_due(seen)
        yield WriteCompared(leader, seen.write, *before, counts, sent, due, tuple(unfinished))

    def _counts_due(self, seen: steps.WriteSent) -> tuple[int, int]:
        """Return the least and the greatest number of complete records that a leader may send. A leader reads the log
        in order, so it counts each offset without a readable record that is below a record which it has delivered."""
        records, log = self._records(seen.leader), self._shadows.log(seen.leader.node, seen.leader.log)

        def gaps(first: int, end: int) -> int:
            """Return the number of offsets without a readable record."""
            return sum(
                _visibility(log, offset, is_read_committed=seen.is_read_committed)[1] not in ("", OPEN)
                for offset in range(first, end)
                if not records.is_known(offset)
            )

        least = records.complete_from(seen.start_offset, seen.write) + gaps(seen.start_offset, records.delivered_end)
        if seen.complete_count <= least:
            return least, least
        return least, least + gaps(max(seen.start_offset, records.delivered_end), log.end_offset)

    def _ended(self, seen: steps.WriteEnded) -> Iterator[Observation]:
        led, records = self._leaders[seen.leader], self._records(seen.leader)
        led.ended = (seen.write, records.changes.get(seen.write, {}))
        if seen.is_stored:
            yield WriteConfirmed(seen.leader, seen.write, led.newer)
            records.start_offset = max(records.start_offset, led.sent_start)
            self._note_start(seen.leader, led.sent_start)
        records.end_write(seen.write, is_stored=seen.is_stored)

    def _answered(self, seen: steps.AcknowledgementAnswered) -> Iterator[Observation]:
        led, records = self._leaders[seen.leader], self._records(seen.leader)
        state = self.ledger.last_of(seen.leader.key, records.begin)
        is_ended = led.ended is not None and led.ended[0] == seen.write
        due = led.ended[1] if led.ended is not None and is_ended else records.changes.get(seen.write, {})
        missing = {offset: delivery for offset, delivery in due.items() if not state.has(offset, delivery)}
        self._note_answered(seen.leader, (offset for offset, one in due.items() if one[1] == RecordState.ACKNOWLEDGED))
        if seen.write != steps.NO_WRITE:
            yield AnswerCompared(seen.leader, seen.member, len(due), missing)

    def _note_answered(self, leader: ShareLeader, offsets: Iterable[int]) -> None:
        """Note accepted records that a client will confirm. A leader that does not know yet that the state has begun
        again answers too late for the new state."""
        is_late = self._records(leader).begin < self.ledger.state(leader.key).begin
        (self._late if is_late else self._answered_accepts).setdefault(leader.key, set()).update(offsets)

    # clients

    def _confirmed(self, seen: steps.AcceptConfirmed) -> Iterator[Observation]:
        key = self._keys.get((seen.group, seen.log))
        if key is None:
            yield AcceptCompared(seen, seen.offsets)
            return
        state, started = self.ledger.state(key), self._started.get(key, 0)
        absent = {offset for offset in seen.offsets if offset >= started and not state.is_complete(offset)}
        missing = tuple(sorted(absent - self._late.get(key, set())))
        self._late.get(key, set()).difference_update(seen.offsets)
        self._answered_accepts.get(key, set()).difference_update(seen.offsets)
        self._accepted.setdefault(key, set()).update(offset for offset in seen.offsets if state.is_complete(offset))
        yield AcceptCompared(seen, missing)

    def _changed(self, seen: steps.OffsetsChanged) -> Iterator[Observation]:
        if seen.start_offset == NO_OFFSET:
            is_committed = self.ledger.state(seen.key).begin > seen.begin_before
        else:
            position = (seen.start_offset, 0)
            versions = self.ledger.versions.get(seen.key, ())
            begun = (one for one in versions if one.begin > seen.begin_before)
            is_committed = any(one.position == position and not one.deliveries for one in begun)
        yield OffsetChangeCompared(seen, is_committed)

    def _drained(self, seen: steps.ShareGroupDrained) -> Iterator[Observation]:
        for log in list(self._moved):
            yield from self._judge_moved(log)
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

    def _note_start(self, leader: ShareLeader, start_offset: int) -> None:
        """Note a start offset of a leader whose state has not begun again."""
        if self._leaders[leader].begin == self.ledger.state(leader.key).begin:
            self._started[leader.key] = max(self._started.get(leader.key, 0), start_offset)

    def _newer_epoch(self, leader: ShareLeader, records: LedRecords) -> str:
        """Return the epoch of the committed state that is newer than the leader's; "" if there is none."""
        state = self.ledger.state(leader.key)
        if state.leader_epoch > leader.leader_epoch:
            return f"leader epoch {state.leader_epoch}"
        return f"begin {state.begin}, state epoch {state.state_epoch}" if state.begin > records.begin else ""

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
