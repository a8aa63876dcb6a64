"""Entries of a coordinator's topic that belong to a transaction of a producer, and the markers that decide them.

Only `__consumer_offsets` has such batches: the offsets that a transaction commits. A state machine writes a
TransactionalBatch or a MarkerBatch, each as the only entry of its step. The state, live or replayed, gets their
content as StagedEntry and TransactionEnd.
Source: KIP-98, TxnOffsetCommitRequest, WriteTxnMarkersRequest.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TransactionalBatch(NamedTuple):
    """A batch of a producer's transaction, to be appended. `verification` is that of the partition's log."""

    producer_id: int
    producer_epoch: int
    entries: tuple[Any, ...]
    verification: Any


class MarkerBatch(NamedTuple):
    """The marker of a producer's transaction, to be appended. `transaction_version` is that of the transaction; 0 if it
    is not known."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0


class StagedEntry(NamedTuple):
    """An entry that counts once its transaction commits. `offset` is the log offset of its record."""

    producer_id: int
    offset: int
    entry: Any


class TransactionEnd(NamedTuple):
    """The transaction of this producer ends here."""

    producer_id: int
    is_commit: bool


def entries_in_log(written: Any, end_offset: int) -> tuple[Any, ...]:
    """Return what a batch, which ends at this log offset, adds to the state."""
    if isinstance(written, MarkerBatch):
        return (TransactionEnd(written.producer_id, written.is_commit),)
    if isinstance(written, TransactionalBatch):
        first = end_offset - len(written.entries)
        return tuple(StagedEntry(written.producer_id, first + n, entry) for n, entry in enumerate(written.entries))
    return (written,)
