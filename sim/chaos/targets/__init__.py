"""Synchronous: the clusters that a run may inject faults into, behind one interface: pykraft, Apache Kafka, and a
cluster of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from kraft.seam import Seam
from kraft.sim.breakable_cluster import BreakableCluster


class ChaosTarget(Protocol):
    """A cluster for the duration of a run. `open` and `close` block; everything else returns at once."""

    kind: str
    """Kind of the cluster: pykraft, kafka, or the address of the user's cluster."""

    @property
    def cluster(self) -> BreakableCluster: ...

    @property
    def bootstrap_servers(self) -> str:
        """The clients' bootstrap addresses, behind the proxies."""
        ...

    @property
    def direct_servers(self) -> Mapping[int, str]:
        """The addresses at which the observer queries each broker."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts about this kind of cluster for the report."""
        ...

    def open(self) -> None:
        """Start the cluster. Raises ClusterError with the reason if that fails."""
        ...

    def close(self) -> None: ...

    def client_seam(self) -> AbstractAsyncContextManager[Seam | None]:
        """Open the seam for pykraft's clients if their dials must be redirected to the proxies. Return None where the
        brokers' advertised addresses already lead to the proxies."""
        ...

    @property
    def enforces_max_gap(self) -> bool:
        """Whether the scenario's maximum gap is enforced: only for clusters of pykraft."""
        ...

    @property
    def is_lasting(self) -> bool:
        """Whether the cluster continues to exist after the run. If it does, the run deletes its own topic."""
        ...

    def versions(self) -> Mapping[str, str]: ...

    def running(self) -> tuple[int, ...]:
        """The nodes whose process runs and is not frozen."""
        ...

    def facts(self) -> Mapping[str, float]:
        """Return measurements for the samples (see kraft.sim.chaos.judge.evidence)."""
        ...

    def data(self) -> Mapping[int, Path]:
        """Return node → the folder with its data, if it is on this machine."""
        ...

    def logs(self) -> Mapping[str, Path]:
        """Return name in the run's folder → path of the log of a node or of a proxy."""
        ...
