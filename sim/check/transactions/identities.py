"""Check that no two producers have the same producer id and epoch, and that the epochs of an id rise by one, or by two
when its producer is fenced (T10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import ProducerIdSent
from kraft.sim.check.transactions.feed import TransactionLogged
from kraft.sim.check.transactions.ledger import Identity, LoggedState


class IdentitiesHaveOneOwner(Check):
    """Check of the producer ids and epochs that coordinators send. A lost response is sent again to the same producer.
    So only an identity that was sent to two producers is a violation."""

    id: ClassVar[str] = "T10"
    statement: ClassVar[str] = (
        "No two callers are sent the same producer id and epoch, and a write that failed uses up no epoch."
    )

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[Identity, str] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ProducerIdSent: self.sent, TransactionLogged: self.logged}

    def sent(self, seen: ProducerIdSent) -> None:
        if not seen.transactional_id:
            return
        self.count()
        identity = (seen.producer_id, seen.producer_epoch)
        owner = self._owners.setdefault(identity, seen.caller)
        if owner != seen.caller:
            facts = {"transactional_id": seen.transactional_id, "identity": identity, "node": seen.node}
            self.fail("two producers were sent the same identity", first=owner, second=seen.caller, **facts)

    def logged(self, seen: TransactionLogged) -> None:
        value, before = seen.value, seen.before
        if before is None or value.producer_id != before.producer_id:
            return
        is_fenced = before.state == LoggedState.ONGOING and value.state == LoggedState.PREPARE_ABORT
        if not before.epoch <= value.epoch <= before.epoch + 1 + is_fenced:
            self.fail(
                "the epochs of a transactional id do not follow on each other",
                transactional_id=value.transactional_id,
                producer_id=value.producer_id,
                before=before.epoch,
                epoch=value.epoch,
            )
