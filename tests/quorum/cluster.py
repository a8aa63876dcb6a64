"""Nodes that run only a quorum: a listener that serves its requests, and a state machine that records the committed
log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import trio

from kraft.config import NodeConfig
from kraft.quorum.quorum import CommittedBatch, Quorum
from kraft.seam import Address, Binding, Seam
from kraft.storage.meta_properties import MetaProperties
from kraft.wire.server import Request, ServerConnection, ServerLimits

CLUSTER_ID = "quorum-test-cluster-id"


@dataclass
class Replica:
    """A state machine that records the values delivered to it, and the reported leadership."""

    values: list[bytes] = field(default_factory=list)
    next_offset: int = 0
    epoch: int = 0
    snapshots: list[int] = field(default_factory=list)
    leaders: list[tuple[int | None, int]] = field(default_factory=list)
    leads: int | None = None
    gaps: int = 0
    work_ahead: int = 0
    """Number of preparation steps that have run before deliveries."""
    ahead_of: int = -1

    def replay_ahead(self, batch: CommittedBatch, events_max: int) -> Iterator[None] | None:
        return None if self.ahead_of == batch.next_offset else self._steps(batch, events_max)

    def _steps(self, batch: CommittedBatch, events_max: int) -> Iterator[None]:
        for _ in range(0, len(batch.records), events_max):
            self.work_ahead += 1
            yield
        self.ahead_of = batch.next_offset

    def load_ahead(self, offset: int, epoch: int, records: Sequence[bytes], events_max: int) -> Iterator[None]:
        for _ in range(0, len(records), events_max):
            self.work_ahead += 1
            yield

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            if batch.base_offset != self.next_offset:
                self.gaps += 1
            self.values.extend(batch.records)
            self.next_offset = batch.next_offset
            self.epoch = batch.epoch

    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None:
        self.values = list(records)
        self.next_offset = offset
        self.epoch = epoch
        self.snapshots.append(offset)

    def on_leader(self, leader_id: int | None, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))

    def on_became_leader(self, epoch: int, start_offset: int) -> None:
        assert self.next_offset > start_offset
        self.leads = epoch

    def on_lost_leadership(self) -> None:
        assert self.leads is not None
        self.leads = None


def config_of(
    node_id: int,
    voters: dict[int, tuple[str, int]],
    directory: str,
    *,
    is_controller: bool = True,
    **extra: str,
) -> NodeConfig:
    """Return the configuration of one node; keyword arguments have _ for the dots of a key."""
    quorum = ",".join(f"{number}@{host}:{port}" for number, (host, port) in sorted(voters.items()))
    properties = {
        "node.id": str(node_id),
        "log.dirs": directory,
        "controller.quorum.voters": quorum,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    if is_controller:
        host, port = voters[node_id]
        properties |= {"process.roles": "controller", "listeners": f"CONTROLLER://{host}:{port}"}
    else:
        properties |= {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:19092"}
    properties |= {key.replace("_", "."): value for key, value in extra.items()}
    return NodeConfig.parse(properties)


@dataclass
class Member:
    """One node across its restarts: `quorum` and `replica` belong to the current process."""

    config: NodeConfig
    directory_id: UUID
    quorum: Quorum | None = None
    replica: Replica = field(default_factory=Replica)
    seam: Seam | None = None
    handle: Callable[[Member, Request], None] | None = None
    """Function that serves this node's requests instead of the quorum, if set."""
    cluster_id: str = CLUSTER_ID

    async def main(self, seam: Seam, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        meta = MetaProperties(self.cluster_id, self.config.node_id, self.directory_id)
        quorum = Quorum(self.config, seam, meta)
        self.replica = Replica()
        quorum.add_listener(self.replica)
        self.quorum = quorum
        self.seam = seam
        if self.config.is_controller:
            listener = self.config.listeners[0]
            address = Address(listener.host, listener.port)
            seam.network.serve(Binding(listener.name, address), lambda transport: _serve(transport, self))
        await quorum.run(task_status=task_status)


def _serve(transport: object, member: Member) -> ServerConnection:
    quorum = member.quorum
    assert quorum is not None

    def on_request(request: Request) -> None:
        if member.handle is not None:
            member.handle(member, request)
        else:
            assert quorum.handle(request)

    return ServerConnection(transport, on_request, limits=ServerLimits(), budget=None)  # type: ignore[arg-type]
