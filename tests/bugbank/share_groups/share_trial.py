"""ShareTrial: the state machines of a share partition, its share coordinator and its sessions, without nodes, judged by
the checks of the simulator.

A trial plays the drivers, the log and the members. It writes the steps of the leaders and the committed records to the
same checks that judge whole runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from kraft.broker.share_coordinator.records import NO_OFFSET, ShareStateEntry
from kraft.broker.share_coordinator.requests import StateReply, WriteStateRequest
from kraft.broker.share_partition import log_ranges
from kraft.broker.share_partition.log_ranges import FetchedBatch
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import AcknowledgementBatch, ShareLimits, StateWrite
from kraft.sim.check.base import Checks
from kraft.sim.check.observations import (
    BatchWritten,
    LoggedShareEntry,
    Observation,
    PartitionSeen,
    ProducedBy,
    TransactionMarker,
)
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import Shadows
from kraft.sim.check.share_groups import steps
from kraft.sim.check.share_groups.feed import ShareFeed
from kraft.sim.check.share_groups.persistence import share_checks
from kraft.sim.check.share_groups.steps import ShareGroupDrained, ShareLeader
from kraft.sim.cluster.share_observer import StateSpy
from kraft.wire.error_codes import ErrorCode
from tests.broker.share_coordinator.coordinated import KEY, Coordinated

STATES, ORDERS = ("__share_group_state", 0), ("orders", 0)
COORDINATOR, LEADER, OTHER = 1, 2, 3
REPLICAS = frozenset({COORDINATOR, LEADER, OTHER})
LIMITS = ShareLimits(delivery_count_max=3, record_locks_max=40, lock_duration_ms=100)
MEMBERS = ("a", "b", "c")
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
STEPS = 120
RECORDS_MAX = 6


class WatchedCoordinator(Coordinated):
    """A share coordinator whose records are reported when they are committed."""

    committed: Callable[[list[ShareStateEntry], int], None]
    told = 0

    def commit(self) -> None:
        new, first = self.log[self.told :], self.told
        self.told = len(self.log)
        self.committed(new, first)
        super().commit()


class Leading:
    """One leader of the share partition, with its driver: one write is in flight at a time."""

    def __init__(self, trial: ShareTrial, number: int, node: int, leader_epoch: int) -> None:
        self.trial = trial
        self.leader = ShareLeader(node, 1, number, KEY, ORDERS, leader_epoch)
        trial.tell(steps.StateRequested(self.leader))
        found = trial.coordinator.read(leader_epoch).state
        assert found is not None
        read = (found.state_epoch, found.start_offset, found.delivery_complete_count, found.batches)
        trial.tell(steps.StateRead(self.leader, *read))
        self.state: SharePartition | None = SharePartition(
            state_epoch=found.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=found.start_offset,
            batches=found.batches,
            limits=LIMITS,
        )
        trial.tell(steps.LeaderBegun(self.leader, self.state.start_offset))
        self._asking: list[list[int]] = []
        StateSpy(self.state, self.leader, trial.tell, lambda: True, self._asking)
        self._writes: deque[tuple[StateWrite, str]] = deque()

    def acquire(self, member: str, records_max: int) -> list[int]:
        """Return the offsets that the member acquires. Read on as long as there are only offsets without records."""
        offset = -1
        while self.state is not None and self.state.fetch_offset > offset:
            offset = self.state.fetch_offset
            batches, aborted = self.trial.read(offset)
            ranges = log_ranges.log_ranges(batches, offset, aborted)
            found = self.state.acquire(member, ranges, records_max, self.trial.now_ms, is_strict=True)
            if found:
                return [one for batch in found for one in range(batch.first_offset, batch.last_offset + 1)]
        return []

    def acknowledge(self, member: str, *offsets: int, kind: int = ACCEPT) -> ErrorCode:
        if self.state is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        batches = [AcknowledgementBatch(offset, offset, (kind,)) for offset in sorted(offsets)]
        error, write = self.state.acknowledge(member, batches, self.trial.now_ms)
        if write is not None:
            self._persist(write, member)
        return error

    def end_session(self, member: str) -> None:
        write = None if self.state is None else self.state.release_member(member)
        if write is not None:
            self._persist(write, "")

    def expire(self) -> None:
        write = None if self.state is None else self.state.expire_locks(self.trial.now_ms)
        if write is not None:
            self._persist(write, "")

    def _persist(self, write: StateWrite, member: str) -> None:
        self._writes.append((write, member))
        if len(self._writes) == 1:
            self._send()

    def _send(self) -> None:
        assert self.state is not None
        one = self.state.sent_write(self._writes[0][0])
        epochs = (one.state_epoch, one.leader_epoch)
        request = WriteStateRequest(KEY, *epochs, one.start_offset, one.delivery_complete_count, one.batches)
        coordinator = self.trial.coordinator
        coordinator.do(coordinator.machine.handle(request, self._written, coordinator.now))

    def _written(self, reply: StateReply) -> None:
        if self.state is None:
            return
        if reply.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
            self.state = None
            self.trial.tell(steps.LeaderClosed(self.leader))
            return
        write, member = self._writes.popleft()
        if reply.error is ErrorCode.NONE:
            self.state.write_stored(write.number)
        else:
            self.state.write_failed(write.number)
        if self._writes:
            self._send()
        if member and reply.error is ErrorCode.NONE and self.state is not None:
            self.trial.tell(steps.AcknowledgementAnswered(self.leader, member, write.number))


class ShareTrial:
    """One share partition of a read_committed group."""

    def __init__(self, seed: int = 1, *, updates_per_snapshot: int = 4) -> None:
        self.random = Random(seed)
        self.checks = Checks(share_checks())
        self.now_ms = 0
        self.end = 0
        self._batches: list[FetchedBatch] = []
        self._aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, end) of each aborted transaction."""
        self._shadows, self._leaders = Shadows(), 0
        self.feed = ShareFeed(self._shadows, PartitionLedgers())
        self.coordinator = WatchedCoordinator(updates_per_snapshot=updates_per_snapshot)
        self.coordinator.committed = self._committed
        self._state_epoch = 0
        self.coordinator.initialize(0)
        self.leader = self.lead()
        self.former: Leading | None = None
        """The leader before this one, which does not know yet that it has been replaced."""

    @property
    def found(self) -> list[str]:
        """The codes of the checks that have failed, in order."""
        return [finding.check for finding in self.checks.findings]

    def tell(self, seen: Observation) -> None:
        if isinstance(seen, BatchWritten):
            self._shadows.on_written(seen)
        for event in self.feed.observe(seen):
            self.checks.observe(event, self.now_ms)
        self.checks.observe(seen, self.now_ms)

    def _committed(self, entries: list[ShareStateEntry], first: int) -> None:
        for offset, entry in enumerate(entries, first):
            logged = (LoggedShareEntry(*entry),)
            self.tell(BatchWritten(COORDINATOR, STATES, 0, offset, offset + 1, offset, share_entries=logged))
        end = first + len(entries)
        self.tell(PartitionSeen(COORDINATOR, 1, STATES, True, 0, REPLICAS, REPLICAS, 2, 0, end, end, end))

    # the log

    def append(self, count: int, *, outcome: str = "") -> None:
        """Append a batch of records, with the marker of their transaction if the outcome is commit or abort."""
        producer_id, first = (len(self._batches) if outcome else -1), self.end
        self._append(count, FetchedBatch(first, first + count, producer_id, is_transactional=bool(outcome)))
        if outcome:
            is_abort = outcome == "abort"
            place = (self.end, self.end + 1, producer_id)
            self._append(1, FetchedBatch(*place, is_transactional=True, is_control=True, is_abort=is_abort))
            if is_abort:
                self._aborted.append((producer_id, first, self.end))

    def _append(self, count: int, batch: FetchedBatch) -> None:
        producer = ProducedBy(batch.producer_id, 0, 0, count - 1, True) if batch.is_transactional else None
        marker = TransactionMarker(batch.producer_id, 0, 0, not batch.is_abort) if batch.is_control else None
        for node in (LEADER, OTHER):
            written = (node, ORDERS, 0, batch.first, batch.end, batch.first)
            self.tell(BatchWritten(*written, producer=None if batch.is_control else producer, marker=marker))
        self._batches.append(batch)
        self.end = batch.end

    def read(self, offset: int) -> tuple[list[FetchedBatch], list[tuple[int, int]]]:
        """Return the batches from this offset on, and the aborted transactions among them."""
        batches = [batch for batch in self._batches if batch.end > offset]
        return batches, [(producer_id, first) for producer_id, first, end in self._aborted if end > offset]

    # leaders and coordinators

    def lead(self) -> Leading:
        """Let the next replica lead the partition. It reads the state."""
        self._leaders += 1
        return Leading(self, self._leaders, LEADER if self._leaders % 2 else OTHER, self._leaders)

    def move_leader(self) -> None:
        self.coordinator.commit()
        self.coordinator.commits = True
        self.former, self.leader = self.leader, self.lead()

    def move_coordinator(self) -> None:
        """Let another broker load the share coordinator's log. Requests that are not answered fail."""
        before = self.coordinator
        before.commit()
        self.coordinator = WatchedCoordinator(before.log, updates_per_snapshot=before.settings.updates_per_snapshot)
        self.coordinator.committed, self.coordinator.told = self._committed, before.told

    # an administrator

    def reset(self, start_offset: int) -> None:
        """Set the start offset. The leader reads the state again when one of its writes is fenced."""
        begin = self.feed.ledger.state(KEY).begin
        self._go_on()
        self._state_epoch += 1
        error = self.coordinator.initialize(start_offset, state_epoch=self._state_epoch)
        assert error is ErrorCode.NONE
        self.tell(steps.OffsetsChanged(KEY, start_offset, begin, ()))

    def begin_again(self) -> None:
        """Delete the group, and let a new one of the same name begin at the first record."""
        begin = self.feed.ledger.state(KEY).begin
        self._go_on()
        self.coordinator.delete()
        self.tell(steps.OffsetsChanged(KEY, NO_OFFSET, begin, ()))
        self._state_epoch = 0
        self.coordinator.initialize(0)

    # random steps

    def disturb(self) -> None:
        """Take one random step."""
        random = self.random
        leader = self.former if self.former is not None and not random.randrange(4) else self.leader
        chosen, member = random.randrange(16), random.choice(MEMBERS)
        if chosen < 4:
            leader.acquire(member, 1 + random.randrange(RECORDS_MAX))
        elif chosen < 8:
            self._acknowledge_some(leader, member)
        elif chosen == 8:
            leader.end_session(member)
        elif chosen in (9, 10):
            self.now_ms += random.randrange(LIMITS.lock_duration_ms)
            leader.expire()
        elif chosen in (11, 12):
            self.append(1 + random.randrange(RECORDS_MAX), outcome=random.choice(("", "commit", "abort")))
        elif chosen == 13:
            self._disturb_coordinator()
        elif not random.randrange(4):
            self._move()
        if self.leader.state is None:
            self.move_leader()

    def _move(self) -> None:
        """Let another replica lead the partition. An administrator may have changed the offsets shortly before."""
        chosen = self.random.randrange(5)
        if chosen == 0:
            self.reset(self.random.randrange(self.end + 1))
        elif chosen == 1:
            self.begin_again()
        else:
            self.move_leader()

    def _acknowledge_some(self, leader: Leading, member: str) -> None:
        held = [] if leader.state is None else [
            offset for run in leader.state.runs if run.value.member == member and not run.value.write
            for offset in range(run.first, run.end)
        ]  # fmt: skip
        if held:
            chosen = self.random.sample(held, 1 + self.random.randrange(len(held)))
            leader.acknowledge(member, *chosen, kind=self.random.choice((ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)))

    def _disturb_coordinator(self) -> None:
        """Let the commits of the share coordinator wait, fail without being lost, or go on; or let it move."""
        coordinator, chosen = self.coordinator, self.random.randrange(4)
        if chosen == 0:
            coordinator.commits = False
        elif chosen == 1:
            coordinator.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._go_on()
        elif chosen == 2:
            self._go_on()
        elif not coordinator.uncommitted:
            self.move_coordinator()

    def _go_on(self) -> None:
        self.coordinator.commits = True
        self.coordinator.commit()

    def settle(self) -> None:
        """Let all commits go on, all locks expire, and the newest leader deliver everything."""
        self._go_on()
        for _ in range(2):
            self.move_leader()
            self.now_ms += 2 * LIMITS.lock_duration_ms
            self.leader.expire()
            while offsets := self.leader.acquire("a", RECORDS_MAX):
                self.leader.acknowledge("a", *offsets)
        self.tell(ShareGroupDrained(KEY, ORDERS, self.leader.leader.node, self.end, True))
