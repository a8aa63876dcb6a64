"""ReplicaManager: all replicas that this broker hosts, their directories, fetchers and timers.

Order of a node's life: `open_directories` (locks, meta.properties, clean-shutdown files) → registration →
`load(image)` at the first publish → `run` for good, with `apply_delta` at every later publish → `shutdown`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import trio

if TYPE_CHECKING:
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.services import DataPlaneServices
    from kraft.image.delta import ImageDelta
    from kraft.image.image import MetadataImage


class ReplicaManager:
    """The data plane of one broker."""

    def __init__(self, services: DataPlaneServices) -> None:
        self.services = services

    async def open_directories(self) -> None:
        """Lock every log directory, check its meta.properties, note and delete its clean-shutdown file. Before
        registration; fills `directory_ids` and `previous_broker_epoch`. A directory that fails goes offline."""

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """Ids of the log directories that are online."""
        return ()

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch in the clean-shutdown files, for the registration; -1 if any was missing or they disagree."""
        return -1

    async def load(self, image: MetadataImage) -> None:
        """First publish: recover or note the logs on disk, set stray ones aside, take every role that `image` gives."""

    def apply_delta(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> None:
        """Take the roles of a newer image: deletes, then leaders, then followers. Never suspends; opening logs and
        fetching go on in the tasks of `run`."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The background of the data plane (fetchers, ISR, checkpoints, retention, deadlines) until cancelled.
        Started before `load`."""

    async def shutdown(self, *, clean: bool = True) -> None:
        """After `run` was cancelled: sync and close all logs, write checkpoints and, last, the clean-shutdown files
        with the broker epoch."""

    def partition(self, topic: str, index: int) -> Partition | None:
        """The hosted replica, or None."""
        return None
