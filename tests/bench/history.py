"""Read a node's metadata log from its files: the cluster's history, with the time at which each event was appended."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import trio

from kraft.config import NodeConfig
from kraft.image import Event, ImageBuilder, MetadataImage, decode_event, encode_event
from kraft.image.dump import encoded_dump
from kraft.image.encoded import apply_encoded
from kraft.image.events import PartitionChange
from kraft.image.image import EMPTY_IMAGE
from kraft.quorum.metadata_log import MetadataLog
from kraft.quorum.node_settings import configured_voters, log_config
from kraft.raft.log_view import SnapshotId
from kraft.runtime import open_seam
from kraft.wire.records import decode_batch, iter_headers

Batch = tuple[int, list[Event]]
"""A batch of events: the time of its append in wall clock ms, and its events."""


class History:
    """The content of one node's metadata log at the time when this object was created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.batches = list(_read(folder / "data" / "__cluster_metadata-0"))

    def image(self) -> MetadataImage:
        """Return the metadata image at the end of the log, replayed from bytes as nodes do it."""
        builder = ImageBuilder(EMPTY_IMAGE)
        apply_encoded(builder, (encode_event(event) for _, events in self.batches for event in events))
        return builder.build(1, 1)

    def left_leadership(self, broker_id: int, *, since_ms: int) -> tuple[int, int, int]:
        """Return three results for the partitions that this broker led: when the last of them got another leader (wall
        clock ms), how many got one, and how many have this broker or no broker as their leader."""
        last_ms, moved = since_ms, 0
        for appended_ms, events in self.batches:
            if appended_ms >= since_ms:
                elected = sum(1 for event in events if isinstance(event, PartitionChange) and event.leader >= 0)
                moved += elected
                last_ms = max(last_ms, appended_ms) if elected else last_ms
        left = sum(
            1 for topic in self.image().topics for _, state in topic.partitions() if state.leader in (broker_id, -1)
        )
        return last_ms, moved, left

    def measure_snapshot(self) -> tuple[int, float]:
        """Return the memory that the image needs in bytes, and the seconds to load the image from a snapshot file."""
        image = self.image()
        load_s = trio.run(self._load, image)
        del image
        gc.collect()
        tracemalloc.start()
        kept = self.image()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del kept
        return size, load_s

    async def _load(self, image: MetadataImage) -> float:
        """Write the image as a snapshot beside the log, and load it like a starting node."""
        properties = dict(
            line.split("=", 1)
            for line in (self._folder / "server.properties").read_text().splitlines()
            if "=" in line and not line.startswith("#")
        )
        config = NodeConfig.parse(properties)
        async with open_seam(node_name="bench") as seam:
            folder = str(self._folder / "bench")
            voters = configured_voters(config)
            log, _, _ = MetadataLog.open(seam.disk, seam.clock, folder, "CONTROLLER", log_config(config), voters)
            snapshot = SnapshotId(1, 1)
            writer = log.begin_snapshot(snapshot, None)
            for chunk in encoded_dump(image, 512):
                writer.append(chunk)
            writer.finish()
            gc.collect()
            gc.freeze()
            began = time.monotonic()
            builder = ImageBuilder(EMPTY_IMAGE)
            apply_encoded(builder, log.read_snapshot(snapshot).values)
            builder.build(1, 1)
            return time.monotonic() - began


def _read(folder: Path) -> Iterator[Batch]:
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        for position, header in iter_headers(data):
            if not header.is_control:
                values = (record.value or b"" for record in decode_batch(data, position))
                yield header.max_timestamp, [decode_event(value) for value in values]
