"""Real nodes as real processes: a zygote starts them, and they are killed, stopped and paused, with and without a
launcher.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from kraft.deploy.launch.processes import ProcessIdentity, identify
from kraft.deploy.launch.zygote import take_lock
from tests.stages.kraft_command import Command, free_port

SHAPE = ClusterLayout(controllers=1, brokers=1)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    layout = ClusterLayout(controllers=1, brokers=1, port=free_port(SHAPE))
    started = LocalCluster.up(ClusterFolder(tmp_path / "data"), layout, new_cluster_id())
    try:
        started.wait_ready()
        yield started
    finally:
        started.down()


def states(cluster: LocalCluster) -> dict[int, str]:
    return {node.node_id: node.state for node in cluster.status()}


def pid_of(cluster: LocalCluster, node_id: int) -> int:
    return int((cluster.folder.node(node_id) / "pid").read_text())


def zygote_of(cluster: LocalCluster) -> ProcessIdentity:
    noted = json.loads(cluster.folder.zygote_identity.read_text())
    return ProcessIdentity(noted["pid"], noted["started"])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_node_is_a_process_with_its_own_title_session_and_log(cluster: LocalCluster) -> None:
    assert states(cluster) == {101: "ready", 1: "ready"}
    pids = {node_id: pid_of(cluster, node_id) for node_id in (1, 101)}
    for node_id, role in ((1, "broker"), (101, "controller")):
        title = Path(f"/proc/{pids[node_id]}/cmdline").read_text()
        assert title.startswith(f"kraft node {node_id} {role} {cluster.folder.path}")
        assert os.getsid(pids[node_id]) == pids[node_id]
        assert "the node starts" in (cluster.folder.node(node_id) / "node.log").read_text()
    assert answers(cluster.layout.port)


def test_a_killed_node_is_recorded_as_ended_and_can_be_started_again(cluster: LocalCluster) -> None:
    first = pid_of(cluster, 1)
    os.kill(first, signal.SIGKILL)
    cluster.start(1)
    assert pid_of(cluster, 1) != first
    assert states(cluster)[1] == "ready"
    assert cluster.kill(1)
    ended = {node.node_id: node for node in cluster.status()}[1]
    assert (ended.pid, ended.ended) == (None, "killed by SIGKILL")
    assert not (cluster.folder.node(1) / "pid").exists()
    with pytest.raises(LaunchError, match="node 1 does not run; start it with kraft start 1"):
        cluster.kill(1)


def test_a_running_node_is_not_started_twice(cluster: LocalCluster) -> None:
    with pytest.raises(LaunchError, match=r"node 1 already runs \(pid \d+\)"):
        cluster.start(1)
    with pytest.raises(LaunchError, match="there is no node 7"):
        cluster.start(7)


def test_a_clean_stop_exits_with_0_and_leaves_the_clean_shutdown_file(cluster: LocalCluster) -> None:
    cluster.stop(1)
    assert {node.node_id: node.ended for node in cluster.status()}[1] == "exit code 0"
    assert (cluster.folder.node(1) / "data" / ".kafka_cleanshutdown").exists()


def test_the_error_for_a_node_that_does_not_stop_in_time_names_the_node(cluster: LocalCluster) -> None:
    pid = pid_of(cluster, 1)
    with pytest.raises(LaunchError, match=rf"still not ended: node 1 \(pid {pid}\); kraft kill ends it at once"):
        cluster.stop(1, timeout_s=0)


def test_a_node_is_paused_and_resumed(cluster: LocalCluster) -> None:
    pid = cluster.pause(101)
    os.kill(pid, 0)
    assert states(cluster)[101] == "paused"
    cluster.resume(101)
    assert states(cluster)[101] == "ready"


def test_a_second_cluster_start_in_one_folder_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(LaunchError, match="a cluster is already up in"):
        LocalCluster.up(cluster.folder, cluster.layout, cluster.cluster_id)


def test_a_second_node_process_in_one_folder_is_refused(cluster: LocalCluster) -> None:
    path = cluster.folder.node(1) / "server.properties"
    other = path.with_name("other.properties")
    port = str(cluster.layout.port)
    other.write_text(path.read_text().replace(f":{port}", f":{int(port) + 50}"))
    command = [sys.executable, "-m", "kraft.deploy.launch.node_process", str(other)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert str(cluster.folder.node(1) / "data") in done.stderr
    assert "Traceback" not in done.stderr


def test_starting_a_broker_whose_controllers_are_all_down_fails_at_once(cluster: LocalCluster) -> None:
    for node_id in (1, 101):
        cluster.kill(node_id)
    with pytest.raises(LaunchError, match=r"no controller of .* runs; start them first: kraft start 101"):
        cluster.start(1)
    cluster.down()
    start = f"start all with kraft up --background --data {cluster.folder.path}"
    with pytest.raises(LaunchError, match=f"no controller of the cluster in {cluster.folder.path} runs; {start}"):
        cluster.start(1)


def test_starting_one_of_several_controllers_that_are_all_down_fails_at_once(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "data")
    folder.create(ClusterLayout(combined=2), new_cluster_id())
    with pytest.raises(LaunchError, match=r"no controller of .* runs; start all with kraft up"):
        LocalCluster.find(folder).start(1)


def test_a_port_used_by_a_cluster_is_refused_with_the_folder_of_that_cluster(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    folder = ClusterFolder(tmp_path / "other")
    freed = f"end it with kraft down --data {cluster.folder.path}, or choose another --port"
    with pytest.raises(LaunchError, match=f"is taken: the cluster in {cluster.folder.path} has it; {freed}"):
        LocalCluster.up(folder, cluster.layout, new_cluster_id())
    assert not folder.path.exists()


def test_a_cluster_whose_launcher_died_keeps_running_and_can_be_controlled(cluster: LocalCluster) -> None:
    zygote = zygote_of(cluster)
    zygote.signal(signal.SIGKILL)
    assert cluster._held is not None
    cluster._held.wait()
    assert states(cluster) == {101: "running", 1: "running"}
    with pytest.raises(LaunchError, match="still runs from an earlier start"):
        LocalCluster.up(cluster.folder, cluster.layout, cluster.cluster_id)
    cluster.kill(1)
    assert states(cluster)[1] == "ended"
    cluster.start(1)
    assert states(cluster)[1] == "running"
    with pytest.raises(LaunchError, match="already runs"):
        cluster.start(1)
    cluster.stop(1)
    cluster.down()
    assert not cluster.is_up


def test_a_stopped_cluster_starts_again_with_its_data(tmp_path: Path) -> None:
    layout = ClusterLayout(combined=1, port=free_port(ClusterLayout(combined=1)))
    folder = ClusterFolder(tmp_path / "data")
    for _ in range(2):
        cluster = LocalCluster.up(folder, layout, "AAAAAAAAAAAAAAAAAAAAAA")
        try:
            cluster.wait_ready()
            assert "cluster.id=AAAAAAAAAAAAAAAAAAAAAA" in (folder.node(1) / "data" / "meta.properties").read_text()
        finally:
            cluster.down()
        assert not cluster.is_up
    log = (folder.node(1) / "node.log").read_text()
    assert log.count("the node starts") == 2
    assert log.count("the node has stopped") == 2


def test_starting_a_cluster_on_a_port_in_use_names_the_process_that_uses_it(tmp_path: Path) -> None:
    layout = ClusterLayout(combined=1, port=free_port(ClusterLayout(combined=1)))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", layout.port + 100))
        taken.listen()
        with pytest.raises(LaunchError, match=rf"port {layout.port + 100} is taken by .* \(pid {os.getpid()}\)"):
            LocalCluster.up(ClusterFolder(tmp_path / "data"), layout, new_cluster_id())
        (tmp_path / "there").mkdir()
        with pytest.raises(LaunchError, match="is taken by"):
            LocalCluster.up(ClusterFolder(tmp_path / "there"), layout, new_cluster_id())
    assert not answers(layout.port)
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "there").exists()


def test_a_node_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    layout = ClusterLayout(combined=1, port=free_port(ClusterLayout(combined=1)))
    folder = ClusterFolder(tmp_path / "data")
    cluster = LocalCluster.up(folder, layout, new_cluster_id())
    cluster.wait_ready()
    cluster.down()
    meta = folder.node(1) / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    again = LocalCluster.up(folder, layout, cluster.cluster_id)
    try:
        with pytest.raises(LaunchError, match=r"node 1 did not start: .*belongs to node 2, this is node 1"):
            again.wait_ready()
    finally:
        again.down()


_OWNER = """
import sys, time
from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id

cluster = LocalCluster.up(
    ClusterFolder(sys.argv[1]), ClusterLayout(combined=1, port=int(sys.argv[2])), new_cluster_id(), is_temporary=True
)
cluster.wait_ready()
print("ready", flush=True)
sys.stdin.read()
"""


def test_an_attached_temporary_cluster_is_stopped_and_deleted_when_its_owner_is_killed(tmp_path: Path) -> None:
    port = free_port(ClusterLayout(combined=1))
    folder = ClusterFolder(tmp_path / "data")
    command = [sys.executable, "-c", _OWNER, str(folder.path), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        zygote = json.loads(folder.zygote_identity.read_text())
        watch = os.pidfd_open(zygote["pid"])
        owner.kill()
    assert select.select([watch], [], [], 60)[0], "the launcher lives on"
    os.close(watch)
    assert not folder.path.exists()
    assert not answers(port)


def start_in_background(folder: ClusterFolder, port: int) -> None:
    state = Path(os.environ["XDG_STATE_HOME"])
    Command(state).spawn("up", "--background", "--combined", "1", "--data", folder.path, "--port", str(port))


@pytest.mark.parametrize("depth", [1, 4])
def test_a_cluster_is_stopped_from_another_login_session_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """The launcher is found without the runtime folder and the temporary folder of the login session in which it was
    started."""
    folder = ClusterFolder(tmp_path.joinpath(*["d" * 40] * depth, "data"))
    layout = ClusterLayout(combined=1, port=free_port(ClusterLayout(combined=1)))
    for name in ("first", "second"):
        for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
            monkeypatch.setenv(variable, str(tmp_path / name))
        (tmp_path / name).mkdir()
        start_in_background(folder, layout.port)
        started = LocalCluster.find(folder)
        zygote = zygote_of(started)
        assert (folder.path / "control.sock").stat().st_mode & 0o077 == 0
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        started.down()
        assert not zygote.is_alive
        assert not answers(layout.port)


def test_a_cluster_whose_control_socket_was_removed_can_still_be_stopped(tmp_path: Path) -> None:
    port = free_port(ClusterLayout(combined=1))
    folder = ClusterFolder(tmp_path / "data")
    start_in_background(folder, port)
    folder.socket.unlink()
    found = LocalCluster.find(folder)
    zygote = zygote_of(found)
    os.kill(zygote.pid, signal.SIGSTOP)  # it notices the end of node 1 only after the node's next start
    found.kill(1)
    found.start(1)  # started in a new interpreter, which the launcher has not recorded
    assert found.is_up
    found.down()
    assert not zygote.is_alive
    assert not found.is_up
    assert not answers(port)


def test_kraft_down_fails_on_a_folder_that_an_unknown_process_has_locked(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.create(ClusterLayout(combined=1), new_cluster_id())
    holder = take_lock(folder)
    try:
        with pytest.raises(LaunchError, match=r"still holds .*\.lock: find it with fuser"):
            LocalCluster.find(folder).down()
    finally:
        os.close(holder)
    assert LocalCluster.find(folder).down() == []


def test_signalling_a_process_of_another_user_raises_a_launch_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = identify(os.getpid())
    assert me is not None

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(LaunchError, match=f"process {os.getpid()} belongs to another user: SIGTERM must come from"):
        me.signal(signal.SIGTERM)


def test_a_signal_is_not_sent_to_another_process_with_a_reused_number(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    layout = ClusterLayout(combined=1)
    folder.create(layout, new_cluster_id())
    stranger = identify(os.getpid())
    assert stranger is not None
    (folder.node(1) / "pid").write_text(f"{os.getpid()}\n")
    (folder.node(1) / "process.json").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    cluster = LocalCluster.find(folder)
    with pytest.raises(LaunchError, match="node 1 does not run"):
        cluster.kill(1)
