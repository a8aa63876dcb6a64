"""Transactions during compaction: which data were aborted, and which markers are no longer needed.

Invariants: data of an aborted transaction are never a key's latest value. A marker is removed only if no batch of its
transaction, emptied ones included, was seen before it in this round. A batch without its marker would be a transaction
that never ends (B30). An abort whose marker stays keeps its entry in the transaction index.
Source: KIP-534, Kafka's LogCleaner, docs/storage.md#what-compaction-keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kraft.storage.indexes.txn_index import AbortedTransaction
from kraft.storage.markers import Marker
from kraft.wire.records import ATTRIBUTE_TRANSACTIONAL, BatchHeader


class CleanedTransactions:
    """The transactions of one round; receives every batch in log order. `kept` are the index entries of aborts that
    stay."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: the aborted transactions that overlap the range to process."""
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers with a transactional batch after their last marker."""
        self.kept: list[AbortedTransaction] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Process a data batch. Return whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.attributes & ATTRIBUTE_TRANSACTIONAL:
            return False
        self._seen.add(header.producer_id)
        return header.producer_id in self._aborting

    def on_marker(self, header: BatchHeader, marker: Marker) -> bool:
        """Process a transaction's marker. Return whether nothing else of the transaction remains in the log."""
        self._begin_up_to(header.last_offset)
        aborted = self._aborting.pop(header.producer_id, None)
        has_data = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        if has_data and aborted is not None and marker.aborted:
            self.kept.append(aborted)
        return not has_data

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the kept index entries that were added since the last call."""
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            entry = self._coming.popleft()
            self._aborting[entry.producer_id] = entry
