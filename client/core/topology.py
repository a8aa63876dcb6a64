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
    """The finalized levels of the cluster's features as one broker reports them. A higher `epoch` is newer; it is -1
    for a broker that does not know any levels."""

    levels: Mapping[str, int] = field(default_factory=dict)
    epoch: int = -1

    def newest(self, reported: FinalizedFeatures) -> FinalizedFeatures:
        """Return the levels with the higher epoch, so that a broker whose metadata lags cannot lower a level."""
        return reported if reported.epoch >= self.epoch else self
