"""Brokers and leaders as values."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.seam import Address


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as Metadata tells it."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition (-1: nobody that we know), as of which leader epoch."""

    node_id: int
    epoch: int
