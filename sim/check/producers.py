"""Checks of the batches of idempotent producers in the committed log of each partition (T1, T2 and T4).

A batch is checked once, when the first high watermark of its partition passes it. A batch that was truncated before
that was not guaranteed to any client, and D2 checks that all replicas commit the same batches. Batches deleted from the
front of a log are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import PartitionSeen, ProducedBy, TopicPartition
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import ShadowBatch, Shadows

SEQUENCES = 1 << 31
"""Number of different sequence numbers; after the last one they restart at 0."""


@dataclass(slots=True)
class _ProducerState:
    """State of a producer in a partition: its newest epoch, and the sequence number that comes next."""

    epoch: int
    next_sequence: int


class CommittedProducers(Check):
    """Base of checks that compare each committed batch of an idempotent producer with its earlier committed batches."""

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._upto: dict[TopicPartition, int] = {}
        self._known: dict[tuple[TopicPartition, int], _ProducerState] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition}

    def seen_partition(self, seen: PartitionSeen) -> None:
        tp = seen.topic_partition
        if seen.high_watermark <= self._upto.get(tp, 0):
            return
        is_void = self._ledgers.is_void(tp)
        for batch, producer in self._newly(seen):
            known = self._known.get((tp, producer.producer_id))
            if not is_void:
                self.judge(tp, batch, producer, known)
            if known is None or producer.epoch > known.epoch:
                known = self._known[tp, producer.producer_id] = _ProducerState(producer.epoch, 0)
            if producer.epoch == known.epoch:
                known.next_sequence = (producer.last_sequence + 1) % SEQUENCES

    def _newly(self, seen: PartitionSeen) -> Iterator[tuple[ShadowBatch, ProducedBy]]:
        start = self._upto.get(seen.topic_partition, 0)
        self._upto[seen.topic_partition] = seen.high_watermark
        for batch in self._shadows.log(seen.node, seen.topic_partition).between(start, seen.high_watermark):
            if batch.producer is not None and batch.producer.first_sequence >= 0:
                yield batch, batch.producer

    def judge(self, tp: TopicPartition, batch: ShadowBatch, producer: ProducedBy, known: _ProducerState | None) -> None:
        """Report what is wrong with this batch. `known`: the producer's state after its earlier batches that were
        committed in this partition, None if there are none."""
        raise AssertionError(f"{type(self).__name__} judges nothing")

    def tell(self, text: str, tp: TopicPartition, batch: ShadowBatch, producer: ProducedBy, **facts: object) -> None:
        self.fail(
            text,
            partition=tp,
            offset=batch.base_offset,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            sequences=(producer.first_sequence, producer.last_sequence),
            **facts,
        )


class NoSequenceTwice(CommittedProducers):
    """Check that each (producer id, epoch, sequence number) occurs once in a committed log. Duplicates by value, from
    any producer, are found by `client_histories`."""

    id: ClassVar[str] = "T1"
    statement: ClassVar[str] = "In a committed log each (producer id, epoch, sequence number) occurs once."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        super().__init__(shadows, ledgers)
        self._first: dict[tuple[TopicPartition, int, int], dict[int, int]] = {}
        """(partition, producer id, epoch) → first sequence number of a batch → its offset."""

    def judge(self, tp: TopicPartition, batch: ShadowBatch, producer: ProducedBy, known: _ProducerState | None) -> None:
        first = self._first.setdefault((tp, producer.producer_id, producer.epoch), {})
        if first:
            self.count()
        before = first.setdefault(producer.first_sequence, batch.base_offset)
        if before != batch.base_offset:
            self.tell("a producer's sequence is committed twice", tp, batch, producer, committed_at=before)


class SequencesFollow(CommittedProducers):
    id: ClassVar[str] = "T2"
    statement: ClassVar[str] = "In a committed log a producer's sequence numbers are contiguous, from 0 in each epoch."

    def judge(self, tp: TopicPartition, batch: ShadowBatch, producer: ProducedBy, known: _ProducerState | None) -> None:
        if known is not None and producer.epoch < known.epoch:
            return  # found by the check of epochs (T4)
        self.count()
        due = known.next_sequence if known is not None and known.epoch == producer.epoch else 0
        if producer.first_sequence != due:
            self.tell("a producer's sequences do not follow on each other", tp, batch, producer, due=due)


class ProducerEpochsRise(CommittedProducers):
    id: ClassVar[str] = "T4"
    statement: ClassVar[str] = "In a committed log a producer's epoch never decreases."

    def judge(self, tp: TopicPartition, batch: ShadowBatch, producer: ProducedBy, known: _ProducerState | None) -> None:
        if known is None:
            return
        self.count()
        if producer.epoch < known.epoch:
            self.tell("a producer's epoch went back", tp, batch, producer, known_epoch=known.epoch)
