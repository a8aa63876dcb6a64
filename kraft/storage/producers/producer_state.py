"""Producer state of one log: the last batches of each producer, and its transactions.

It follows from the log (T3): leader, follower and rebuilt copies at the same offset are equal. A leader first checks
(`check`, `check_marker`), then writes, then applies (`apply_batch`, `apply_marker`). A follower and recovery only
apply. Verifications exist only on the leader and are not part of this state.
Source: KIP-98, KIP-360, KIP-890, Kafka's ProducerStateManager, docs/produce-checks.md#the-producer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kraft.storage.append import AppendOrigin, AppendRefused
from kraft.storage.indexes.txn_index import AbortedTransaction
from kraft.storage.producers.snapshot_file import NO_OFFSET, SnapshotEntry
from kraft.storage.producers.verification import NOT_VERIFYING, Verification
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import ATTRIBUTE_TRANSACTIONAL, SEQUENCE_MASK, BatchHeader

BATCHES_KEPT = 5
"""Number of latest batches of a producer among which duplicates are detected."""
BUMPING_VERSION = 2
"""transaction.version from which each marker has a higher epoch than its transaction (KIP-890, part 2)."""

ProducerBatch = tuple[int, int, int, int, int]
"""A recent batch of a producer: (first sequence, last sequence, last offset, offset delta, timestamp)."""


class ProducerEntry:
    """State of one producer. `next_sequence` is the required sequence of its next batch (0 after an epoch bump, -1 if
    unknown)."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "next_sequence", "txn_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_KEPT)
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.next_sequence = 0
        self.txn_first_offset = NO_OFFSET

    def bump(self, epoch: int) -> None:
        """Begin a new epoch: sequences restart at 0."""
        self.epoch = epoch
        self.batches.clear()
        self.next_sequence = 0

    def has_open(self, epoch: int) -> bool:
        """Return whether a transaction of this epoch is open."""
        return self.txn_first_offset >= 0 and self.epoch == epoch

    def duplicate_of(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the remembered batch of this producer that a batch with this header repeats, or None."""
        if header.producer_epoch == self.epoch:
            for batch in self.batches:
                if batch[0] == header.base_sequence and batch[1] == header.last_sequence:
                    return batch
        return None

    def to_snapshot(self, producer_id: int) -> SnapshotEntry:
        """Return this producer's entry for a producer snapshot, which has only the last batch."""
        last = self.batches[-1] if self.batches else (-1, -1, -1, 0, -1)
        return SnapshotEntry(
            producer_id, self.epoch, last[1], last[2], last[3], self.last_timestamp, self.coordinator_epoch,
            self.txn_first_offset,
        )  # fmt: skip

    @staticmethod
    def from_snapshot(row: SnapshotEntry) -> ProducerEntry:
        entry = ProducerEntry(row.producer_epoch)
        entry.coordinator_epoch = row.coordinator_epoch
        entry.last_timestamp = row.timestamp
        entry.txn_first_offset = row.current_txn_first_offset
        if row.last_offset >= 0:
            first = (row.last_sequence - row.offset_delta) & SEQUENCE_MASK
            entry.batches.append((first, row.last_sequence, row.last_offset, row.offset_delta, row.timestamp))
            entry.next_sequence = (row.last_sequence + 1) & SEQUENCE_MASK
        return entry


class ProducerStates:
    """All producers of a log. `end_offset` is the log offset up to which the state was applied."""

    __slots__ = ("_decided", "_open", "end_offset", "entries", "first_unstable_offset", "verifications")

    def __init__(self, end_offset: int, rows: Iterable[SnapshotEntry] = ()) -> None:
        self.end_offset = end_offset
        self.entries = {row.producer_id: ProducerEntry.from_snapshot(row) for row in rows}
        firsts = [(entry.txn_first_offset, producer_id) for producer_id, entry in self.entries.items()]
        self._open = {first: producer_id for first, producer_id in sorted(firsts) if first >= 0}
        self._decided: dict[int, int] = {}
        self.verifications: dict[int, Verification] = {}
        """Producer id → the verification that its next transaction needs."""
        self.first_unstable_offset: int | None = None
        self._find_first_unstable()

    # a leader's checks before it writes

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds: bool, now_ms: int
    ) -> Verification | None:
        """Begin to verify a transactional batch with this first sequence, or join the verification in progress. Return
        None if the transaction is already open in this log, so that the coordinator need not be asked. `now_ms` is wall
        clock.

        Raises AppendRefused 47 (INVALID_PRODUCER_EPOCH) if the epoch is older than the producer's newest in this log.
        """
        entry = self.entries.get(producer_id)
        if entry is not None:
            _check_epoch(producer_id, epoch, entry.epoch)
            if entry.has_open(epoch):
                return None
        known = self.verifications.get(producer_id)
        if known is not None:
            _check_epoch(producer_id, epoch, known.epoch)
            if known.epoch == epoch:
                known.lowest_sequence = min(known.lowest_sequence, sequence)
                return known
        begun = Verification(epoch, sequence, adds=adds, began_ms=now_ms)
        self.verifications[producer_id] = begun
        return begun

    def check(
        self, header: BatchHeader, origin: AppendOrigin, verification: Verification | None = None
    ) -> ProducerBatch | None:
        """Check that this data batch of a producer may be appended. Return None, or the batch that it duplicates.

        A batch that opens a transaction needs the current verification. `header.producer_id` is not negative. Raises
        AppendRefused with 47 (INVALID_PRODUCER_EPOCH), 45 (OUT_OF_ORDER_SEQUENCE_NUMBER) or 48 (INVALID_TXN_STATE)."""
        entry = self.entries.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            if entry is None or not entry.has_open(epoch):
                return self._check_opening(entry, header, origin, verification)
        elif entry is None:
            return None
        if epoch != entry.epoch or (sequence != entry.next_sequence and origin is AppendOrigin.CLIENT):
            duplicate = self._check_unexpected(entry, header, origin)
            if duplicate is not None:
                return duplicate
        if entry.txn_first_offset >= 0 and not header.attributes & ATTRIBUTE_TRANSACTIONAL:
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent a non-transactional batch while its transaction that began at "
                f"offset {entry.txn_first_offset} is open",
            )
        return None

    def _check_opening(
        self,
        entry: ProducerEntry | None,
        header: BatchHeader,
        origin: AppendOrigin,
        verification: Verification | None,
    ) -> ProducerBatch | None:
        """Check a batch that opens a transaction: a duplicate, its epoch, its verification, its sequence."""
        if entry is not None:
            duplicate = entry.duplicate_of(header) if origin is AppendOrigin.CLIENT else None
            if duplicate is not None:
                return duplicate
            _check_epoch(header.producer_id, header.producer_epoch, entry.epoch)
        if verification is not NOT_VERIFYING and (
            verification is None or verification is not self.verifications.get(header.producer_id)
        ):
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} epoch {header.producer_epoch} sent a batch that opens a transaction, "
                f"and the transaction coordinator has not confirmed that transaction for this partition",
            )
        if origin is not AppendOrigin.CLIENT:
            return None
        if entry is not None:
            self._check_unexpected(entry, header, origin)
        if verification is NOT_VERIFYING or verification is None:
            return None
        expected = 0 if verification.adds and entry is None else verification.lowest_sequence
        if header.base_sequence > expected:
            raise _out_of_order(header, expected)
        return None

    def _check_unexpected(
        self, entry: ProducerEntry, header: BatchHeader, origin: AppendOrigin
    ) -> ProducerBatch | None:
        """Check a batch whose sequence is not the expected next one: it may be a duplicate, begin a new epoch, or be
        rejected."""
        client = origin is AppendOrigin.CLIENT
        duplicate = entry.duplicate_of(header) if client else None
        if duplicate is not None:
            return duplicate
        _check_epoch(header.producer_id, header.producer_epoch, entry.epoch)
        expected = 0 if header.producer_epoch > entry.epoch else entry.next_sequence
        if client and header.base_sequence != expected and expected >= 0:
            raise _out_of_order(header, expected)
        return None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Check that a leader may write this marker. Otherwise raises AppendRefused with 47 (INVALID_PRODUCER_EPOCH) or
        52 (TRANSACTION_COORDINATOR_FENCED).

        With transaction.version 2 a marker raises the epoch. One with the current epoch is a repetition of the last
        marker. If a transaction is open, that transaction is a later one, and the marker must not end it."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        is_late = transaction_version >= BUMPING_VERSION and epoch == entry.epoch and entry.txn_first_offset >= 0
        if epoch < entry.epoch or is_late:
            raise AppendRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch}, the marker has {epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise AppendRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id} has seen a marker of coordinator epoch {entry.coordinator_epoch}, "
                f"this one has {coordinator_epoch}",
            )

    # changes after a write

    def apply_batch(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a data batch that has a producer id and is in the log at `base_offset`."""
        producer_id, epoch, delta = header.producer_id, header.producer_epoch, header.last_offset_delta
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif epoch > entry.epoch:
            entry.bump(epoch)
        timestamp = header.max_timestamp
        first = header.base_sequence
        if first >= 0 and epoch == entry.epoch:
            last = (first + delta) & SEQUENCE_MASK
            entry.batches.append((first, last, base_offset + delta, delta, timestamp))
            entry.next_sequence = (last + 1) & SEQUENCE_MASK
        entry.last_timestamp = timestamp
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            self.verifications.pop(producer_id, None)
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = base_offset
                self._open[base_offset] = producer_id
                if self.first_unstable_offset is None:
                    self.first_unstable_offset = base_offset

    def apply_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, aborted: bool
    ) -> AbortedTransaction | None:
        """Apply a marker, which is in the log at `offset`. Return the entry for the transaction index if it aborts a
        transaction.

        The transaction is decided only by `complete`, after that entry is written. The marker of a transaction.version
        2 producer has the epoch of its next transaction, whose verification therefore stays."""
        known = self.verifications.get(producer_id)
        if known is not None and not (known.adds and known.epoch == epoch):
            del self.verifications[producer_id]
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif epoch > entry.epoch:
            entry.bump(epoch)
        entry.coordinator_epoch = max(entry.coordinator_epoch, coordinator_epoch)
        entry.last_timestamp = timestamp
        first = entry.txn_first_offset
        if first < 0 or not aborted:
            return None
        others = next((other for other in self._open if other != first), offset + 1)
        return AbortedTransaction(producer_id, first, offset, others)

    def complete(self, producer_id: int, offset: int) -> None:
        """End the producer's open transaction, if any, with the marker at `offset`. The first unstable offset stays,
        because the transaction is unstable until the high watermark has passed its marker."""
        entry = self.entries[producer_id]
        first = entry.txn_first_offset
        if first >= 0:
            entry.txn_first_offset = NO_OFFSET
            del self._open[first]
            self._decided[first] = offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Make those transactions stable whose marker is below the high watermark."""
        if self._decided:
            self._decided = {first: last for first, last in self._decided.items() if last >= high_watermark}
            self._find_first_unstable()

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget decided transactions that ended below the new log start."""
        self.on_high_watermark(log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers without an open transaction that have been inactive for too long, and verifications of that
        age. Return the number of producers."""
        gone = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp > expiration_ms
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        self.verifications = {
            producer_id: known
            for producer_id, known in self.verifications.items()
            if now_ms - known.began_ms <= expiration_ms
        }
        return len(gone)

    def snapshot(self) -> list[SnapshotEntry]:
        """Return the content of a producer snapshot at `end_offset`, by producer id."""
        return [entry.to_snapshot(producer_id) for producer_id, entry in sorted(self.entries.items())]

    def _find_first_unstable(self) -> None:
        oldest_open = next(iter(self._open), None)
        oldest_decided = min(self._decided, default=None)
        candidates = [offset for offset in (oldest_open, oldest_decided) if offset is not None]
        self.first_unstable_offset = min(candidates, default=None)


def _check_epoch(producer_id: int, epoch: int, known_epoch: int) -> None:
    if epoch < known_epoch:
        raise AppendRefused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} has epoch {known_epoch}, the batch has {epoch}",
        )


def _out_of_order(header: BatchHeader, expected: int) -> AppendRefused:
    return AppendRefused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
        f"expected {expected}",
    )
