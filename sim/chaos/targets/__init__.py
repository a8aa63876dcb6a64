"""Synchronous: the clusters that a run may break, behind one face: ours, Apache Kafka, and one that the user brings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from kraft.seam import Seam
from kraft.sim.breakable_cluster import BreakableCluster


class Target(Protocol):
    """A cluster for the time of a run. `open` and `close` block; all else returns at once."""

    kind: str
    """pykraft, kafka, or the address of a cluster that was brought."""

    @property
    def cluster(self) -> BreakableCluster: ...

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin, behind the proxies."""
        ...

    @property
    def direct_servers(self) -> Mapping[int, str]:
        """Where the observer asks each broker."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report must know of this kind of cluster."""
        ...

    def open(self) -> None:
        """Bring it up. ClusterError says what went wrong."""
        ...

    def close(self) -> None: ...

    def client_seam(self) -> AbstractAsyncContextManager[Seam | None]:
        """The outside world for clients of ours whose dials must be led to the proxies; None where the addresses that
        brokers advertise lead there anyway."""
        ...

    @property
    def keeps_gaps(self) -> bool:
        """Whether gaps are held to what the scenario expects: of clusters of ours."""
        ...

    @property
    def is_lasting(self) -> bool:
        """Whether the cluster is there after the run: then the run's topic is deleted."""
        ...

    def versions(self) -> Mapping[str, str]: ...

    def running(self) -> tuple[int, ...]:
        """The nodes whose process runs and is not frozen."""
        ...

    def facts(self) -> Mapping[str, float]:
        """Measurements for the samples (see kraft.sim.chaos.judge.evidence)."""
        ...

    def data(self) -> Mapping[int, Path]:
        """Node → the folder with its data, where that is this machine's."""
        ...

    def logs(self) -> Mapping[str, Path]:
        """Name in the run's folder → the log of a node or of a proxy."""
        ...
