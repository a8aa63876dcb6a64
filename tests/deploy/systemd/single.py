"""The configuration of a node that is a whole cluster."""

from __future__ import annotations

import os
from pathlib import Path

from kraft.deploy.launch.ports import is_free
from tests.deploy.clusters import FIRST_PORT, STEP

SECONDS_MAX = 60


def properties(folder: Path) -> Path:
    """One node that is a quorum and a broker."""
    first = FIRST_PORT + os.getpid() % 30 * STEP + 200
    port = next(one for one in range(first, 65000, 2) if is_free(one) and is_free(one + 1))
    path = folder / "server.properties"
    path.write_text(
        "node.id=1\nprocess.roles=broker,controller\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:{port + 1}\n"
        f"log.dirs={folder / 'data'}\nkraft.admin.listener=127.0.0.1:0\n"
    )
    return path
