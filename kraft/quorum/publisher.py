"""MetadataPublisher: replays the committed metadata log into an image, and notifies subscribers of changes.

Controllers and brokers each have one. Snapshots of the committed image are made after 20 MiB of log or one hour. The
quorum writes them in slices, off the critical path. An active controller in the same process has replayed its own
events already: its images are reused if they follow the published one. Large batches and snapshots are replayed in
steps before they are delivered, and those images are reused too.

Invariants: replay never passes the high watermark. Published offsets never decrease within one process (M12). A
snapshot replaces everything; what it lacks counts as deleted. A committed event that cannot be read stops the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from kraft.config import NodeConfig
from kraft.image import ImageBuilder, ImageDelta, MetadataImage, UnknownEvent
from kraft.image.dump import encoded_dump
from kraft.image.encoded import apply_encoded
from kraft.image.image import EMPTY_IMAGE
from kraft.image.partitions import LEAF_PARTITIONS_MAX
from kraft.quorum.quorum import CommittedBatch, Quorum
from kraft.seam import Seam

SNAPSHOT_CHUNK_EVENTS = 512

Subscriber = Callable[[MetadataImage, MetadataImage, ImageDelta], None]
"""Callback that gets (old image, new image, delta) of each published change."""

LeaderSubscriber = Callable[[int | None, int], None]
"""Callback that gets (leader id or None, epoch) of the metadata quorum."""


class PreparedImage(NamedTuple):
    """An image computed ahead: `image` is `before` after one batch; `delta` is the difference."""

    before: MetadataImage
    image: MetadataImage
    delta: ImageDelta


class MetadataPublisher:
    """The committed metadata of one node. `image` is the newest published value."""

    def __init__(self, config: NodeConfig, seam: Seam, quorum: Quorum) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.leader_id: int | None = None
        self.epoch = 0
        self.applied_time_ms = -1
        """Time at which the last replayed batch was appended (wall clock); -1 if none."""
        self.leaders_seen = 0
        """Number of times that another leader of the quorum became known."""
        self.snapshots_loaded = 0
        self._quorum = quorum
        self._clock = seam.clock
        self._subscribers: list[Subscriber] = []
        self._leader_subscribers: list[LeaderSubscriber] = []
        self._snapshot_bytes_max = config.integer("metadata.log.max.record.bytes.between.snapshots")
        self._snapshot_interval_ms = config.integer("metadata.log.max.snapshot.interval.ms")
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = seam.clock.monotonic_ms()
        self._prepared: deque[PreparedImage] = deque()
        self._loaded: PreparedImage | None = None
        """Image of the snapshot that is delivered next, and its difference from the image that was published when the
        snapshot was read."""

    def subscribe(self, callback: Subscriber) -> None:
        """Call back after every published change, in order of subscription. If an image is published already, the
        callback gets it at once, as a change from an empty image."""
        self._subscribers.append(callback)
        if self.image is not EMPTY_IMAGE:
            callback(EMPTY_IMAGE, self.image, ImageDelta.between(EMPTY_IMAGE, self.image))

    def subscribe_leader(self, callback: LeaderSubscriber) -> None:
        """Call back whenever another leader or epoch of the metadata quorum becomes known."""
        self._leader_subscribers.append(callback)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Replay committed batches, as one change."""
        if not batches:
            return
        self.applied_time_ms = batches[-1].append_time_ms
        pending: list[CommittedBatch] = []
        for batch in batches:
            self._bytes_since_snapshot += batch.size_bytes
            known = None if pending else self._take_prepared(batch)
            if known is None:
                pending.append(batch)
            else:
                self._publish(known.image, known.delta)
        if pending:
            self._replay(pending)
        self._snapshot_if_due()

    def _replay(self, batches: Sequence[CommittedBatch]) -> None:
        builder = ImageBuilder(self.image)
        for batch in batches:
            _apply(builder, batch.records)
        last = batches[-1]
        self._publish(builder.build(last.next_offset, last.epoch), builder.delta())

    def replay_ahead(self, batch: CommittedBatch, events_max: int) -> Iterator[None] | None:
        """Replay a large batch before it is delivered, `events_max` events per step. Return None if that was done
        already."""
        prepared = self._prepared
        if prepared and prepared[0].image.offset == batch.next_offset and prepared[0].before is self.image:
            return None
        return self._replay_in_steps(self.image, batch, events_max)

    def _replay_in_steps(self, before: MetadataImage, batch: CommittedBatch, events_max: int) -> Iterator[None]:
        builder = ImageBuilder(before)
        yield from _apply_in_steps(builder, batch.records, events_max)
        image = builder.build(batch.next_offset, batch.epoch)
        self._prepared.appendleft(PreparedImage(before, image, builder.delta()))

    def load_ahead(self, offset: int, epoch: int, records: Sequence[bytes], events_max: int) -> Iterator[None]:
        """Replay a snapshot before it is delivered, `events_max` events per step, and compare it with the published
        image. The result is dropped if the image has reached the snapshot's offset meanwhile, because the snapshot is
        then not delivered."""
        builder = ImageBuilder(EMPTY_IMAGE)
        yield from _apply_in_steps(builder, records, events_max)
        before, image = self.image, builder.build(offset, epoch)
        delta = yield from _each(max(1, events_max // LEAF_PARTITIONS_MAX), ImageDelta.compare(before, image))
        if self.image.offset < offset:
            self._loaded = PreparedImage(before, image, delta)

    def prepare(self, prepared: PreparedImage) -> None:
        """Keep the image that the active controller, in this process, has already replayed for a batch that it
        appended. It is published when the batch commits, unless another batch comes in between."""
        self._prepared.append(prepared)

    def forget_prepared(self) -> None:
        """Drop prepared images: uncommitted batches may never commit."""
        self._prepared.clear()

    def _take_prepared(self, batch: CommittedBatch) -> PreparedImage | None:
        """Return the prepared image for this batch, if it was made from the current image."""
        prepared = self._prepared
        while prepared and prepared[0].image.offset < batch.next_offset:
            prepared.popleft()
        if not prepared or (prepared[0].image.offset, prepared[0].image.epoch) != (batch.next_offset, batch.epoch):
            return None
        first = prepared.popleft()
        return first if first.before is self.image else None

    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None:
        """Replace the image by a snapshot's content."""
        self.snapshots_loaded += 1
        loaded, self._loaded = self._loaded, None
        if loaded is None or (loaded.image.offset, loaded.image.epoch) != (offset, epoch):
            builder = ImageBuilder(EMPTY_IMAGE)
            _apply(builder, records)
            image = builder.build(offset, epoch)
            loaded = PreparedImage(self.image, image, ImageDelta.between(self.image, image))
        elif loaded.before is not self.image:
            loaded = loaded._replace(delta=ImageDelta.between(self.image, loaded.image))
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._clock.monotonic_ms()
        self._publish(loaded.image, loaded.delta)

    def on_leader(self, leader_id: int | None, epoch: int) -> None:
        """Store the leader of the quorum."""
        self.leaders_seen += leader_id is not None and (leader_id, epoch) != (self.leader_id, self.epoch)
        self.leader_id = leader_id
        self.epoch = epoch
        for callback in self._leader_subscribers:
            callback(leader_id, epoch)

    def on_became_leader(self, epoch: int, start_offset: int) -> None:
        """Do nothing: the controller is a separate listener."""

    def on_lost_leadership(self) -> None:
        """Drop prepared images, which may never be committed. The committed image does not change with leadership."""
        self.forget_prepared()

    def _publish(self, new: MetadataImage, delta: ImageDelta) -> None:
        old = self.image
        self.image = new
        for callback in self._subscribers:
            callback(old, new, delta)

    def _snapshot_if_due(self) -> None:
        now = self._clock.monotonic_ms()
        if self._bytes_since_snapshot < self._snapshot_bytes_max and (
            now - self._last_snapshot_ms < self._snapshot_interval_ms or self._bytes_since_snapshot == 0
        ):
            return
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = now
        self.snapshot()

    def snapshot(self) -> None:
        """Ask the quorum to write a snapshot of the published image; the quorum reads its slices later."""
        image = self.image
        self._quorum.request_snapshot(image.offset, image.epoch, encoded_dump(image, SNAPSHOT_CHUNK_EVENTS))


def _apply(builder: ImageBuilder, records: Iterable[bytes]) -> None:
    try:
        apply_encoded(builder, records)
    except UnknownEvent as unknown:
        raise UnknownEvent(unknown.number, unknown.version, builder.release) from None


def _apply_in_steps(builder: ImageBuilder, records: Sequence[bytes], events_max: int) -> Iterator[None]:
    for begin in range(0, len(records), events_max):
        _apply(builder, records[begin : begin + events_max])
        yield


def _each(count: int, steps: Generator[None, None, ImageDelta]) -> Generator[None, None, ImageDelta]:
    """Run the generator `steps` to its end, with one yield after every `count` of its steps. Return its result."""
    while True:
        for _ in range(count):
            try:
                next(steps)
            except StopIteration as end:
                found: ImageDelta = end.value
                return found
        yield
