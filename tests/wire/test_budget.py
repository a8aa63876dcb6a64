from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import CloseReason
from kraft.wire.budget import LARGE_BYTES, STALL_BYTES_MIN, STALL_MS_MAX, MemoryBudget
from kraft.wire.client import ClientConnection, ClientLimits
from kraft.wire.framing import FIRST_STEP_BYTES, IDLE_BUFFER_BYTES, KEPT_BUFFER_BYTES, READ_BUFFER_BYTES
from kraft.wire.server import Request, ServerConnection, ServerLimits
from tests.stages.fake_transport import RecordingTransport, drain, feed, frame

MIB = 1 << 20


def test_budget_never_grants_more_than_its_total_and_returned_bytes_can_be_taken_again() -> None:
    budget = MemoryBudget(10 * MIB)
    assert budget.try_take(MIB)
    assert budget.try_take(LARGE_BYTES)
    taken = 1
    while budget.try_take(MIB):
        taken += 1
    assert budget.used_bytes == 10 * MIB == taken * MIB + LARGE_BYTES
    budget.give(MIB)
    assert budget.try_take(MIB)


def test_large_takes_from_the_memory_budget_leave_a_quarter_for_small_takes() -> None:
    budget = MemoryBudget(100 * MIB)
    assert budget.try_take(70 * MIB)
    assert not budget.try_take(10 * MIB)
    for _ in range(25):
        assert budget.try_take(MIB)


def test_budget_admits_one_large_take_of_any_size_when_no_other_is_held() -> None:
    budget = MemoryBudget(10 * MIB)
    assert budget.try_take(100 * MIB)
    assert not budget.try_take(3 * MIB)
    assert budget.try_take(MIB), "small ones keep their share"
    budget.give(100 * MIB)
    assert budget.large_used_bytes == 0
    assert budget.try_take(3 * MIB)


def test_budget_waiters_are_served_in_order_and_not_overtaken_by_new_takes() -> None:
    budget = MemoryBudget(4 * MIB)
    budget.take(4 * MIB)
    budget.give(4 * MIB)
    small = [MIB] * 4
    for count in small:
        assert budget.try_take(count)
    served: list[str] = []
    budget.when_free(2 * MIB, lambda: served.append("first"))
    dropped = budget.when_free(MIB, lambda: served.append("dropped"))
    budget.when_free(MIB, lambda: served.append("second"))
    assert budget.has_waiters
    budget.give(MIB)
    assert served == []
    assert not budget.try_take(1)
    dropped.cancel()
    budget.give(MIB)
    assert served == ["first"]
    budget.give(MIB)
    assert served == ["first", "second"]
    assert not budget.has_waiters


class Peer:
    """A connection that shares a budget, and the requests that its handler received."""

    def __init__(self, budget: MemoryBudget | None, limits: ServerLimits | None = None) -> None:
        self.transport = RecordingTransport()
        self.sizes: list[int] = []
        self.connection = ServerConnection(self.transport, self.handle, limits=limits or ServerLimits(), budget=budget)

    def handle(self, request: Request) -> None:
        self.sizes.append(len(request.body))
        request.respond(b"ok")

    @property
    def buffer_bytes(self) -> int:
        return len(self.connection._buffer)


def test_a_frame_that_fits_the_idle_buffer_takes_nothing_from_the_budget() -> None:
    budget = MemoryBudget(0)
    peer = Peer(budget)
    feed(peer.connection, frame(bytes(IDLE_BUFFER_BYTES - 100)))
    assert peer.sizes == [IDLE_BUFFER_BYTES - 100]
    assert budget.used_bytes == 0


@pytest.mark.parametrize("size", [IDLE_BUFFER_BYTES, 100_000, MIB, 3 * MIB, 20 * MIB])
def test_a_longer_frame_takes_its_bytes_from_the_budget_and_gives_them_back(size: int) -> None:
    budget = MemoryBudget(64 * MIB)
    peer = Peer(budget)
    feed(peer.connection, frame(bytes(size)), piece_bytes=200_000)
    assert peer.sizes == [size]
    assert budget.used_bytes <= KEPT_BUFFER_BYTES
    assert peer.buffer_bytes <= max(KEPT_BUFFER_BYTES, IDLE_BUFFER_BYTES)
    budget.release_idle()
    budget.release_idle()
    assert budget.used_bytes == 0
    assert peer.buffer_bytes == 0
    feed(peer.connection, frame(b"still works"))
    assert peer.sizes[-1] == 11


def test_a_receive_buffer_in_use_is_not_given_back() -> None:
    budget = MemoryBudget(64 * MIB)
    peer = Peer(budget)
    feed(peer.connection, frame(bytes(300_000)))
    feed(peer.connection, frame(bytes(300_000))[:-5])
    budget.release_idle()
    budget.release_idle()
    assert budget.used_bytes > 0
    feed(peer.connection, bytes(5))
    assert peer.sizes == [300_000, 300_000]


def test_an_announced_frame_size_alone_takes_nothing_from_the_budget() -> None:
    budget = MemoryBudget(200 * MIB)
    peer = Peer(budget)
    feed(peer.connection, struct.pack(">i", 100 * MIB))
    assert budget.used_bytes == 0
    feed(peer.connection, bytes(IDLE_BUFFER_BYTES))
    assert budget.used_bytes >= 100 * MIB, "the whole frame, so that it can be completed"
    assert peer.buffer_bytes == FIRST_STEP_BYTES, "but the buffer grows with what comes"


def test_small_frames_in_full_reads_get_a_larger_buffer_if_the_budget_permits() -> None:
    budget = MemoryBudget(64 * MIB)
    peer = Peer(budget)
    feed(peer.connection, frame(bytes(200)) * 5000)
    assert peer.buffer_bytes == READ_BUFFER_BYTES
    poor = Peer(MemoryBudget(0))
    feed(poor.connection, frame(bytes(200)) * 5000)
    assert poor.buffer_bytes == IDLE_BUFFER_BYTES
    assert len(poor.sizes) == len(peer.sizes) == 5000


def test_a_read_that_fills_the_buffer_with_complete_frames_makes_it_grow() -> None:
    peer = Peer(MemoryBudget(64 * MIB))
    one = frame(bytes(IDLE_BUFFER_BYTES - len(frame())))
    assert len(one) == IDLE_BUFFER_BYTES
    feed(peer.connection, one)
    assert peer.buffer_bytes == 4 * IDLE_BUFFER_BYTES


def test_idle_buffers_are_reclaimed_when_another_connection_needs_the_bytes() -> None:
    budget = MemoryBudget(4 * MIB)
    peers = [Peer(budget) for _ in range(8)]
    for peer in peers:
        feed(peer.connection, frame(bytes(MIB)))
        assert peer.sizes == [MIB]
    assert budget.used_bytes <= 4 * MIB


def test_a_frame_waits_for_the_budget_and_continues_once_granted() -> None:
    budget = MemoryBudget(4 * MIB)
    first, second = Peer(budget), Peer(budget)
    body = bytes(3 * MIB)
    feed(first.connection, frame(body)[:-1])
    taken = feed(second.connection, frame(body))
    assert taken == IDLE_BUFFER_BYTES
    assert len(second.connection.space()) == 0
    feed(first.connection, b"\0")
    assert first.sizes == [len(body)]
    assert second.transport.wakes == 1
    feed(second.connection, frame(body)[taken:])
    assert second.sizes == [len(body)]


def test_a_closed_connection_gives_back_its_budget_and_leaves_the_queue() -> None:
    budget = MemoryBudget(4 * MIB)
    first, second, third = Peer(budget), Peer(budget), Peer(budget)
    body = bytes(3 * MIB)
    feed(first.connection, frame(body)[:-1])
    feed(second.connection, frame(body))
    feed(third.connection, frame(body))
    second.connection.closed(CloseReason.PEER)
    first.connection.closed(CloseReason.RESET)
    assert second.transport.wakes == 0
    assert third.transport.wakes == 1
    third.connection.closed(CloseReason.LOCAL)
    assert budget.used_bytes == 0


def test_two_hundred_half_sent_frames_hold_bounded_memory_and_other_peers_are_served() -> None:
    budget = MemoryBudget(160 * MIB)
    peers = [Peer(budget) for _ in range(200)]
    piece = bytes(MIB)
    tracemalloc.start()
    try:
        sent = [0] * len(peers)
        for peer in peers:
            feed(peer.connection, struct.pack(">ihhih", 100 * 1000 * 1000, 3, 1, 1, 0))
        for _ in range(50):
            for index, peer in enumerate(peers):
                sent[index] += feed(peer.connection, piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1000 * 1000
    assert max(sent) == 50 * MIB, "one of them makes progress"
    for size in (100, 50_000, MIB):
        other = Peer(budget)
        feed(other.connection, frame(bytes(size)))
        assert other.sizes == [size]
    late = Peer(budget)
    data = frame(bytes(30 * MIB))
    taken = feed(late.connection, data)
    for step in range(2 * len(peers) + 4):
        budget.check_progress(step * STALL_MS_MAX)
    feed(late.connection, data[taken:])
    assert late.sizes == [30 * MIB], "those that stalled were closed, one after the other"
    assert all(peer.connection.is_closed for peer in peers)


def test_a_half_received_frame_that_keeps_growing_is_not_evicted() -> None:
    budget = MemoryBudget(4 * MIB)
    slow, waiting = Peer(budget), Peer(budget)
    data = frame(bytes(3 * MIB))
    position = feed(slow.connection, data[: 2 * MIB])
    feed(waiting.connection, data)
    now_ms = 0
    while position < len(data):
        budget.check_progress(now_ms)
        now_ms += STALL_MS_MAX
        position += feed(slow.connection, data[position : position + STALL_BYTES_MIN])
    assert slow.sizes == [3 * MIB]
    assert not slow.connection.is_closed


def test_half_received_frame_is_not_evicted_without_waiters_or_while_this_side_does_not_read() -> None:
    budget = MemoryBudget(4 * MIB)
    holder = Peer(budget)
    data = frame(bytes(3 * MIB))
    feed(holder.connection, data[: 2 * MIB])
    for step in range(5):
        budget.check_progress(step * STALL_MS_MAX)
    assert not holder.connection.is_closed
    waiting = Peer(budget)
    feed(waiting.connection, data)
    holder.connection.mute()
    for step in range(5, 10):
        budget.check_progress(step * STALL_MS_MAX)
    assert not holder.connection.is_closed
    holder.connection.unmute()
    for step in range(10, 13):
        budget.check_progress(step * STALL_MS_MAX)
    assert holder.transport.closes == [(CloseReason.LOCAL, False)]
    assert "stalled" in (holder.connection.closed_because or "")
    assert waiting.transport.wakes == 1


def test_half_received_frames_of_new_connections_leave_budget_for_older_connections() -> None:
    budget = MemoryBudget(160 * MIB)
    known = Peer(budget)
    whole = frame(bytes(4 * MIB))
    feed(known.connection, whole)
    attackers = [Peer(budget) for _ in range(200)]
    for peer in attackers:
        feed(peer.connection, whole[: 64 * 1024])
    assert budget.has_waiters
    for count in range(2, 10):
        assert feed(known.connection, whole) == len(whole), "it waits for none of the two hundred"
        assert len(known.sizes) == count


def test_connection_that_sent_a_whole_frame_before_gets_budget_before_new_connections() -> None:
    budget = MemoryBudget(16 * MIB)
    whole = frame(bytes(9 * MIB))
    known, holder, new = Peer(budget), Peer(budget), Peer(budget)
    feed(known.connection, whole)
    feed(holder.connection, whole[: 64 * 1024])
    assert feed(new.connection, whole) < len(whole)
    assert feed(known.connection, whole) < len(whole)
    holder.connection.closed(CloseReason.PEER)
    assert (new.transport.wakes, known.transport.wakes) == (0, 1)


def test_connection_whose_frame_arrives_too_slowly_while_others_wait_is_closed_and_reported() -> None:
    budget = MemoryBudget(4 * MIB)
    slow, waiting = Peer(budget), Peer(budget)
    data = frame(bytes(3 * MIB))
    position = feed(slow.connection, data[: 64 * 1024])
    feed(waiting.connection, data)
    evicted = []
    for now_ms in range(0, 10_000, 1_000):
        evicted += budget.check_progress(now_ms)
        position += feed(slow.connection, data[position : position + 13 * 1024])
    assert evicted == [slow.connection]
    assert evicted[0].peer_host == "127.0.0.1"
    assert waiting.transport.wakes == 1


def test_pause_of_this_process_evicts_no_half_received_frame() -> None:
    budget = MemoryBudget(4 * MIB)
    holder, waiting = Peer(budget), Peer(budget)
    data = frame(bytes(3 * MIB))
    feed(holder.connection, data[: 2 * MIB])
    feed(waiting.connection, data)
    assert not any(budget.check_progress(now_ms) for now_ms in (1_000, 60_000, 61_000))
    assert budget.check_progress(63_000) == [holder.connection]


def test_a_silent_connection_holds_no_buffer_and_an_idle_one_gives_it_back() -> None:
    budget = MemoryBudget(4 * MIB)
    peer = Peer(budget)
    assert peer.buffer_bytes == 0
    feed(peer.connection, frame(b"one"))
    assert peer.buffer_bytes == IDLE_BUFFER_BYTES
    budget.release_idle()
    assert peer.buffer_bytes == IDLE_BUFFER_BYTES, "it has sent something since"
    budget.release_idle()
    assert peer.buffer_bytes == 0
    begun = frame(b"two")
    feed(peer.connection, begun[:7])
    budget.release_idle()
    budget.release_idle()
    feed(peer.connection, begun[7:])
    assert peer.sizes == [3, 3], "a half-received frame keeps its buffer"


def test_a_large_buffer_with_the_start_of_a_small_frame_shrinks() -> None:
    budget = MemoryBudget(64 * MIB)
    peer = Peer(budget)
    small = frame(b"small")
    feed(peer.connection, frame(bytes(10 * MIB)) + small[:7])
    assert peer.buffer_bytes == IDLE_BUFFER_BYTES
    assert budget.used_bytes == 0
    feed(peer.connection, small[7:])
    assert peer.sizes == [10 * MIB, 5]


def test_long_frame_is_received_after_a_frame_whose_large_buffer_was_kept() -> None:
    """The kept buffer of the first frame is larger than the initial buffer for the second frame."""
    budget = MemoryBudget(64 * MIB)
    peer = Peer(budget)
    sizes = [KEPT_BUFFER_BYTES - 200_000, 3 * MIB, 10 * MIB]
    assert sizes[0] > FIRST_STEP_BYTES
    for size in sizes:
        feed(peer.connection, frame(bytes(size)), piece_bytes=200_000)
    assert peer.sizes == sizes
    assert budget.used_bytes <= KEPT_BUFFER_BYTES


def test_long_frame_waits_for_the_budget_while_the_connection_keeps_an_earlier_buffer() -> None:
    budget = MemoryBudget(8 * MIB)
    peer = Peer(budget)
    feed(peer.connection, frame(bytes(KEPT_BUFFER_BYTES - 200_000)))
    assert budget.try_take(4 * MIB)
    data = frame(bytes(5 * MIB))
    begun = peer.connection.space()
    assert len(begun) < len(data)
    begun[:] = data[: len(begun)]
    peer.connection.received(len(begun))
    assert len(peer.connection.space()) == 0
    budget.give(4 * MIB)
    feed(peer.connection, data[len(begun) :])
    assert peer.sizes == [KEPT_BUFFER_BYTES - 200_000, 5 * MIB]


@given(
    st.lists(st.integers(0, 40).map(lambda size: size * 100_003), min_size=1, max_size=8),
    st.sampled_from((None, 70_001, 300_000, 1_500_000)),
)
def test_frames_of_any_sizes_in_a_row_are_all_handled(sizes: list[int], piece_bytes: int | None) -> None:
    budget = MemoryBudget(64 * MIB)
    peer = Peer(budget)
    data = b"".join(frame(bytes(size)) for size in sizes)
    feed(peer.connection, data, piece_bytes=piece_bytes)
    assert peer.sizes == sizes
    budget.release_idle()
    budget.release_idle()
    assert budget.used_bytes == 0


def test_a_client_connection_takes_budget_for_its_responses() -> None:
    budget = MemoryBudget(64 * MIB)
    replies: list[int] = []
    connection = ClientConnection(RecordingTransport(), client_id="c", limits=ClientLimits(), budget=budget)
    connection.send(1, 11, [b""], lambda body: replies.append(len(body or b"")))
    drain(connection)
    feed(connection, struct.pack(">ii", 20 * MIB, 0) + bytes(20 * MIB - 4))
    assert replies == [20 * MIB - 4]
    connection.closed(CloseReason.LOCAL)
    assert budget.used_bytes == 0
