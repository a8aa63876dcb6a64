"""WaitingBatches: the transactional batches of all Produce requests that wait for a transaction coordinator.

Invariants: batches of one producer that wait in one partition continue in the order in which they arrived, all of them
as soon as the coordinator has confirmed the partition to any of their requests. No batch waits once the transaction is
open in the log. Otherwise a batch that arrives then would be appended, or rejected, before older batches that still
wait for their own answer. A client that pipelines requests sees such a rejection after the older batches were
acknowledged, and treats it as fatal.
Source: KIP-98, KIP-890, Kafka's TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.storage.producers.verification import Verification


class WaitingBatches:
    """For each verification, the batches that wait for it. A batch is any object; `resume()` continues with it."""

    __slots__ = ("_resumes",)

    def __init__(self) -> None:
        self._resumes: dict[Verification, dict[object, Callable[[], None]]] = {}

    def add(self, verification: Verification, batch: object, resume: Callable[[], None]) -> None:
        """Add a batch behind those that wait for the same verification."""
        self._resumes.setdefault(verification, {})[batch] = resume

    def has(self, verification: Verification | None, batch: object) -> bool:
        """Return whether a batch waits. It does not if the answer to another request has resumed it."""
        return verification is not None and batch in self._resumes.get(verification, ())

    def remove(self, verification: Verification | None, batch: object) -> bool:
        """Remove a batch that will not continue. Return whether it waited."""
        if verification is None or not self.has(verification, batch):
            return False
        waiting = self._resumes[verification]
        del waiting[batch]
        if not waiting:
            del self._resumes[verification]
        return True

    def confirm(self, verification: Verification | None) -> None:
        """Resume all batches that wait for this verification, in their order."""
        if verification is not None:
            for resume in self._resumes.pop(verification, {}).values():
                resume()
