"""Brokers, leaders and feature levels as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraft.seam import Address


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """A broker's id and address as in a Metadata response."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The leader of a partition (-1: unknown) and its leader epoch."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The levels of the features that are on in the cluster, as a broker knows them. A higher `epoch` is newer; -1 is
    that of a broker that does not know any."""

    levels: Mapping[str, int] = field(default_factory=dict)
    epoch: int = -1

    def newest(self, reported: FinalizedFeatures) -> FinalizedFeatures:
        """The newer of two: a broker that is behind must not lower a level."""
        return reported if reported.epoch >= self.epoch else self
