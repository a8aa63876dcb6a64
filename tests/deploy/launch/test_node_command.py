"""A node with an exec.json runs with the command prefix and environment in that file. In all other respects it behaves
like a node without such a file.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from kraft.deploy.launch.node_command import EXEC_FILE, BadNodeCommand, NodeCommand
from tests.stages.kraft_command import free_port

SHAPE = ClusterLayout(combined=1)
SCRIPT = 'echo "$$ $KRAFT_TEST_WORD" > seen; ls /proc/self/fd | wc -l >> seen; exec "$@"'
NOTING = NodeCommand(prefix=("sh", "-c", SCRIPT, "sh"), environment={"KRAFT_TEST_WORD": "first"})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One node with its own command, which records its process id, a variable and the number of inherited
    descriptors."""
    folder = ClusterFolder(tmp_path / "cluster")
    layout = ClusterLayout(combined=1, port=free_port(SHAPE), fault_control=True)
    started = LocalCluster.up(
        folder,
        layout,
        new_cluster_id(),
        is_temporary=True,
        is_remembered=False,
        before_start=lambda: NOTING.write(folder.node(1)),
    )
    try:
        yield started
    finally:
        started.down()


def seen(cluster: LocalCluster) -> tuple[int, str]:
    pid, word = (cluster.folder.node(1) / "seen").read_text().splitlines()[0].split()
    return int(pid), word


def test_a_node_with_its_own_command_keeps_its_process_id_and_serves(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    (status,) = cluster.status()
    assert status.state == "ready"
    assert seen(cluster) == (status.pid, "first")
    assert os.getsid(status.pid or 0) == status.pid
    title = Path(f"/proc/{status.pid}/cmdline").read_bytes().rstrip(b"\0").decode()
    assert title == f"kraft node 1 broker,controller {cluster.folder.path}"
    assert FaultClient.of_node(cluster.folder, 1).listed()["links"] == []


def test_a_node_with_its_own_command_inherits_only_its_streams_and_status_pipe(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    files = int((cluster.folder.node(1) / "seen").read_text().splitlines()[1])
    assert files == 5  # descriptors 0, 1, 2, the pipe, and the directory that is being listed


def test_a_killed_node_with_its_own_command_restarts_with_the_current_file(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    killed = cluster.kill(1)
    NodeCommand(prefix=NOTING.prefix, environment={"KRAFT_TEST_WORD": "second"}).write(cluster.folder.node(1))
    cluster.start(1)
    (status,) = cluster.status()
    assert seen(cluster) == (status.pid, "second")
    assert status.pid != killed
    assert cluster.stop(1) == status.pid
    assert cluster.status()[0].ended == "exit code 0"


def test_a_node_with_its_own_command_also_starts_without_a_launcher(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    cluster.kill(1)
    zygote = json.loads(cluster.folder.zygote_identity.read_text())["pid"]
    os.kill(zygote, signal.SIGKILL)
    (cluster.folder.node(1) / "seen").unlink()
    before = cluster.folder.admin_address(1)
    assert cluster._held is not None
    cluster._held.wait()
    cluster.start(1)
    (status,) = cluster.status()
    assert seen(cluster) == (status.pid, "first")
    assert status.admin.startswith("127.0.0.1:")
    assert status.admin != before, "the address of the process that runs, not of the one that was killed"
    cluster.stop(1)
    assert cluster.folder.admin_address(1) == ""


def test_a_node_command_with_a_missing_program_fails_the_start_and_names_the_file(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    cluster.kill(1)
    NodeCommand(prefix=("no-such-program",)).write(cluster.folder.node(1))
    with pytest.raises(LaunchError, match=r"exec\.json: cannot execute no-such-program: No such file"):
        cluster.start(1)
    (cluster.folder.node(1) / EXEC_FILE).write_text("[]")
    with pytest.raises(LaunchError, match=r"exec\.json is no command of a node"):
        cluster.start(1)


def test_a_node_folder_without_exec_json_has_no_command(tmp_path: Path) -> None:
    assert NodeCommand.read(tmp_path) is None
    (tmp_path / EXEC_FILE).write_text('{"prefix": ["nice"]}')
    assert NodeCommand.read(tmp_path) == NodeCommand(prefix=("nice",))
    (tmp_path / EXEC_FILE).write_text("{")
    with pytest.raises(BadNodeCommand, match=r"exec\.json"):
        NodeCommand.read(tmp_path)
