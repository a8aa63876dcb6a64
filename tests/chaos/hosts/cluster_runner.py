"""A program that runs a cluster whose hosts have all features (separate networks, small disks and clocks), and waits to
be killed.

`python cluster_runner.py FOLDER`; FOLDER must not exist. The program prints the resources that it has created, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kraft.config import parse_properties
from kraft.config.properties import render_properties
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from kraft.deploy.launch.node_command import NodeCommand
from kraft.sim.chaos.hosts.clocks import ProcessClock
from kraft.sim.chaos.hosts.disks import NodeDisk
from kraft.sim.chaos.hosts.namespaces import NodeNetworks
from kraft.sim.chaos.hosts.warden import Warden
from tests.chaos.hosts.nodes import running_nodes

LAYOUT = ClusterLayout(controllers=1, brokers=1, fault_control=True)
NODES = [node.node_id for node in LAYOUT.nodes()]
DISK_BYTES = 64 << 20


def main(path: Path) -> None:
    warden = Warden()
    os.environ.update(warden.environment)
    warden.folder(path)
    warden.file(ClusterFolder(path).socket)
    networks = NodeNetworks(NODES, warden)
    networks.open()

    def prepare(folder: ClusterFolder) -> None:
        for node in NODES:
            home = folder.node(node)
            properties = parse_properties((home / "server.properties").read_text())
            (home / "server.properties").write_text(render_properties(networks.properties(node, properties)))
            (home / "data").mkdir()
            NodeDisk(home / "data", DISK_BYTES, warden).mount()
            clock = ProcessClock(home, warden)
            clock.open()
            command = NodeCommand(prefix=tuple(networks.command_prefix(node)), environment=clock.environment)
            command.write(home)

    with running_nodes(path, LAYOUT, before_start=prepare) as cluster:
        zygote = json.loads(cluster.folder.zygote_identity.read_text())["pid"]
        pids = [zygote, *(status.pid for status in cluster.status())]
        for pid in pids:
            warden.process(pid)
        made = {"warden": warden.pid, "pids": pids, "bridge": networks.bridge, "socket": str(cluster.folder.socket)}
        print(json.dumps(made), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
