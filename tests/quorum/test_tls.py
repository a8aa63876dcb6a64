"""Controllers behind TLS: a node without a TLS listener connects to them by TLS, and checks their certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trustme

from kraft.broker.node.serve import Node, serve
from kraft.config import NodeConfig
from kraft.runtime import open_seam
from tests.stages.ports import hold_ports

CLUSTER_ID = "A-cluster-behind-TLS-1"


class Started:
    """A task status that stores the value with which `serve` reports that it has started."""

    def __init__(self) -> None:
        self.node: Node | None = None

    def started(self, value: Node) -> None:
        self.node = value


async def run_node(properties: dict[str, str], started: Started, cluster_id: str | None = CLUSTER_ID) -> None:
    async with open_seam(node_name=properties["node.id"]) as seam:
        await serve(NodeConfig.parse(properties), seam, cluster_id=cluster_id, task_status=started)  # type: ignore[arg-type]


@pytest.mark.parametrize("inter_broker", ["PLAINTEXT", "SSL"])
async def test_broker_without_tls_listener_joins_controllers_behind_tls(tmp_path: Path, inter_broker: str) -> None:
    authority = trustme.CA()
    authorities, server = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority.cert_pem.write_to_path(str(authorities))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(server))
    controller_port, broker_port = hold_ports(2)
    shared = {
        "controller.quorum.voters": f"101@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"CONTROLLER:SSL,INTERNAL:{inter_broker}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
    }
    key = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(server)}
    controller = {
        "process.roles": "controller",
        "node.id": "101",
        "listeners": f"CONTROLLER://127.0.0.1:{controller_port}",
        "log.dirs": str(tmp_path / "101"),
    }
    broker = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": f"INTERNAL://127.0.0.1:{broker_port}",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": str(tmp_path / "1"),
        **(key if inter_broker == "SSL" else {}),
    }
    nodes = [Started(), Started()]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_node, {**shared, **key, **controller}, nodes[0])
        nursery.start_soon(run_node, {**shared, **broker}, nodes[1])
        with trio.fail_after(60):
            while nodes[1].node is None:
                await trio.lowlevel.checkpoint()
            await nodes[1].node.wait_ready()
            # The active controller connects to the broker's own listener too: it probes the broker after each
            # unfencing.
            active = nodes[0].node
            assert active is not None
            assert active.controller is not None
            while not any(peer.listener == "INTERNAL" for peer in active.peers.known_peers if peer.node_id == 1):
                await trio.lowlevel.checkpoint()
            while not all(
                active.peers.is_connected(peer, "identify")
                for peer in active.peers.known_peers
                if peer.listener == "INTERNAL"
            ):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
