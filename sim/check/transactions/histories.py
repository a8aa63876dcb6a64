"""Checks of a run's whole history of transactions: what producers reported, what readers got, and what the transaction
log has.

No two records have the same value, so a value identifies the transaction. The producer id and epoch of a transaction
identify it in the transaction log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kraft.sim.check.observations import TopicPartition
from kraft.sim.check.transactions.ledger import Identity, TransactionLedger

Read = Mapping[TopicPartition, Sequence[tuple[int, bytes]]]
"""Partition → (offset, value) of each record that a reader got, in order."""
SHOWN = 40
"""Maximum number of bytes of a value in a finding."""


class ReportedOutcome(Enum):
    """The outcome of a transaction, as its producer reported it to the application."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class ClientTransaction:
    """One transaction of a producer. `data` is the producer id and epoch of its records. `requests_commit` is true if
    the application has requested the commit. `offsets` are the group's offsets that the transaction commits."""

    transactional_id: str
    data: Identity
    number: int
    requests_commit: bool = False
    outcome: ReportedOutcome = ReportedOutcome.UNKNOWN
    records: list[tuple[bytes, TopicPartition]] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransactionAnomaly:
    """A violated invariant (`check` is its code), with the evidence."""

    check: str
    text: str
    place: TopicPartition | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TransactionHistory:
    """All that clients observed in a run. `along` was read with read_committed during the run. New readers got
    `committed` (with read_committed) and `everything` (with read_uncommitted) at the end. `offsets` are the group's
    committed offsets at the end."""

    transactions: Sequence[ClientTransaction]
    along: Read
    committed: Read
    everything: Read
    offsets: Mapping[TopicPartition, int | None]
    inputs: frozenset[TopicPartition] = frozenset()
    """Partitions of which each committed record must have been copied."""
    sources: Mapping[bytes, bytes] = field(default_factory=dict)
    """Value of a copy → value of the record that it was made of."""


def judge_transactions(history: TransactionHistory, ledger: TransactionLedger) -> Iterator[TransactionAnomaly]:
    """Yield each anomaly of this history."""
    for each in history.transactions:
        yield from _judge_outcome(each, ledger)
    yield from _judge_committed(history, ledger)
    yield from _judge_everything(history)
    yield from _judge_along(history)
    yield from _judge_copies(history, ledger)
    yield from _judge_offsets(history, ledger)


def _anomaly(check: str, text: str, place: TopicPartition | None = None, **evidence: Any) -> TransactionAnomaly:
    shown = {name: fact[:SHOWN] if isinstance(fact, bytes) else fact for name, fact in evidence.items()}
    return TransactionAnomaly(check, text, place, shown)


def _judge_outcome(each: ClientTransaction, ledger: TransactionLedger) -> Iterator[TransactionAnomaly]:
    """Compare the outcome that a producer reported with the decision in the log. Transactions without records and
    offsets are skipped: the log does not have them, and the next transaction has the same identity."""
    if not (each.records or each.offsets):
        return
    is_committed = ledger.is_committed(each.data)
    facts: dict[str, Any] = {"transactional_id": each.transactional_id, "data": each.data, "number": each.number}
    if each.outcome is ReportedOutcome.COMMITTED and not is_committed:
        yield _anomaly("T9", "a commit was reported, and the transaction is not committed", **facts)
    if each.outcome is ReportedOutcome.ABORTED and is_committed:
        yield _anomaly("T9", "an abort was reported, and the transaction is committed", **facts)
    if not each.requests_commit and is_committed:
        text = "a transaction is committed although its producer has not requested that"
        yield _anomaly("T9", text, **facts)


def _judge_committed(history: TransactionHistory, ledger: TransactionLedger) -> Iterator[TransactionAnomaly]:
    """Compare the records that the last read_committed reader got with the committed transactions."""
    owners = {value: each for each in history.transactions for value, _ in each.records}
    places: dict[bytes, list[tuple[TopicPartition, int]]] = {}
    for place, records in sorted(history.committed.items()):
        for offset, value in records:
            places.setdefault(value, []).append((place, offset))
            owner = owners.get(value)
            if owner is None:
                yield _anomaly("D14", "a record was read that no producer sent", place, offset=offset, value=value)
            elif not ledger.is_committed(owner.data):
                text = "a reader of committed records got a record of an aborted or open transaction"
                yield _anomaly("T6", text, place, offset=offset, value=value, data=owner.data)
    for value, found in places.items():
        if len(found) > 1:
            offsets = [offset for _, offset in found]
            yield _anomaly("T1", "a record of a transaction is doubled", found[0][0], value=value, offsets=offsets)
    for each in history.transactions:
        if ledger.is_committed(each.data):
            yield from _judge_atomicity(each, places)


def _judge_atomicity(
    each: ClientTransaction, places: Mapping[bytes, Sequence[tuple[TopicPartition, int]]]
) -> Iterator[TransactionAnomaly]:
    missing = [(value[:SHOWN], place) for value, place in each.records if value not in places]
    facts: dict[str, Any] = {"transactional_id": each.transactional_id, "data": each.data, "missing": missing[:8]}
    if missing and len(missing) < len(each.records):
        yield _anomaly("T5", "only a part of a committed transaction can be read", missing[0][1], **facts)
    elif missing:
        yield _anomaly("L10", "a committed transaction is lost", missing[0][1], **facts)
    last: dict[TopicPartition, int] = {}
    for value, sent_to in each.records:
        for place, offset in places.get(value, ())[:1]:
            if place != sent_to or offset <= last.get(place, -1):
                text = "records of a transaction are not in their order"
                yield _anomaly("C1", text, place, value=value, offset=offset, sent_to=sent_to)
            last[place] = offset


def _judge_everything(history: TransactionHistory) -> Iterator[TransactionAnomaly]:
    """Compare the records that the read_uncommitted reader got with the records that were sent. Check that it got each
    record that the last read_committed reader got."""
    sent = {value for each in history.transactions for value, _ in each.records}
    for place, records in sorted(history.everything.items()):
        seen = Counter(value for _, value in records)
        for value, count in seen.items():
            if value not in sent:
                yield _anomaly("D14", "a record was read that no producer sent", place, value=value)
            elif count > 1:
                yield _anomaly("T1", "a record of a transaction is doubled", place, value=value, times=count)
        known = set(records)
        for offset, value in history.committed.get(place, ()):
            if (offset, value) not in known:
                text = "only one of two readers got a committed record"
                yield _anomaly("D10", text, place, offset=offset, value=value)


def _judge_along(history: TransactionHistory) -> Iterator[TransactionAnomaly]:
    """Check that the reader of the whole run got the same records as the last read_committed reader: it skipped none,
    got none twice, and got the last ones."""
    for place in sorted({*history.along, *history.committed}):
        records, due = list(history.along.get(place, ())), list(history.committed.get(place, ()))
        if records != due:
            pairs = zip(records, due, strict=False)
            at = next((i for i, (got, wanted) in enumerate(pairs) if got != wanted), min(len(records), len(due)))
            text = "a reader of committed records skipped or repeated some"
            if records == due[: len(records)]:
                text = "a reader of committed records did not get the last ones"
            yield _anomaly("C2", text, place, number=at, read=_shown(records, at), due=_shown(due, at))


def _shown(records: Sequence[tuple[int, bytes]], at: int) -> list[tuple[int, bytes]]:
    return [(offset, value[:SHOWN]) for offset, value in records[at : at + 2]]


def _judge_copies(history: TransactionHistory, ledger: TransactionLedger) -> Iterator[TransactionAnomaly]:
    """Check that each committed record of the inputs has exactly one committed copy."""
    if not history.sources and not history.inputs:
        return
    owners = {value: each for each in history.transactions for value, _ in each.records}
    copied = Counter(
        history.sources[value]
        for records in history.committed.values()
        for _, value in records
        if value in history.sources and ledger.is_committed(owners[value].data)
    )
    for place in sorted(history.inputs):
        for offset, value in history.committed.get(place, ()):
            times = copied[value]
            if times != 1:
                text = "a record was not processed" if not times else "a record was processed more than once"
                yield _anomaly("T11", text, place, offset=offset, value=value, times=times)


def last_offsets(
    transactions: Sequence[ClientTransaction], ledger: TransactionLedger
) -> dict[TopicPartition, tuple[int, Identity]]:
    """Return the offsets that the last committed transaction of each partition commits, with its identity."""
    decided = []
    for each in transactions:
        found = ledger.by_data.get(each.data)
        if found is not None and found.is_commit and each.offsets:
            decided.append((found.number, each))
    last: dict[TopicPartition, tuple[int, Identity]] = {}
    for _, each in sorted(decided, key=lambda pair: pair[0]):
        last.update({place: (offset, each.data) for place, offset in each.offsets.items()})
    return last


def _judge_offsets(history: TransactionHistory, ledger: TransactionLedger) -> Iterator[TransactionAnomaly]:
    """Check that the group's offsets are those of the last committed transaction."""
    due = last_offsets(history.transactions, ledger)
    for place, offset in sorted(history.offsets.items()):
        expected, data = due.get(place, (None, None))
        if offset != expected:
            text = "a group's offset is not that of the last committed transaction"
            yield _anomaly("T11", text, place, offset=offset, due=expected, data=data)
