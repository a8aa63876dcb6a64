"""Verification: the permission to open one transaction of one producer in a log (KIP-890).

A leader creates it before it queries the transaction coordinator whether the partition is part of the transaction. The
append step compares it by identity with the current one. A marker, another transactional batch, an expiry or a
truncation of the whole log drops the current one, so a late response opens no transaction. It outlives other
truncations and a move to another log directory, because the coordinator's answer does not depend on them; Kafka drops
it there. Source: KIP-890, Kafka's VerificationStateEntry.
"""

from __future__ import annotations

from typing import Final


class Verification:
    """One request to the coordinator, shared by the batches of one epoch that wait for its result.

    `adds`: the coordinator adds the partition to the transaction (transaction.version 2), instead of only verifying.
    `lowest_sequence`: the lowest first sequence of the batches that need it. `began_ms`: wall clock, for the expiry."""

    __slots__ = ("adds", "began_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, lowest_sequence: int, *, adds: bool, began_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.adds = adds
        self.began_ms = began_ms


NOT_VERIFYING: Final = Verification(-1, 0, adds=False, began_ms=0)
"""Value for a caller that does not verify transactions, because transaction.partition.verification.enable is off or in
a test. It permits every transaction."""
