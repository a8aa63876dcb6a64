"""Entries of a coordinator's topic that belong to a producer's transaction, and the markers that commit or abort them.

Only `__consumer_offsets` has such entries: the offsets that a transaction commits. A state machine writes a
TransactionalBatch or a MarkerBatch, each as the only entry of its step. The state gets the contents as StagedEntry and
TransactionEnd, both after a write and when it is loaded from the log.
Source: KIP-98, TxnOffsetCommitRequest, WriteTxnMarkersRequest.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TransactionalBatch(NamedTuple):
    """A batch of a producer's transaction, to be appended. `verification` is the result of verifying the transaction at
    the partition's log."""

    producer_id: int
    producer_epoch: int
    entries: tuple[Any, ...]
    verification: Any


class MarkerBatch(NamedTuple):
    """The marker of a producer's transaction, to be appended. `transaction_version` is the transaction's version; 0 if
    it is not known."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0


class StagedEntry(NamedTuple):
    """An entry that takes effect only when its transaction commits. `offset` is the log offset of its record."""

    producer_id: int
    offset: int
    entry: Any


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction: the marker as the state sees it."""

    producer_id: int
    is_commit: bool


def entries_in_log(written: Any, end_offset: int) -> tuple[Any, ...]:
    """Return the entries that an appended batch adds to the state. `end_offset` is the log end offset after the
    batch."""
    if isinstance(written, MarkerBatch):
        return (TransactionEnd(written.producer_id, written.is_commit),)
    if isinstance(written, TransactionalBatch):
        first = end_offset - len(written.entries)
        return tuple(StagedEntry(written.producer_id, first + n, entry) for n, entry in enumerate(written.entries))
    return (written,)
