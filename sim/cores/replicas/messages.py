"""What brokers say to each other, one partition's part of Kafka's Fetch and ListOffsets, and their heartbeats."""

from __future__ import annotations

from typing import NamedTuple

from kraft.control.commands import BrokerHeartbeat
from kraft.sim.cores.replicas.log import Batch
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import LogEndRow, LogEpochs


class Fetch(NamedTuple):
    """A follower asks from `fetch_offset`. `token` is its name for the request."""

    token: int
    replica_id: int
    broker_epoch: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Fetched(NamedTuple):
    """The answer. `diverging`: (epoch, end offset) of the leader where the histories differ."""

    fetch: Fetch
    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None
    batches: tuple[Batch, ...] = ()


class ListOffset(NamedTuple):
    """A follower that was out of range asks for the leader's end, or, with `latest` known, for its start."""

    replica_id: int
    leader_epoch: int
    latest: int | None


class Listed(NamedTuple):
    """`offset` is None for an error."""

    asked: ListOffset
    offset: int | None


class Heartbeat(NamedTuple):
    """What a broker tells the controller; also how far its log reaches, where nobody is known to be complete."""

    command: BrokerHeartbeat
    log_ends: tuple[LogEndRow, ...]
    log_epochs: tuple[LogEpochs, ...]
