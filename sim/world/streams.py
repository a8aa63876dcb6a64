"""The two streams of a connection, and their ends.

A stream is ordered bytes in one direction: the pieces that were sent and are in flight, each with its time of arrival.
A cut link holds its pieces until it heals. The end of a stream is a piece as well: FIN (everything before it is read
first) or RST (unread bytes are lost).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kraft.seam import LinkQuality
from kraft.sim.world.host import Host
from kraft.sim.world.options import SECOND_NS

if TYPE_CHECKING:
    from kraft.sim.world.fabric import Fabric


class Finish(Enum):
    """How a stream ends: FIN or RST."""

    FIN = "fin"
    RST = "rst"


Piece = tuple[int, bytes | Finish]


class Receiver(Protocol):
    """The end of a stream that reads its bytes."""

    host: Host

    @property
    def deaf(self) -> bool:
        """Whether the receiver's host has no power, so that nothing answers."""
        ...

    @property
    def ended(self) -> bool: ...

    def arrive(self, data: bytes) -> None: ...

    def arrive_finish(self, finish: Finish) -> None: ...


class Stream:
    """One direction of a connection, from `source` to the receiver's host."""

    def __init__(self, fabric: Fabric, source: Host, target: Host) -> None:
        self.source = source
        self.target = target
        self.back: Stream | None = None
        """The stream of the same connection in the opposite direction."""
        self.receiver: Receiver | None = None
        self.on_room: Callable[[], None] | None = None
        """Called when a sender that waits for room can send again."""
        self.outstanding = 0
        """Bytes sent and not yet read by the receiver."""
        self.finished: Finish | None = None
        self.swallowed = False
        """Whether bytes arrived at a host without power. The host will answer with a reset once it has booted."""
        self._fabric = fabric
        self._under_way: deque[Piece] = deque()
        self._last_ns = 0
        self._waits_for_room = False
        self._stalled_until_ns = 0
        self._quality: LinkQuality | None = None
        self._allowed_bytes = 0
        """Number of bytes that may still pass, if the link's quality has a limit."""

    # the sender's side

    @property
    def room(self) -> int:
        return self._fabric.options.stream_buffer_bytes - self.outstanding

    def send(self, data: bytes) -> None:
        self.outstanding += len(data)
        quality = self._fabric.quality(self.source, self.target)
        if quality is None:
            self._put(data, self._transfer_ns(data))
        else:
            self._send_with(quality, data)

    def _transfer_ns(self, data: bytes) -> int:
        return len(data) * 1000 // self._fabric.options.bytes_per_microsecond

    def _send_with(self, quality: LinkQuality, data: bytes) -> None:
        """Send data over a link with a quality: slowly, or only a part of it, which ends the connection."""
        if quality is not self._quality:
            self._quality, self._allowed_bytes = quality, quality.bytes_max
        whole = data
        if quality.bytes_max:
            data = data[: self._allowed_bytes]
            self._allowed_bytes -= len(data)
        slowness_ns = len(data) * SECOND_NS // quality.bytes_per_second if quality.bytes_per_second else 0
        if data:
            self._put(data, self._transfer_ns(data) + slowness_ns)
        if len(data) < len(whole):
            self.finish(Finish.FIN)
            if self.back is not None:
                self.back.finish(Finish.FIN)

    def finish(self, finish: Finish) -> None:
        """End the stream; later calls do nothing, except that a RST may follow a FIN."""
        if self.finished is None or (self.finished is Finish.FIN and finish is Finish.RST):
            self.finished = finish
            self._put(finish, 0)

    def want_room(self, on_room: Callable[[], None]) -> None:
        self._waits_for_room = True
        self.on_room = on_room

    def stall(self, until_ns: int) -> None:
        """Let nothing that is sent from now on arrive before this time."""
        self._stalled_until_ns = max(self._stalled_until_ns, until_ns)
        self._last_ns = max(self._last_ns, until_ns)

    def hurry(self) -> None:
        """Let pieces in flight arrive soon, in order, because the link is fast again. A stalled stream does
        not change."""
        fabric = self._fabric
        soon_ns = max(self._stalled_until_ns, fabric.schedule.now_ns + fabric.delay_ns(self.source, self.target))
        self._under_way = deque((min(at_ns, soon_ns), content) for at_ns, content in self._under_way)
        self._last_ns = min(self._last_ns, soon_ns)
        fabric.schedule.at(soon_ns, self.deliver)

    def _put(self, content: bytes | Finish, transfer_ns: int) -> None:
        fabric = self._fabric
        arrival_ns = (
            max(self._last_ns, fabric.schedule.now_ns + fabric.delay_ns(self.source, self.target)) + transfer_ns
        )
        self._last_ns = arrival_ns
        self._under_way.append((arrival_ns, content))
        fabric.schedule.at(arrival_ns, self.deliver)

    # in flight

    def deliver(self) -> None:
        """Deliver what has arrived by now, unless the link holds it."""
        now_ns = self._fabric.schedule.now_ns
        under_way = self._under_way
        while under_way and under_way[0][0] <= now_ns:
            if self._fabric.is_cut(self.source, self.target):
                self._fabric.hold(self)
                return
            _, content = under_way.popleft()
            self._hand_over(content)

    def release(self) -> None:
        """Let held pieces arrive soon, still in order, because the link has healed."""
        self._fabric.schedule.after(self._fabric.delay_ns(self.source, self.target), self.deliver)

    def lose_some(self, keep: int) -> None:
        """Cut the connection: only the first `keep` pieces in flight still arrive."""
        while len(self._under_way) > keep:
            self._under_way.pop()

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def _hand_over(self, content: bytes | Finish) -> None:
        receiver = self.receiver
        if receiver is None or receiver.deaf:
            self.swallowed = True
        elif isinstance(content, Finish):
            if not receiver.ended:
                receiver.arrive_finish(content)
        elif receiver.ended:
            self._answer_with_reset()
        else:
            receiver.arrive(content)

    def _answer_with_reset(self) -> None:
        """Answer bytes for an end that no longer exists with a reset, as the kernel of its host does."""
        if self.back is not None:
            self.back.finish(Finish.RST)

    # the receiver's side

    def was_read(self, count: int) -> None:
        """Record that the receiver has read bytes. A waiting sender is notified after the travel time back."""
        if not self._waits_for_room:
            self.outstanding -= count
            return
        fabric = self._fabric
        fabric.schedule.after(fabric.delay_ns(self.target, self.source), lambda: self._give_room(count))

    def _give_room(self, count: int) -> None:
        if self._fabric.is_cut(self.target, self.source):
            self._fabric.schedule.after(self._fabric.options.slow_delay_ns, lambda: self._give_room(count))
            return
        self.outstanding -= count
        self._waits_for_room = False
        if self.on_room is not None:
            self.on_room()
