"""Behaviour common to every Network, the real one and the simulated world's."""

from __future__ import annotations

from array import array

import pytest
import trio

from kraft.seam import (
    Address,
    AddressInUse,
    Binding,
    CloseReason,
    DialFailed,
    DialOutcome,
    InvariantError,
    LinkPolicy,
    Peer,
    WireError,
)
from tests.seam.sites import DIAL_TIMEOUT_MS, LISTENER, Listening, RealSite, Site, WorldSite
from tests.stages.recorder import Recorder, echo

AnySite = RealSite | WorldSite


def pattern(count: int, start: int = 0) -> bytes:
    """Return bytes in which any displacement is visible."""
    return array("I", range(start, start + count // 4)).tobytes()


def echoing(connection: Recorder) -> None:
    connection.on_heard = echo


def test_bytes_arrive_in_order_in_both_directions_at_once(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        there, back = pattern(3_000_000), pattern(2_000_000, 7_000_000)
        near.say(*(there[at : at + 100_000] for at in range(0, len(there), 100_000)))
        far.say(back)
        assert await far.wait_heard(len(there)) == there
        assert await near.wait_heard(len(back)) == back

    site.run(body)


def test_two_peers_with_full_sockets_do_not_deadlock(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        there, back = pattern(16_000_000), pattern(16_000_000, 50_000_000)
        near.say(there)
        far.say(back)
        assert await far.wait_heard(len(there)) == there
        assert await near.wait_heard(len(back)) == back

    site.run(body)


def test_many_connections_are_served_concurrently(site: AnySite) -> None:
    async def body(site: Site) -> None:
        listening = Listening(site, echoing)
        ends = [await listening.connect() for _ in range(20)]
        for number, (near, _) in enumerate(ends):
            near.say(pattern(4_000, number * 1_000))
        for number, (near, _) in enumerate(ends):
            assert await near.wait_heard(4_000) == pattern(4_000, number * 1_000)

    site.run(body)


def test_connection_with_a_receive_space_of_one_byte_receives_everything(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site, room=1).connect()
        near.say(pattern(400))
        assert await far.wait_heard(400) == pattern(400)
        assert set(far.reads) == {1}

    site.run(body)


def test_an_empty_receive_space_stops_reading_until_a_wake(site: AnySite) -> None:
    async def body(site: Site) -> None:
        def mute(connection: Recorder) -> None:
            connection.muted = True

        near, far = await Listening(site, mute).connect()
        data = pattern(20_000_000)
        near.say(data)
        with trio.move_on_after(0.2):
            await near.wait_sent(len(data))
        assert not far.heard
        assert near.sent_bytes < len(data)  # the sender is blocked too, instead of buffering without limit
        far.muted = False
        far.transport.wake()
        assert await far.wait_heard(len(data)) == data

    site.run(body)


def test_wake_of_a_connection_outside_a_pass_sends_its_output(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        for number in range(10):
            far.say(b"%d" % number)
            await near.wait_heard(number + 1)
        assert near.heard == b"0123456789"

    site.run(body)


def test_output_added_at_the_end_of_a_pass_is_sent_in_that_pass(site: AnySite) -> None:
    async def body(site: Site) -> None:
        order: list[str] = []
        waiting: list[Recorder] = []

        def park(connection: Recorder) -> None:
            order.append("received")
            waiting.append(connection)

        def prepare(connection: Recorder) -> None:
            connection.on_heard = park

        def answer() -> None:
            if waiting:
                order.append("end of pass")
            while waiting:
                waiting.pop().output().append(b"answer")

        site.server.network.at_end_of_pass(answer)
        near, far = await Listening(site, prepare).connect()
        near.say(b"x")
        assert await near.wait_heard(6) == b"answer"
        assert order == ["received", "end of pass"]
        assert far.sent_bytes == 6

    site.run(body)


def test_a_requested_pass_runs_the_end_of_pass_callbacks(site: AnySite) -> None:
    async def body(site: Site) -> None:
        ran = trio.Event()
        site.server.network.at_end_of_pass(ran.set)
        site.server.network.request_pass()
        await ran.wait()

    site.run(body)


def test_a_close_with_flush_sends_what_is_queued_first(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        data = pattern(6_000_000)
        far.say(data)
        far.transport.close(flush=True)
        assert await near.wait_heard(len(data)) == data
        assert await near.wait_closed() is CloseReason.PEER
        assert await far.wait_closed() is CloseReason.LOCAL

    site.run(body)


def test_a_close_without_flush_ends_at_once_and_the_peer_sees_it(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        near.transport.close(CloseReason.SHUTDOWN)
        assert not near.reasons  # never inside the call
        assert await near.wait_closed() is CloseReason.SHUTDOWN
        assert await far.wait_closed() is CloseReason.PEER

    site.run(body)


def test_closed_callback_is_called_once_per_connection(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        near.transport.close()
        near.transport.close(CloseReason.IDLE)
        far.transport.close(flush=True)
        await near.wait_closed()
        await far.wait_closed()
        near.transport.close()
        near.transport.wake()
        await site.client.clock.sleep_ms(20)
        assert len(near.reasons) == len(far.reasons) == 1

    site.run(body)


def test_bytes_that_do_not_parse_close_that_connection_only(site: AnySite) -> None:
    async def body(site: Site) -> None:
        def refuse(connection: Recorder) -> None:
            if b"garbage" in connection.heard:
                raise WireError("garbage")
            echo(connection)

        def prepare(connection: Recorder) -> None:
            connection.on_heard = refuse

        listening = Listening(site, prepare)
        bad, bad_there = await listening.connect()
        good, _ = await listening.connect()
        bad.say(b"garbage")
        assert await bad_there.wait_closed() is CloseReason.BAD_BYTES
        await bad.wait_closed()
        good.say(b"hello")
        assert await good.wait_heard(5) == b"hello"

    site.run(body)


def test_an_exception_other_than_wire_error_in_a_handler_stops_the_node(site: AnySite) -> None:
    async def body(site: Site) -> None:
        def break_down(connection: Recorder) -> None:
            raise InvariantError("a rule of ours")

        def prepare(connection: Recorder) -> None:
            connection.on_heard = break_down

        near, _ = await Listening(site, prepare).connect()
        near.say(b"x")
        await trio.sleep_forever()

    with pytest.raises(InvariantError, match="a rule of ours"):
        site.run(body)


def test_a_dial_to_a_port_without_listener_is_refused(site: AnySite) -> None:
    async def body(site: Site) -> None:
        listening = Listening(site)
        near, _ = await listening.connect()
        listening.bound.close()
        with pytest.raises(DialFailed) as failure:
            await listening.connect()
        assert failure.value.outcome is DialOutcome.REFUSED
        near.say(b"x")  # accepted connections continue
        await listening.accepted[0].wait_heard(1)

    site.run(body)


def test_binding_a_port_that_is_in_use_is_an_error(site: AnySite) -> None:
    async def body(site: Site) -> None:
        listening = Listening(site)
        address = listening.bound.address
        assert address.port > 0
        with pytest.raises(AddressInUse, match=str(address.port)):
            site.server.network.serve(Binding("OTHER", address), Recorder)
        listening.bound.close()
        site.server.network.serve(Binding("OTHER", address), Recorder).close()

    site.run(body)


def test_transport_reports_its_listener_and_its_peer(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect()
        assert near.transport.listener == far.transport.listener == LISTENER
        assert near.transport.peer_host == site.serving_host
        assert far.transport.peer_host
        assert far.transport.peer_principal is None

    site.run(body)


def test_dial_map_redirects_dials_to_another_address(site: AnySite) -> None:
    async def body(site: Site) -> None:
        listening = Listening(site)
        site.map_dial(77, listening.bound.address)
        peer = Peer(77, LISTENER, Address(site.serving_host, 1))
        near = await site.client.network.dial(peer, Recorder, timeout_ms=DIAL_TIMEOUT_MS)
        near.say(b"x")
        while not listening.accepted:
            await site.client.clock.sleep_ms(1)
        await listening.accepted[0].wait_heard(1)

    site.run(body)


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (LinkPolicy.REFUSE, DialOutcome.REFUSED),
        (LinkPolicy.RESET, DialOutcome.RESET),
        (LinkPolicy.HANG, DialOutcome.TIMED_OUT),
    ],
)
def test_a_link_policy_decides_how_a_dial_fails(site: AnySite, policy: LinkPolicy, outcome: DialOutcome) -> None:
    async def body(site: Site) -> None:
        listening = Listening(site)
        site.set_link_policy(5, policy)
        timeout_ms = 50 if policy is LinkPolicy.HANG else DIAL_TIMEOUT_MS
        with pytest.raises(DialFailed) as failure:
            await site.client.network.dial(listening.peer(5), Recorder, timeout_ms=timeout_ms)
        assert failure.value.outcome is outcome
        await listening.connect(node_id=6)  # other links are open
        site.set_link_policy(5, LinkPolicy.OPEN)
        await listening.connect(node_id=5)

    site.run(body)


def test_link_with_reset_policy_ends_the_connection_on_both_sides(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site).connect(node_id=5)
        site.set_link_policy(5, LinkPolicy.RESET)
        assert await near.wait_closed() is CloseReason.RESET
        assert await far.wait_closed() is CloseReason.RESET

    site.run(body)


def test_link_with_hang_policy_holds_bytes_back_until_the_policy_ends(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, far = await Listening(site, echoing).connect(node_id=5)
        site.set_link_policy(5, LinkPolicy.HANG)
        near.say(b"held")
        await site.client.clock.sleep_ms(30)
        assert not far.heard
        site.set_link_policy(5, LinkPolicy.OPEN)
        assert await near.wait_heard(4) == b"held"

    site.run(body)


def test_a_cancelled_dial_leaves_no_connection(site: AnySite) -> None:
    async def body(site: Site) -> None:
        listening = Listening(site)
        site.set_link_policy(5, LinkPolicy.HANG)
        with trio.move_on_after(0.02):
            await site.client.network.dial(listening.peer(5), Recorder, timeout_ms=DIAL_TIMEOUT_MS)
        assert not listening.accepted
        assert site.client.network.stats.connections == 0

    site.run(body)


def test_the_driver_counts_passes_connections_and_bytes(site: AnySite) -> None:
    async def body(site: Site) -> None:
        near, _ = await Listening(site, echoing).connect()
        near.say(b"12345")
        await near.wait_heard(5)
        stats = site.server.network.stats
        assert (stats.accepted, stats.connections) == (1, 1)
        assert (stats.bytes_received, stats.bytes_sent) == (5, 5)
        assert stats.passes > 0
        assert site.client.network.stats.dialled == 1

    site.run(body)
