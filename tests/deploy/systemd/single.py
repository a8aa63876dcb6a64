"""The configuration of a single node that is a complete cluster."""

from __future__ import annotations

from pathlib import Path

from tests.stages.ports import hold_ports

SECONDS_MAX = 60


def properties(folder: Path) -> Path:
    """Return the properties of a single node that is both controller and broker."""
    port, controller_port = hold_ports(2)
    path = folder / "server.properties"
    path.write_text(
        "node.id=1\nprocess.roles=broker,controller\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller_port}\n"
        f"log.dirs={folder / 'data'}\nkraft.admin.listener=127.0.0.1:0\n"
    )
    return path
