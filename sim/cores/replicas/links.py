"""Processes, and delivery of messages between them: delayed, lost, duplicated, reordered, and none over a cut link.

Invariants: a message belongs to the incarnation that it was sent to. Messages and timers of a frozen process wait until
it continues. Times are in ms, probabilities per 1000.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraft.sim.cores.heap import EventHeap

Handler = Callable[..., None]


@dataclass(slots=True)
class ReplicaOdds:
    """Rates of faults in the world. `twice`: a message between brokers is duplicated. `waits_for_disk`:
    flush.messages=1, so an append counts only once it is synced. `trim`: a leader deletes records when it checks its
    timers."""

    latency: tuple[int, int] = (1, 4)
    sync: tuple[int, int] = (1, 6)
    commit: tuple[int, int] = (1, 8)
    """Time that the metadata quorum takes to commit a decision."""
    loss: int = 0
    twice: int = 0
    trim: int = 0
    waits_for_disk: bool = False


class Process:
    """A process that can be frozen and killed. `life` counts its starts."""

    __slots__ = ("inbox", "is_up", "life", "node_id", "paused_until")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.life = 0
        self.is_up = False
        self.paused_until = 0
        self.inbox: deque[tuple[Handler, tuple[Any, ...]]] = deque()


class ReplicaLinks(EventHeap):
    """Virtual time, and every link between the processes."""

    def __init__(self, seed: int, odds: ReplicaOdds) -> None:
        super().__init__(seed)
        self.odds = odds
        self.cut: set[tuple[int, int]] = set()
        """(source, target) pairs of nodes between which nothing arrives."""

    def send(self, sender: Process, target: Process, handler: Handler, *arguments: Any) -> None:
        """Call `handler(*arguments)` at the target after the link's latency, unless the message is lost."""
        odds, draw = self.odds, self.chance.random
        if self.cut and (sender.node_id, target.node_id) in self.cut:
            return
        if odds.loss and draw() * 1000 < odds.loss:
            return
        low, high = odds.latency
        delay = low + int(draw() * (high - low + 1))
        self.at(delay, self._arrive, target, target.life, handler, arguments)

    def send_between_brokers(self, sender: Process, target: Process, handler: Handler, *arguments: Any) -> None:
        """Like `send`, sometimes with a duplicate."""
        self.send(sender, target, handler, *arguments)
        if self.odds.twice and self.chance.random() * 1000 < self.odds.twice:
            self.send(sender, target, handler, *arguments)

    def after(self, process: Process, delay_ms: int, handler: Handler, *arguments: Any) -> None:
        """Call a handler of this process after some time, if it is still in the same incarnation."""
        self.at(delay_ms, self._arrive, process, process.life, handler, arguments)

    def _arrive(self, target: Process, life: int, handler: Handler, arguments: tuple[Any, ...]) -> None:
        if target.life != life or not target.is_up:
            return
        if self.now < target.paused_until:
            target.inbox.append((handler, arguments))
        else:
            handler(*arguments)

    def pause(self, process: Process, duration_ms: int) -> None:
        """Freeze the process for this long."""
        process.paused_until = max(process.paused_until, self.now + duration_ms)
        self.at(duration_ms, self._wake, process, process.life)

    def _wake(self, process: Process, life: int) -> None:
        inbox = process.inbox
        while inbox and process.life == life and process.is_up and self.now >= process.paused_until:
            handler, arguments = inbox.popleft()
            handler(*arguments)
