"""Callbacks for the events of a world of Raft cores.

The base class here only counts; it checks and changes nothing. `CoreChecks` is the subclass that checks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraft.raft.inputs import Input
from kraft.raft.log_view import SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import Leadership
from kraft.wire.rpc.quorum_messages import QuorumRequest, QuorumResponse

if TYPE_CHECKING:
    from kraft.sim.cores.driver import CoreDriver
    from kraft.sim.cores.node import CoreEntry, CoreNode

Memory = tuple[str, object]
"""State that is recorded before a step, to be compared after it: the name of the check, and the state."""


class Witness:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Check → number of events that could have violated it."""

    def on_boot(self, node: CoreNode) -> None:
        """Called when a node starts from its disk; its core does not exist yet."""

    def on_crash(self, world: CoreDriver) -> None:
        """Called when a node has crashed."""

    def before(self, world: CoreDriver, node: CoreNode, raft: Raft, event: Input) -> Memory | None:
        """Called when a core is about to process this input."""
        return None

    def after(self, world: CoreDriver, node: CoreNode, raft: Raft, memory: Memory | None) -> None:
        """Called when a core has processed an input; `memory` is what `before` returned."""

    def on_state(self, node: CoreNode) -> None:
        """Called when a quorum state has become durable."""

    def on_leadership(self, node: CoreNode, leadership: Leadership) -> None:
        """Called when the node's state machine is notified of the leader."""

    def on_append(self, node: CoreNode, raft: Raft, entry: CoreEntry) -> None:
        """Called when an entry was written but not yet synced."""

    def on_truncate(self, node: CoreNode, raft: Raft, offset: int) -> None:
        """Called when the log is about to be truncated to `offset`."""

    def on_install(self, node: CoreNode, raft: Raft, snapshot: SnapshotId, chain: int) -> None:
        """Called when a downloaded snapshot is about to replace the log."""

    def on_high_watermark(self, world: CoreDriver, node: CoreNode, raft: Raft, offset: int) -> None:
        """Called when the state machine is notified that everything below `offset` is committed."""

    def on_send(self, node: CoreNode, raft: Raft, request: QuorumRequest) -> None:
        """Called when a request is sent."""

    def on_answer(self, node: CoreNode, raft: Raft, response: QuorumResponse) -> None:
        """Called when an answer is sent."""

    def on_answer_to(self, node: CoreNode, raft: Raft, sender: CoreNode, response: QuorumResponse) -> None:
        """Called when a request is answered for the first time; `sender` is the node that sent the request."""
