"""What a world of cores tells of, at the moment when it happens. Sees everything, demands nothing, and changes nothing:
`Checks` is the witness that demands."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraft.raft.inputs import Input
from kraft.raft.log_view import SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import Leadership
from kraft.wire.rpc.quorum_messages import QuorumRequest, QuorumResponse

if TYPE_CHECKING:
    from kraft.sim.cores.driver import Driver
    from kraft.sim.cores.node import Entry, Node

Memory = tuple[str, object]
"""What a witness noted before a step: a check's name, and what it looks at."""


class Witness:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each check looked at something that could have failed it."""

    def on_boot(self, node: Node) -> None:
        """It starts from its disk; its core is not there yet."""

    def on_crash(self, world: Driver) -> None:
        """A node has died."""

    def before(self, world: Driver, node: Node, raft: Raft, event: Input) -> Memory | None:
        """A core is about to take this input."""
        return None

    def after(self, world: Driver, node: Node, raft: Raft, memory: Memory | None) -> None:
        """It has; `memory` is what `before` gave."""

    def on_state(self, node: Node) -> None:
        """A quorum state has become durable."""

    def on_leadership(self, node: Node, leadership: Leadership) -> None:
        """The node's state machine is told who leads."""

    def on_append(self, node: Node, raft: Raft, entry: Entry) -> None:
        """An entry was written, and is not synced."""

    def on_truncate(self, node: Node, raft: Raft, offset: int) -> None:
        """The log is about to be cut to `offset`."""

    def on_install(self, node: Node, raft: Raft, snapshot: SnapshotId, chain: int) -> None:
        """A downloaded snapshot is about to replace the log."""

    def on_high_watermark(self, world: Driver, node: Node, raft: Raft, offset: int) -> None:
        """The state machine is told that everything below `offset` is committed."""

    def on_send(self, node: Node, raft: Raft, request: QuorumRequest) -> None:
        """A request leaves."""

    def on_answer(self, node: Node, raft: Raft, response: QuorumResponse) -> None:
        """An answer leaves."""

    def on_answer_to(self, node: Node, raft: Raft, sender: Node, response: QuorumResponse) -> None:
        """The same, if somebody still waits for it."""
