"""Events that the launcher reads from a node's status pipe, tested without a node."""

from __future__ import annotations

import os
import selectors
from pathlib import Path

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.node_table import NodeProcess, NodeTable
from kraft.deploy.launch.processes import ProcessIdentity


def test_an_admin_address_that_cannot_be_written_to_the_folder_is_still_reported(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, b'{"event": "starting", "admin": "127.0.0.1:9404"}\n')
    node = NodeProcess(1, ProcessIdentity(os.getpid(), ""), reader, starts=1, is_broker=True)
    with selectors.DefaultSelector() as selector:
        table = NodeTable(ClusterFolder(tmp_path), selector, "info")  # the folder of node 1 does not exist
        assert table._listen(node)
    os.close(reader)
    os.close(writer)
    assert (node.state, node.describe()["admin"]) == ("starting", "127.0.0.1:9404")
    assert not (tmp_path / "1").exists()
