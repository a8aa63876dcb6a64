"""Replays the committed metadata batch by batch from the bytes on the disks, independently of the nodes, and reports it
as observations.

A batch is applied the first time that any replica counts it as committed or has trimmed it; no replica trims before the
commit. (A single controller may commit, write a snapshot and trim its log between two observations.) So changes of
partitions and fences are reported record by record, however coarsely the nodes publish. Each node's image is compared
with this independent image (M1). The independent image is itself compared with a reference implementation that gets the
same events (M2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from kraft.image import BrokerRegistration, ImageBuilder, MetadataImage, decode_event
from kraft.image.dump import Digester, digest
from kraft.image.events import Event, ProducerIds, Topic
from kraft.image.image import EMPTY_IMAGE
from kraft.image.partitions import NO_LEADER, PartitionState, RecoveryState, TopicImage
from kraft.sim.check.observations import (
    BrokerInactive,
    BrokerRegistered,
    BrokerUnfenced,
    ImagePublished,
    MetadataFolded,
    Observation,
    PartitionRecorded,
    ProducerIdsRecorded,
    TopicDeleted,
    TopicPartition,
    TopicRecorded,
)
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.reference_fold import ReferenceFold
from kraft.wire.records import decode_batch, iter_headers, read_header

THE_FOLD = 0
"""Node id under which the images of the independent replay are reported."""


@dataclass(frozen=True, slots=True)
class FenceRecorded:
    """A batch of `epoch` fences an unfenced registration, or replaces it (`superseded`). The leader of `epoch` made the
    decision."""

    broker: BrokerRegistration
    superseded: bool
    epoch: int


def snapshot_digest(data: bytes, end_offset: int, epoch: int) -> str:
    """Return the digest of the image in a snapshot's bytes."""
    builder = ImageBuilder(EMPTY_IMAGE)
    for position, header in iter_headers(data):
        for event in _events(data[position : position + header.size_bytes]):
            builder.apply(event)
    return digest(builder.build(end_offset, epoch))


def _events(batch: bytes) -> Iterator[Event]:
    if not read_header(batch).is_control:
        for record in decode_batch(batch):
            yield decode_event(record.value or b"")


class MetadataFold:
    """Independent replay of the committed metadata. `image` is its result so far; `end_offset` is the end of the
    batches applied."""

    def __init__(
        self,
        tell: Callable[[Observation], None],
        fenced: Callable[[FenceRecorded], None],
        min_isr: Callable[[MetadataImage, str], int],
        now_ms: Callable[[], int],
        labels: TopicLabels,
        may_take: Callable[[TopicPartition, int], bool],
        lives: Mapping[UUID, int],
    ) -> None:
        """Create the replay. `may_take`: whether a replica may lead a partition although it is in neither ISR nor ELR.
        `lives`: incarnation id of a broker → number of that incarnation, for all incarnations so far."""
        self.image = EMPTY_IMAGE
        self._tell = tell
        self._fenced = fenced
        self._min_isr = min_isr
        self._now_ms = now_ms
        self._labels = labels
        self._may_take = may_take
        self._lives = lives
        self._digester = Digester()
        self._reference = ReferenceFold()
        self._taken: set[TopicPartition] = set()
        """Partitions whose leader was elected, with permission, from outside ISR and ELR, and that have not recovered
        since."""

    @property
    def end_offset(self) -> int:
        return self.image.offset

    def take(self, batches: Iterable[bytes]) -> None:
        """Apply committed batches in order. Batches below `end_offset` are skipped, because they have been applied."""
        for data in batches:
            header = read_header(data)
            if header.next_offset <= self.image.offset:
                continue
            if header.base_offset != self.image.offset:
                return  # this log begins after a snapshot; a log that has all records reports the skipped ones
            builder = ImageBuilder(self.image)
            for event in _events(data):
                builder.apply(event)
                self._reference.apply(event)
                self._report_allocation(event)
            old, self.image = self.image, builder.build(header.next_offset, header.partition_leader_epoch)
            delta = builder.delta()
            for broker_id in delta.brokers:
                self._report_broker(old.brokers.get(broker_id), self.image.brokers.get(broker_id))
            for topic_id, changed in delta.topics.items():
                before, after = old.topics.get_by_id(topic_id), self.image.topics.get_by_id(topic_id)
                for index in changed.partitions:
                    if after is not None:
                        held = None if before is None else before.find(index)
                        self._report_partition(after, index, held)
            for topic_id in delta.deleted_topics:
                gone = old.topics.get_by_id(topic_id)
                if gone is not None:
                    self._tell(TopicDeleted(self._labels.of(topic_id, gone.name)))
            if self.image.offset:
                committed = self.image.offset
                self._tell(ImagePublished(THE_FOLD, 1, committed, self._digester.digest(self.image), committed))
                touched, differences = self._reference.differences(self.image)
                if touched:
                    self._tell(MetadataFolded(committed, touched, tuple(differences)))

    def finish(self) -> None:
        """Compare the whole image at the end of the run, including objects that no event changed."""
        differences = self._reference.all_differences(self.image)
        self._tell(MetadataFolded(self.image.offset, 0, tuple(differences)))

    def _report_allocation(self, event: Event) -> None:
        if isinstance(event, Topic):
            self._tell(TopicRecorded(str(event.topic_id)))
        elif isinstance(event, ProducerIds):
            self._tell(ProducerIdsRecorded(event.next_producer_id))

    def _report_broker(self, old: BrokerRegistration | None, new: BrokerRegistration | None) -> None:
        if new is not None and (old is None or new.broker_epoch != old.broker_epoch):
            self._tell(BrokerRegistered(new.broker_id, new.broker_epoch, self._lives[new.incarnation_id]))
        if old is not None and old.is_active and (new is None or not new.is_active):
            self._tell(BrokerInactive(old.broker_id))
        if new is not None and not new.fenced and (old is None or old.fenced):
            self._tell(BrokerUnfenced(new.broker_id, new.broker_epoch))
        if old is None or old.fenced or new is None:
            return
        superseded = new.broker_epoch != old.broker_epoch
        if superseded or new.fenced:
            self._fenced(FenceRecorded(old, superseded, self.image.epoch))

    def _report_partition(self, topic: TopicImage, index: int, old: PartitionState | None) -> None:
        new = topic.partition(index)
        place = (self._labels.of(topic.topic_id, topic.name), index)
        unclean = self._is_unclean(place, old, new)
        brokers = self.image.brokers
        inactive = [member for member in new.isr if member not in brokers or not brokers[member].is_active]
        unable = [replica for replica in new.replicas if not _is_able(brokers.get(replica), new.directory_of(replica))]
        self._tell(
            PartitionRecorded(
                place,
                new.isr,
                new.elr,
                new.last_known_elr,
                new.leader,
                new.leader_epoch,
                new.partition_epoch,
                unclean,
                min(self._min_isr(self.image, topic.name), len(new.replicas)),
                self._now_ms(),
                new.replicas,
                tuple(inactive),
                new.adding,
                new.removing,
                tuple(unable),
            )
        )

    def _is_unclean(self, place: TopicPartition, old: PartitionState | None, new: PartitionState) -> bool:
        """Return whether this leader was elected from outside ISR and ELR without permission, or before the partition
        recovered."""
        is_recovering = new.leader_recovery_state == RecoveryState.RECOVERING
        if not is_recovering:
            self._taken.discard(place)
        if old is not None and new.leader not in (NO_LEADER, old.leader):
            good = (*old.isr, *old.elr)
            if (old.is_reassigning and not new.is_reassigning) or {old.leader, *old.isr} < {*new.isr}:
                # A replica that joined the ISR with this very change may lead at once: it completed a reassignment, or
                # was accepted while its leader's directory was being lost.
                good += new.isr
            if new.leader not in good:
                if not self._may_take(place, new.leader):
                    return True
                self._taken.add(place)
        return is_recovering and place not in self._taken


def _is_able(broker: BrokerRegistration | None, directory: UUID | None) -> bool:
    """Return whether a replica on this broker, in this directory, can be in sync."""
    return broker is not None and broker.is_active and (directory is None or broker.has_directory(directory))
