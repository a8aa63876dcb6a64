"""Tests of LinkProxies: the bytes that pass the proxies of links, with real sockets at both ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraft.seam import Address
from kraft.sim.chaos.proxies import api
from kraft.sim.chaos.proxies.links import ByteConditions, ConnectionPolicy, HangMode, LinkProxies, Toxic
from kraft.sim.chaos.proxies.server import ToxiproxyError, ToxiproxyServer
from tests.chaos.proxies.rig import LINKS, Rig, exchange, is_quiet, receive, segments

pytestmark = pytest.mark.timeout(600)  # the first test may have to build toxiproxy

HUNG = ByteConditions(is_hung=True)


@pytest.fixture(autouse=True)
def _open(server: ToxiproxyServer) -> Iterator[None]:
    """Remove all proxies after each test."""
    yield
    assert server.api.proxies() == {}


def test_bytes_pass_in_both_directions_over_open_links(rig: Rig) -> None:
    for link in LINKS:
        exchange(*rig.connect(link))


def test_each_link_has_a_separate_address(rig: Rig) -> None:
    assert rig.proxies.links == LINKS
    assert len({rig.proxies.address(link) for link in LINKS}) == len(LINKS)
    with pytest.raises(ToxiproxyError, match=r"no link 1-9: links are 1-2, 2-1, clients-1"):
        rig.proxies.address((1, 9))


# hang


def test_a_hanging_direction_holds_its_bytes_while_the_opposite_direction_passes(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): HUNG}, {})
    near.sendall(b"late")
    far.sendall(b"now")
    assert receive(near, 3) == b"now"
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({}, {})
    assert receive(far, 4) == b"late"
    exchange(near, far)


def test_a_hung_direction_holds_responses_to_requests_from_the_opposite_direction(rig: Rig) -> None:
    near, far = rig.connect((2, 1))
    rig.proxies.apply({(1, 2): HUNG}, {})
    near.sendall(b"question")
    assert receive(far, 8) == b"question"
    far.sendall(b"answer")
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(near)
    rig.proxies.apply({}, {})
    assert receive(near, 6) == b"answer"


def test_a_hang_in_both_directions_delivers_bytes_late_and_closes_no_connection(rig: Rig) -> None:
    connections = [rig.connect(link) for link in ((1, 2), (2, 1))]
    for _ in range(2):
        rig.proxies.apply({(1, 2): HUNG, (2, 1): HUNG}, {})
        for near, far in connections:
            near.sendall(b"a" * 100_000)
            far.sendall(b"b" * 100_000)
        rig.let_bytes_pass_elsewhere()
        assert all(is_quiet(end) for connection in connections for end in connection)
        rig.proxies.apply({}, {})
        for near, far in connections:
            assert receive(far, 100_000) == b"a" * 100_000
            assert receive(near, 100_000) == b"b" * 100_000


@pytest.mark.parametrize("sent", [b"", b"last words"])
def test_a_close_during_a_hang_arrives_after_it_and_after_the_bytes(rig: Rig, sent: bytes) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): HUNG, (2, 1): HUNG}, {})
    near.sendall(sent)
    near.close()
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({}, {})
    assert receive(far, 100) == sent


def test_a_dial_during_a_hang_is_accepted_and_its_bytes_arrive_late(rig: Rig) -> None:
    rig.proxies.apply({(1, 2): HUNG, (2, 1): HUNG}, {})
    near = rig.dial((1, 2))
    near.sendall(b"hello")
    far = rig.accept((1, 2))
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({}, {})
    assert receive(far, 5) == b"hello"


def test_a_hang_ends_at_once_although_the_reader_of_many_held_bytes_is_gone(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): HUNG, (2, 1): HUNG}, {})
    far.sendall(b"x" * 1_000_000)
    rig.let_bytes_pass_elsewhere()
    near.close()
    rig.let_bytes_pass_elsewhere()
    rig.proxies.apply({}, {})
    exchange(*rig.connect((1, 2)))
    with pytest.raises(ConnectionError):
        while True:
            far.sendall(b"x" * 1_000_000)


def test_other_toxics_of_a_hanging_direction_are_applied_when_the_hang_ends(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): HUNG}, {})
    near.sendall(b"first")
    rig.let_bytes_pass_elsewhere()
    rig.proxies.apply({(1, 2): ByteConditions(is_hung=True, bytes_max=3)}, {})
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({(1, 2): ByteConditions(bytes_max=3)}, {})
    assert receive(far, 5) == b"first"
    near.sendall(b"second")
    assert receive(far, 6) == b"sec"


def test_a_dropping_hang_loses_its_bytes_and_closes_the_connection_at_its_end(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(is_hung=True, manner=HangMode.DROP)}, {})
    near.sendall(b"lost")
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({}, {})
    assert receive(far, 4) == b""
    exchange(*rig.connect((1, 2)))


# refuse and reset


def test_the_refuse_policy_closes_connections_and_refuses_dials_in_both_directions(rig: Rig) -> None:
    connections = [rig.connect(link) for link in ((1, 2), (2, 1))]
    rig.proxies.apply({}, {(1, 2): ConnectionPolicy.REFUSE})
    for near, far in connections:
        assert receive(near, 1) == receive(far, 1) == b""
    for link in ((1, 2), (2, 1)):
        with pytest.raises(ConnectionRefusedError):
            rig.dial(link)
    exchange(*rig.connect((0, 2)))
    rig.proxies.apply({}, {})
    exchange(*rig.connect((1, 2)))


def test_the_stricter_of_two_policies_for_the_same_two_nodes_is_applied(rig: Rig) -> None:
    rig.proxies.apply({}, {(1, 2): ConnectionPolicy.REFUSE, (2, 1): ConnectionPolicy.RESET})
    with pytest.raises(ConnectionRefusedError):
        rig.dial((2, 1))


def test_the_reset_policy_ends_connections_and_resets_new_ones_at_their_first_bytes(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({}, {(2, 1): ConnectionPolicy.RESET})
    assert receive(near, 1) == receive(far, 1) == b""
    dialled = rig.dial((1, 2))
    accepted = rig.accept((1, 2))
    dialled.sendall(b"hello")
    for end in (dialled, accepted):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    rig.proxies.apply({}, {})
    exchange(*rig.connect((1, 2)))


def test_a_reset_ends_connections_once_and_new_dials_succeed(rig: Rig) -> None:
    ends = rig.connect((1, 2))
    others = rig.connect((2, 1))
    rig.proxies.reset([(1, 2), (8, 9)])
    assert [receive(end, 1) for end in ends] == [b"", b""]
    exchange(*rig.connect((1, 2)))
    exchange(*others)


def test_a_reset_does_not_end_connections_on_a_hanging_link(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(2, 1): HUNG}, {})
    rig.proxies.reset([(1, 2)])
    rig.proxies.apply({}, {})
    exchange(near, far)


# toxics


def first_to_hear(*ends: socket.socket) -> list[socket.socket]:
    return select.select(ends, [], [], 20)[0]


def test_a_latency_condition_delays_the_bytes_of_its_direction_only(rig: Rig) -> None:
    slow, quick = rig.connect((1, 2)), rig.connect((1, 3))
    rig.proxies.apply({(1, 2): ByteConditions(latency_ms=3_600_000, jitter_ms=10)}, {})
    for near, _ in (slow, quick):
        near.sendall(b"x")
    assert first_to_hear(slow[1], quick[1]) == [quick[1]]
    rig.proxies.apply({(1, 2): ByteConditions(latency_ms=300, jitter_ms=10)}, {})
    assert receive(slow[1], 1) == b"x"
    begin = time.monotonic()
    slow[0].sendall(b"x")
    assert receive(slow[1], 1) == b"x"
    assert time.monotonic() - begin >= 0.29
    slow[1].sendall(b"y")
    quick[1].sendall(b"y")
    assert receive(slow[0], 1) == receive(quick[0], 1) == b"y"


def test_a_rate_limited_direction_delivers_in_many_pieces_in_order(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(bytes_per_second=4000)}, {})
    sent = bytes(range(200)) * 10
    before = segments(far)
    near.sendall(sent)
    assert receive(far, len(sent)) == sent
    assert segments(far) - before > 2


def test_a_direction_below_1000_bytes_per_second_delivers_byte_by_byte(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(bytes_per_second=50)}, {})
    before = segments(far)
    near.sendall(b"0123456789")
    assert receive(far, 10) == b"0123456789"
    assert segments(far) - before == 10


def test_a_connection_ends_at_its_byte_limit(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(bytes_max=10)}, {})
    near.sendall(b"x" * 25)
    assert receive(far, 25) == b"x" * 10
    assert receive(near, 1) == b""
    rig.proxies.apply({}, {})
    exchange(*rig.connect((1, 2)))


def test_a_slicer_toxic_delivers_bytes_in_slices(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    slicer = Toxic("slicer", {"average_size": 3, "size_variation": 1, "delay": 20_000})
    rig.proxies.apply({(1, 2): ByteConditions(toxics=(slicer,))}, {})
    before = segments(far)
    near.sendall(b"x" * 20)
    assert receive(far, 20) == b"x" * 20
    assert segments(far) - before > 3


def test_a_slow_close_toxic_delays_the_close_but_not_bytes(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(toxics=(Toxic("slow_close", {"delay": 3_600_000}),))}, {})
    near.sendall(b"bye")
    near.close()
    assert receive(far, 3) == b"bye"
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({}, {})
    assert receive(far, 1) == b""


def test_a_timeout_toxic_drops_bytes_and_ends_the_connection(rig: Rig) -> None:
    near, far = rig.connect((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(toxics=(Toxic("timeout", {"timeout": 100}),))}, {})
    near.sendall(b"lost")
    assert receive(far, 4) == receive(near, 1) == b""


def test_a_toxic_of_toxicity_0_has_no_effect(rig: Rig) -> None:
    never = (Toxic("timeout", toxicity=0), Toxic("reset_peer", toxicity=0), Toxic("limit_data", toxicity=0))
    rig.proxies.apply({(1, 2): ByteConditions(toxics=never), (2, 1): ByteConditions(toxics=never)}, {})
    exchange(*rig.connect((1, 2)))


def test_a_toxic_of_one_stream_affects_only_connections_dialled_by_one_end(rig: Rig) -> None:
    rig.proxies.apply({(1, 2): ByteConditions(toxics=(Toxic("limit_data", {"bytes": 4}, stream="upstream"),))}, {})
    exchange(*rig.connect((2, 1)))
    near = rig.dial((1, 2))
    near.sendall(b"12345")
    assert receive(rig.accept((1, 2)), 5) == b"1234"


def test_new_toxics_of_a_direction_replace_the_earlier_ones(server: ToxiproxyServer, rig: Rig) -> None:
    delayed = Toxic("latency", {"latency": 3_600_000})
    rig.proxies.apply({(1, 2): ByteConditions(toxics=(delayed, Toxic("limit_data", {"bytes": 1})))}, {})
    near = rig.dial((1, 2))
    far = rig.accept((1, 2))
    rig.proxies.apply({(1, 2): ByteConditions(toxics=(Toxic("bandwidth", {"rate": 100_000}),))}, {})
    exchange(near, far)
    chain = next(proxy for name, proxy in server.api.proxies().items() if name.startswith("1-2."))["toxics"]
    assert {(toxic["type"], *toxic["attributes"].values()) for toxic in chain} == {
        ("bandwidth", 100_000),
        ("latency", 0, 0),
        ("slow_close", 0),
    }


# nodes that are down


def test_dials_to_a_node_that_is_down_are_refused_until_it_is_up(rig: Rig) -> None:
    near, _ = rig.connect((2, 1))
    rig.proxies.node_down(2)
    for link in ((1, 2), (3, 2), (0, 2)):
        with pytest.raises(ConnectionRefusedError):
            rig.dial(link)
    assert is_quiet(near)
    exchange(*rig.connect((2, 3)))
    rig.proxies.node_up(2)
    exchange(*rig.connect((1, 2)))


def test_dials_to_a_started_node_stay_refused_where_the_link_policy_is_refuse(rig: Rig) -> None:
    rig.proxies.node_down(2)
    rig.proxies.apply({}, {(1, 2): ConnectionPolicy.REFUSE})
    rig.proxies.node_up(2)
    with pytest.raises(ConnectionRefusedError):
        rig.dial((1, 2))
    exchange(*rig.connect((3, 2)))


def test_the_end_of_a_node_does_not_close_connections_on_a_hanging_link(rig: Rig) -> None:
    near, _ = rig.connect((1, 2))
    rig.proxies.apply({(2, 1): HUNG}, {})
    rig.proxies.node_down(2)
    assert is_quiet(near)
    rig.proxies.apply({}, {})
    assert receive(near, 1) == b""
    with pytest.raises(ConnectionRefusedError):
        rig.dial((1, 2))


# observation, and errors


def test_connections_of_a_link_are_counted_until_one_end_closes(rig: Rig) -> None:
    assert set(rig.proxies.established().values()) == {0}
    near, far = rig.connect((1, 2))
    rig.connect((1, 2))
    assert rig.proxies.connections((1, 2)) == 2
    assert rig.proxies.connections((2, 1)) == 0
    near.close()
    assert receive(far, 1) == b""
    assert rig.proxies.connections((1, 2)) == 1


def test_two_toxiproxy_servers_in_one_process_do_not_interfere(
    server: ToxiproxyServer, binary: Path, tmp_path: Path, make_rig: Callable[..., Rig]
) -> None:
    with ToxiproxyServer(tmp_path, binary=binary) as second:
        one, other = make_rig(server), make_rig(second)
        one.proxies.apply({}, {(1, 2): ConnectionPolicy.REFUSE})
        exchange(*other.connect((1, 2)))
        with pytest.raises(ConnectionRefusedError):
            one.dial((1, 2))
        other.close()


def test_two_sets_of_proxies_on_one_server_may_have_the_same_links(
    server: ToxiproxyServer, make_rig: Callable[..., Rig]
) -> None:
    one, other = make_rig(server), make_rig(server)
    one.proxies.apply({(1, 2): HUNG, (7, 8): HUNG}, {})
    exchange(*other.connect((1, 2)))


def freeze(pid: int) -> None:
    """Stop a child process with SIGSTOP, and wait until it is stopped: one of its threads may run for a moment after
    the signal."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_link_proxies_without_links_accept_every_call(server: ToxiproxyServer) -> None:
    with LinkProxies(server, {}) as proxies:
        proxies.apply({(1, 2): HUNG}, {(1, 2): ConnectionPolicy.REFUSE})
        proxies.node_down(1)
        assert proxies.established() == {}


def test_no_call_is_sent_to_toxiproxy_if_nothing_changes(
    binary: Path, tmp_path: Path, make_rig: Callable[..., Rig]
) -> None:
    with ToxiproxyServer(tmp_path, binary=binary) as server:
        rig = make_rig(server, (1, 2), (2, 1))
        rig.proxies.apply({(1, 2): HUNG}, {(1, 2): ConnectionPolicy.RESET})
        assert server.pid is not None
        freeze(server.pid)
        rig.proxies.apply({(1, 2): HUNG, (2, 1): ByteConditions()}, {(2, 1): ConnectionPolicy.RESET})
        os.kill(server.pid, signal.SIGCONT)
        rig.close()


def test_the_call_after_a_failed_one_restores_the_last_requested_state(
    binary: Path, tmp_path: Path, make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ToxiproxyServer(tmp_path, binary=binary) as server:
        rig = make_rig(server, (1, 2), (3, 2))
        assert server.pid is not None
        freeze(server.pid)
        with monkeypatch.context() as patch:
            patch.setattr(api, "CALL_SECONDS_MAX", 0.1)
            with pytest.raises(ToxiproxyError, match="was not carried out within"):
                rig.proxies.apply({}, {(1, 2): ConnectionPolicy.REFUSE})
        os.kill(server.pid, signal.SIGCONT)
        rig.proxies.node_up(1)
        with pytest.raises(ConnectionRefusedError):
            rig.dial((1, 2))
        rig.proxies.apply({}, {})
        exchange(*rig.connect((1, 2)))
        rig.close()


def test_a_toxic_change_fails_while_a_stalled_reader_blocks_a_connection_and_succeeds_afterwards(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = rig.connect((1, 2))
    sent = rig.fill(near)
    with monkeypatch.context() as patch:
        patch.setattr(api, "CALL_SECONDS_MAX", 1.0)  # for the stuck call, and enough for the other call
        with pytest.raises(ToxiproxyError, match=r"1-2\..* a paused process reads nothing"):
            rig.proxies.apply({(1, 2): HUNG}, {(1, 3): ConnectionPolicy.REFUSE})
    with pytest.raises(ConnectionRefusedError):
        rig.dial((1, 3))
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(receive, far, sent)
        rig.proxies.apply({}, {})  # an abandoned call may have been carried out later
        assert len(reader.result()) == sent
    rig.proxies.apply({(1, 2): HUNG}, {})
    near.sendall(b"late")
    rig.let_bytes_pass_elsewhere()
    assert is_quiet(far)
    rig.proxies.apply({}, {})
    assert receive(far, 4) == b"late"


def test_the_error_for_an_ended_toxiproxy_names_its_log(
    binary: Path, tmp_path: Path, make_rig: Callable[..., Rig]
) -> None:
    with ToxiproxyServer(tmp_path, binary=binary) as server:
        rig = make_rig(server, (1, 2))
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ToxiproxyError, match=r"ended with code -9; the end of .*toxiproxy\.log: .*Started proxy"):
            rig.proxies.apply({}, {(1, 2): ConnectionPolicy.REFUSE})


def test_a_proxy_listener_that_cannot_be_opened_raises_an_error(server: ToxiproxyServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname())
        with pytest.raises(ToxiproxyError, match=r"status 500: .*address already in use"):
            server.api.create_proxy("taken", address, address)


def test_http_proxies_of_the_environment_are_not_used_for_toxiproxy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    rig.proxies.apply({(1, 2): HUNG}, {})


def test_closed_link_proxies_reject_calls_and_refuse_dials(rig: Rig) -> None:
    rig.proxies.close()
    with pytest.raises(ConnectionRefusedError):
        rig.dial((1, 2))
    with pytest.raises(ToxiproxyError, match="closed"):
        rig.proxies.apply({}, {})
