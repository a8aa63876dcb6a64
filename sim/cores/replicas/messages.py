"""Messages between brokers: one partition's part of Kafka's Fetch and ListOffsets, and heartbeats."""

from __future__ import annotations

from typing import NamedTuple

from kraft.control.commands import BrokerHeartbeat
from kraft.sim.cores.replicas.log import ReplicaBatch
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import LogEndRow, LogEpochs


class Fetch(NamedTuple):
    """Fetch request of a follower, from `fetch_offset`. `token` is the follower's id for the request."""

    token: int
    replica_id: int
    broker_epoch: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Fetched(NamedTuple):
    """Response to a follower's fetch. `diverging`: (epoch, end offset) of the leader where the histories diverge."""

    fetch: Fetch
    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None
    batches: tuple[ReplicaBatch, ...] = ()


class ListOffset(NamedTuple):
    """Request of a follower whose fetch offset was out of range, for the leader's log end offset. If `latest` is that
    log end offset, the request is for the leader's log start offset."""

    replica_id: int
    leader_epoch: int
    latest: int | None


class Listed(NamedTuple):
    """Response to a follower's request for an offset; `offset` is None for an error."""

    asked: ListOffset
    offset: int | None


class Heartbeat(NamedTuple):
    """A broker's heartbeat to the controller. It contains the log end offset while no replica is known to be
    complete."""

    command: BrokerHeartbeat
    log_ends: tuple[LogEndRow, ...]
    log_epochs: tuple[LogEpochs, ...]
