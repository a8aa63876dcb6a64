"""Brokers and leaders as values."""

from __future__ import annotations

from dataclasses import dataclass

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
