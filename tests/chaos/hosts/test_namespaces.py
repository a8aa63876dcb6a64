"""Tests of nodes in network namespaces: a cut drops packets without any error, and no network remains after the run."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.config import parse_properties
from kraft.config.properties import render_properties
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from kraft.deploy.launch.node_command import NodeCommand
from kraft.seam import LinkQuality
from kraft.sim.chaos.clusters.cluster_queries import find_controller
from kraft.sim.chaos.hosts.namespaces import NodeNetworks, PacketConditions
from kraft.sim.chaos.hosts.network_commands import CannotUseNamespaces, can_use_netem
from kraft.sim.chaos.hosts.warden import Warden
from tests.chaos.hosts.nodes import running_nodes
from tests.chaos.hosts.privileges import NO_NETEM, needs_loss, needs_namespaces, needs_netem
from tests.chaos.hosts.test_warden import wait_gone

CLONE_NEWNET = 0x40000000
WAIT_SECONDS_MAX = 20.0
BOTH = ((1, 2), (2, 1))


@pytest.fixture
def networks() -> Iterator[NodeNetworks]:
    with Warden() as warden:
        networks = NodeNetworks([1, 2], warden)
        networks.open()
        yield networks
        networks.close()
    assert warden.leftovers == ()
    assert traces_of(networks) == []


def traces_of(networks: NodeNetworks) -> list[str]:
    """Return everything on this machine that belongs to these networks."""
    word = networks.bridge.removesuffix("b")
    names = [*os.listdir("/sys/class/net"), *(os.listdir("/run/netns") if os.path.exists("/run/netns") else [])]
    return [name for name in names if name.startswith(word)]


def socket_inside(networks: NodeNetworks, node: int) -> socket.socket:
    """Return a TCP socket in the node's namespace. The socket stays there, whichever process uses it."""
    made: list[socket.socket] = []

    def make() -> None:
        descriptor = os.open(f"/run/netns/{networks.namespace(node)}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) == 0:
            made.append(socket.socket())
        os.close(descriptor)

    thread = threading.Thread(target=make)  # only this process is in the namespace, and it ends
    thread.start()
    thread.join()
    made[0].settimeout(WAIT_SECONDS_MAX)
    return made[0]


@pytest.fixture
def listener(networks: NodeNetworks) -> Iterator[socket.socket]:
    """Return a listening socket of node 2."""
    with socket_inside(networks, 2) as listening:
        listening.bind((networks.address(2), 0))
        listening.listen()
        yield listening


@pytest.fixture
def ends(networks: NodeNetworks, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the two ends of a connection from node 1 to node 2, node 1's first. Bytes have passed over it."""
    with socket_inside(networks, 1) as one:
        one.connect(listener.getsockname())
        two, address = listener.accept()
        two.settimeout(WAIT_SECONDS_MAX)
        with two:
            assert address[0] == networks.address(1)
            one.sendall(b"first")
            assert two.recv(100) == b"first"
            yield one, two


def is_silent(*sockets: socket.socket) -> bool:
    """Return whether this end has received nothing: no bytes, no end of the connection, no error."""
    return select.select(sockets, [], sockets, 0) == ([], [], [])


def wait_for_packets(networks: NodeNetworks, link: tuple[int, int], count: int) -> None:
    """Wait until `count` more packets were sent in this direction."""
    due = networks.sent_packets()[link] + count
    wait_until(lambda: networks.sent_packets()[link] >= due)


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true. Polling is necessary because neither the kernel's counters nor a quorum notify
    of changes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@needs_namespaces
def test_a_one_way_namespace_cut_drops_packets_that_are_retransmitted_after_it(
    networks: NodeNetworks, ends: tuple[socket.socket, socket.socket]
) -> None:
    one, two = ends
    networks.apply({(1, 2): PacketConditions(is_cut=True)})
    one.sendall(b"late")
    wait_for_packets(networks, (1, 2), 2)  # the bytes are retransmitted
    two.sendall(b"the other way")
    assert one.recv(100) == b"the other way"
    assert is_silent(one, two)
    networks.apply({})
    assert two.recv(100) == b"late"


@needs_namespaces
def test_the_close_of_a_connection_does_not_pass_a_namespace_cut(
    networks: NodeNetworks, ends: tuple[socket.socket, socket.socket]
) -> None:
    one, two = ends
    networks.apply({link: PacketConditions(is_cut=True) for link in BOTH})
    two.shutdown(socket.SHUT_RDWR)
    wait_for_packets(networks, (2, 1), 2)
    assert is_silent(one)
    networks.apply({})
    assert one.recv(100) == b""


@needs_namespaces
def test_a_dial_across_a_namespace_cut_is_not_refused_and_succeeds_after_it(
    networks: NodeNetworks, listener: socket.socket
) -> None:
    networks.apply({(1, 2): PacketConditions(is_cut=True)})
    with socket_inside(networks, 1) as one:
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
        wait_for_packets(networks, (1, 2), 1)
        assert select.select([listener], [one], [one], 0) == ([], [], [])
        networks.apply({})
        two, _ = listener.accept()
        two.close()


@needs_namespaces
def test_clients_on_the_host_can_be_cut_off_from_a_single_node(networks: NodeNetworks, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname(), timeout=WAIT_SECONDS_MAX) as client:
        two, address = listener.accept()
        with two:
            assert address[0] == networks.address(0)
            networks.apply({(0, 2): PacketConditions(is_cut=True)})
            client.sendall(b"late")
            wait_for_packets(networks, (0, 2), 2)
            assert is_silent(two)
            networks.apply({})
            two.settimeout(WAIT_SECONDS_MAX)
            assert two.recv(100) == b"late"


@needs_namespaces
def test_a_packet_rate_limit_slows_only_its_direction_until_it_is_removed(networks: NodeNetworks) -> None:
    def rates() -> list[str]:
        shown = networks._tc_output(1, "class", "show", "dev", "eth0").split()
        return [shown[index + 1] for index, word in enumerate(shown) if word == "rate"]

    networks.apply({(1, 2): PacketConditions(bytes_per_second=100_000)})
    assert sorted(rates()) == ["32Gbit", "800Kbit"]
    networks.apply({})
    assert rates() == ["32Gbit", "32Gbit"]


@needs_loss
def test_dropped_packets_of_a_direction_are_counted_and_retransmitted(
    networks: NodeNetworks, ends: tuple[socket.socket, socket.socket]
) -> None:
    one, two = ends
    # after a few losses in a row TCP's timeout is longer than the wait
    networks.apply({(1, 2): PacketConditions(loss=0.2)})
    assert networks.lost_packets() == {(1, 2): 0}
    while networks.lost_packets()[1, 2] < 3:
        one.sendall(b"bytes")
        assert two.recv(5, socket.MSG_WAITALL) == b"bytes"
    networks.apply({(1, 2): PacketConditions(loss=1), (2, 1): PacketConditions(loss=0.001)})
    one.sendall(b"late")
    wait_until(lambda: networks.lost_packets()[1, 2] >= 2)
    assert is_silent(two)
    networks.apply({})
    assert two.recv(4, socket.MSG_WAITALL) == b"late"
    assert networks.lost_packets() == {}


@needs_loss
@pytest.mark.skipif(not NO_NETEM, reason="this kernel has netem")
def test_packet_loss_to_clients_is_rejected_without_netem(networks: NodeNetworks) -> None:
    with pytest.raises(CannotUseNamespaces, match="to clients"):
        networks.apply({(1, 0): PacketConditions(loss=0.5)})


@needs_netem
def test_latency_and_loss_of_a_direction_are_set_and_removed(networks: NodeNetworks) -> None:
    def shown() -> str:
        return networks._tc_output(1, "qdisc", "show", "dev", "eth0")

    networks.apply({(1, 2): PacketConditions(latency_ms=50, jitter_ms=10, loss=0.25)})
    assert "delay 50ms  10ms loss 25%" in shown()
    networks.apply({(1, 2): PacketConditions(loss=0.5)})
    assert "loss 50%" in shown()
    assert "delay" not in shown()
    networks.apply({})
    assert "netem" not in shown()


@needs_namespaces
@pytest.mark.skipif(not NO_NETEM, reason="this kernel has netem")
def test_latency_without_netem_is_rejected_and_changes_nothing(networks: NodeNetworks) -> None:
    with pytest.raises(CannotUseNamespaces, match="sch_netem"):
        networks.apply({(1, 2): PacketConditions(is_cut=True), (2, 1): PacketConditions(latency_ms=50)})
    assert networks.ways == {}
    assert "netem" in can_use_netem()


@needs_namespaces
@pytest.mark.parametrize(
    "way",
    [
        PacketConditions(latency_ms=5, jitter_ms=2, loss=0.01, reorder=0.25, duplicate=0.5),
        PacketConditions(reorder=0.1),
        PacketConditions(loss=1),
    ],
)
def test_netem_arguments_are_accepted_by_tc(networks: NodeNetworks, way: PacketConditions) -> None:
    words = ["tc", "-n", networks.namespace(1), "qdisc", "add", "dev", "lo", "root", "netem", *way.netem.split()]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
    assert said in ("", "Error: Specified qdisc kind is unknown.\n")


def test_a_direction_without_faults_needs_no_netem() -> None:
    assert PacketConditions().netem == ""
    assert PacketConditions(is_cut=True, bytes_per_second=5).netem == ""
    assert PacketConditions(reorder=0.25).netem == "limit 100000 delay 10ms reorder 25%"
    assert PacketConditions.of(LinkQuality(latency_ms=10, jitter_ms=4)) == PacketConditions(latency_ms=12, jitter_ms=2)
    with pytest.raises(CannotUseNamespaces, match="a number of bytes"):
        PacketConditions.of(LinkQuality(bytes_max=5))
    with pytest.raises(ValueError, match="shares"):
        PacketConditions(loss=2)


RUNNER = """
import sys
from kraft.sim.chaos.hosts.namespaces import NodeNetworks
from kraft.sim.chaos.hosts.warden import Warden
warden = Warden()
networks = NodeNetworks([1, 2], warden)
networks.open()
print(warden.pid, networks.bridge, networks.namespace(1), networks.namespace(2), flush=True)
sys.stdin.read()
"""


@needs_namespaces
def test_namespace_networks_are_removed_when_their_runner_is_killed() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", RUNNER], stdin=pipe, stdout=pipe, text=True) as runner:
        assert runner.stdout is not None
        warden, bridge, *namespaces = runner.stdout.readline().split()
        assert Path(f"/sys/class/net/{bridge}").exists()
        runner.send_signal(signal.SIGKILL)
    wait_gone(int(warden))
    word = bridge.removesuffix("b")
    assert [name for name in os.listdir("/sys/class/net") if name.startswith(word)] == []
    assert [name for name in namespaces if Path(f"/run/netns/{name}").exists()] == []


@pytest.mark.slow
@needs_namespaces
def test_an_active_controller_cut_off_in_its_namespace_is_replaced(tmp_path: Path) -> None:
    layout = ClusterLayout(controllers=3, brokers=1, fault_control=True)
    nodes = [node.node_id for node in layout.nodes()]
    with Warden() as warden:
        networks = NodeNetworks(nodes, warden)
        networks.open()

        def prepare(folder: ClusterFolder) -> None:
            for node in nodes:
                path = folder.node(node) / "server.properties"
                path.write_text(render_properties(networks.properties(node, dict(parse_properties(path.read_text())))))
                NodeCommand(prefix=tuple(networks.command_prefix(node))).write(folder.node(node))

        with running_nodes(tmp_path / "cluster", layout, before_start=prepare) as cluster:
            servers = cluster.bootstrap_servers.replace("127.0.0.1", networks.address(1))
            active = find_controller(servers)
            assert active is not None
            others = [node for node in nodes if node != active]
            networks.apply(
                {link: PacketConditions(is_cut=True) for other in others for link in ((active, other), (other, active))}
            )
            wait_until(lambda: find_controller(servers) not in (None, active))
            networks.apply({})
        networks.close()
    assert warden.leftovers == ()
    assert traces_of(networks) == []
