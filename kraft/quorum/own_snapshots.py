"""Snapshots that this node writes, and removal of the log that they cover.

A snapshot is written in slices off the loop while appends continue. Cleaning needs two or more snapshots. It runs while
log and snapshots are larger than `metadata.max.retention.bytes`, or the oldest is older than
`metadata.max.retention.ms`. It moves the log start to the end of the next snapshot, so a log start above 0 always has a
snapshot.
Source: KIP-630, Kafka's KafkaMetadataLog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog
import trio

from kraft.quorum.listener_delivery import Delivery
from kraft.quorum.raft_driver import QuorumDriver
from kraft.raft.identity import VoterSet
from kraft.raft.inputs import LogTrimmed, SnapshotWritten
from kraft.raft.log_view import SnapshotId
from kraft.seam import Seam

log = structlog.get_logger("kraft.quorum")

CLEAN_INTERVAL_MS = 60_000
SLICE_VALUES = 1024
"""Number of event values that one offloaded write appends to a snapshot."""

Chunks = Iterable[Sequence[bytes]]


class SnapshotKeeper:
    def __init__(
        self, seam: Seam, driver: QuorumDriver, delivery: Delivery, *, retention_bytes: int, retention_ms: int
    ) -> None:
        self._seam = seam
        self._driver = driver
        self._delivery = delivery
        self._retention_bytes = retention_bytes
        self._retention_ms = retention_ms
        self._wanted: tuple[SnapshotId, Chunks] | None = None
        self._arrived = trio.Event()
        self._to_unlink: list[str] = []

    def request(self, snapshot: SnapshotId, chunks: Chunks) -> None:
        """Write this snapshot soon. A newer request replaces one that has not started."""
        self._wanted = (snapshot, chunks)
        self._arrived.set()

    async def run(self) -> None:
        """Write requested snapshots, and clean after each and once a minute, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_all)
            nursery.start_soon(self._clean_periodically)

    async def _write_all(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            if self._wanted is None:
                continue
            (snapshot, chunks), self._wanted = self._wanted, None
            if self._driver.raft.may_snapshot(snapshot) and snapshot not in self._driver.raft.log.snapshots:
                await self._write(snapshot, chunks)
                await self._clean()

    async def _write(self, snapshot: SnapshotId, chunks: Chunks) -> None:
        driver, offload = self._driver, self._seam.disk.offload
        writer = await offload(driver.metadata.begin_snapshot, snapshot, self._voters_at(snapshot))
        values: list[bytes] = []
        for chunk in chunks:
            values.extend(chunk)
            if len(values) >= SLICE_VALUES:
                await offload(writer.append, values)
                values = []
        await offload(writer.append, values)
        if driver.raft.log.start_offset > snapshot.end_offset:
            # A newer snapshot was fetched from the leader meanwhile.
            await offload(writer.abandon)
            return
        await offload(writer.finish)
        driver.measures.snapshot_bytes = writer.size_bytes
        driver.measures.snapshot_ms = self._seam.clock.monotonic_ms()
        async with driver.files:
            # By now the core knows of an install that was in progress. That install may have deleted older files before
            # this one was complete.
            if driver.raft.log.start_offset > snapshot.end_offset:
                await offload(driver.metadata.remove_snapshot, snapshot)
                return
            self._delivery.written(snapshot)
            driver.offer(SnapshotWritten(snapshot))
        log.info("snapshot written", end_offset=snapshot.end_offset, epoch=snapshot.epoch)

    def _voters_at(self, snapshot: SnapshotId) -> VoterSet | None:
        """Return the voter set as of the snapshot; None for a static set, which every node has in its configuration."""
        voters = self._driver.raft.log.voters.at(snapshot.end_offset)
        return None if voters.is_configured else voters

    async def _clean_periodically(self) -> None:
        while True:
            await self._seam.clock.sleep_ms(CLEAN_INTERVAL_MS)
            await self._clean()
            paths, self._to_unlink = self._to_unlink, []
            for path in paths:
                await self._seam.disk.offload(self._seam.disk.unlink, path)

    async def _clean(self) -> None:
        """Raise the log start past the oldest snapshots, one at a time, while the retention limits are exceeded."""
        driver, metadata = self._driver, self._driver.metadata
        async with driver.files:
            while len(driver.raft.log.snapshots) >= 2 and not driver.is_blocked:
                oldest, following = driver.raft.log.snapshots[:2]
                if not await self._is_too_much(oldest):
                    return
                if driver.is_blocked or driver.raft.log.snapshots[:2] != [oldest, following]:
                    return
                self._to_unlink += metadata.trim(following.end_offset, [oldest])
                driver.offer(LogTrimmed(following.end_offset))
                log.info("metadata log trimmed", log_start_offset=following.end_offset)
                if driver.raft.log.start_offset < following.end_offset:
                    return  # the node is stopping: the disk no longer matches the core

    async def _is_too_much(self, oldest: SnapshotId) -> bool:
        offload, metadata = self._seam.disk.offload, self._driver.metadata
        snapshots = list(self._driver.raft.log.snapshots)
        if 0 <= self._retention_bytes < await offload(metadata.sizes, snapshots):
            return True
        return 0 <= self._retention_ms < await offload(metadata.snapshot_age_ms, oldest)
