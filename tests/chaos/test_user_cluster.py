"""Tests of a cluster that belongs to the user, for which one of our clusters stands in: the faults that are possible,
and the input that is rejected.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import trio

from kraft.client.admin import Admin, NewTopic
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.seam import Address, DialFailed
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.sim.chaos.clusters.node_commands import NodeCommands
from kraft.sim.chaos.clusters.routed_seam import routed_seam
from kraft.sim.chaos.clusters.user_cluster import UserCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import FaultRun
from kraft.sim.shapes import ClusterError
from tests.chaos.chaos_command import Chaos, read_until
from tests.chaos.relays import Relays

SECONDS_MAX = 30
HOLDER = """
import sys
from pathlib import Path
from kraft.sim.chaos.clusters.user_cluster import UserCluster
from kraft.sim.chaos.clusters.node_commands import NodeCommands

cluster = UserCluster(sys.argv[1], control=NodeCommands.read(Path(sys.argv[2])))
cluster.open()
cluster.pause(2)
print("paused", flush=True)
sys.stdin.read()
"""


CLIENTS_OF_ALL_KINDS = """
title = "Clients of all kinds"
duration_s = 60
[workload]
producers = 1
group_members = 1
topic_churn = 1
"""


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def theirs() -> Iterator[KafkaCluster]:
    """Run three nodes with both roles. The user knows only their addresses and process ids."""
    with KafkaCluster(combined=3) as cluster:
        trio.run(_create_topic, cluster.bootstrap_servers, "orders")
        yield cluster


@pytest.fixture(scope="module")
def control(theirs: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the control file with the user's commands; `pid1` is a file in the same folder."""
    folder = tmp_path_factory.mktemp("control")
    lines = []
    for node in theirs.node_ids:
        pid = f"$(cat {theirs.folder / str(node) / 'pid'})"
        start = f"{sys.executable} -m kraft.deploy.cli start {node} --data {theirs.folder}"
        wait = "while kill -0 $pid 2> /dev/null; do sleep 0.05; done"
        lines += [
            f"[node.{node}]",
            f"kill = 'pid={pid}; kill -9 $pid; {wait}'",
            f"stop = 'pid={pid}; kill -TERM $pid; {wait}'",
            f"start = '{start} &'",
            f"pause = 'kill -STOP {pid}'",
            f"resume = 'kill -CONT {pid}'",
        ]
    path = folder / "control.toml"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def brought(theirs: KafkaCluster, control: Path) -> Iterator[UserCluster]:
    with UserCluster(theirs.bootstrap_servers.split(",")[0], control=NodeCommands.read(control)) as cluster:
        _wait_until(cluster.is_whole)
        yield cluster
    _wait_until(theirs.is_whole)


async def _create_topic(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.topics.create(NewTopic(name))


def test_a_users_cluster_reports_its_nodes_and_addresses(brought: UserCluster, theirs: KafkaCluster) -> None:
    assert brought.broker_ids == brought.controller_ids == (1, 2, 3)
    assert brought.bootstrap_servers == brought.direct_servers == theirs.bootstrap_servers
    assert brought.active_controller() == theirs.active_controller()
    assert brought.isr("orders") == [1, 2, 3]
    assert {*brought.fault_kinds} == {plan.KILL, "stumble", plan.CLEAN_STOP, "pause", plan.ROLLING}


def test_the_users_commands_kill_and_start_a_node(brought: UserCluster, theirs: KafkaCluster) -> None:
    victim = brought.leader("orders")
    assert victim is not None
    before = theirs.pid(victim)
    brought.kill(victim)
    assert not brought.is_running(victim)
    _wait_until(lambda: theirs.pid(victim) is None)
    _wait_until(lambda: brought.leader("orders") not in (victim, None))
    brought.start(victim)
    assert theirs.pid(victim) not in (before, None)
    _wait_until(lambda: victim in brought.isr("orders"))


def test_a_node_stopped_by_the_users_commands_is_started_again_when_the_cluster_is_closed(
    brought: UserCluster, theirs: KafkaCluster
) -> None:
    brought.stop(3)
    assert not brought.is_running(3)
    _wait_until(lambda: theirs.pid(3) is None)
    brought.close()
    _wait_until(lambda: theirs.pid(3) is not None)


def test_the_users_commands_pause_and_resume_a_node(brought: UserCluster, theirs: KafkaCluster) -> None:
    brought.pause(2)
    assert brought.is_paused(2)
    _wait_until(lambda: theirs.is_paused(2))
    brought.resume(2)
    _wait_until(lambda: not theirs.is_paused(2))


def test_a_rolling_restart_by_the_users_commands_restarts_each_node(brought: UserCluster, theirs: KafkaCluster) -> None:
    before = [theirs.pid(node) for node in theirs.node_ids]
    run = FaultRun(brought, [plan.Fault(at_ms=0, kind=plan.ROLLING)], lambda: int(1000 * time.monotonic()))
    with closing(run.steps()) as steps:
        for at_ms in steps:
            time.sleep(max(0.0, at_ms / 1000 - time.monotonic()))
    after = [theirs.pid(node) for node in theirs.node_ids]
    assert None not in after
    assert not {*before} & {*after}


def test_a_paused_node_of_a_users_cluster_is_resumed_when_the_runner_is_killed(
    theirs: KafkaCluster, control: Path
) -> None:
    command = [sys.executable, "-c", HOLDER, theirs.bootstrap_servers, str(control)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"paused\n"
        node = psutil.Process(theirs.pid(2))
        _wait_until(lambda: node.status() == psutil.STATUS_STOPPED)
        holder.kill()
        _wait_until(lambda: node.status() != psutil.STATUS_STOPPED)
    _wait_until(theirs.is_whole)


async def _topics(cluster: UserCluster, bootstrap: str, timeout_ms: int = 30_000) -> list[str]:
    async with (
        cluster.client_seam() as seam,
        Admin(bootstrap_servers=bootstrap, timeout_ms=timeout_ms, seam=seam) as admin,
    ):
        described = await admin.topics.describe(["orders"])
        return [topic.name for topic in described]


def test_clients_of_a_users_cluster_connect_only_through_proxies_and_a_cut_stops_them(theirs: KafkaCluster) -> None:
    relays: Relays[int] = Relays()
    with UserCluster(theirs.bootstrap_servers, proxies=relays) as cluster:
        assert cluster.fault_kinds == (plan.CLIENTS_CUT,)
        first, *_ = cluster.bootstrap_servers.split(",")
        assert trio.run(_topics, cluster, first) == ["orders"]
        assert relays.accepted.total() > 0
        before = relays.accepted.total()
        assert cluster.isr("orders") == [1, 2, 3]  # the observer is not among the clients
        assert relays.accepted.total() == before
        cluster.cut([(0, node) for node in cluster.broker_ids])
        with pytest.raises((*CONNECTION_FAILURES, ClusterUnreachable)):
            trio.run(_topics, cluster, first, 1_500)
        assert cluster.isr("orders") == [1, 2, 3]
        cluster.heal()
        assert trio.run(_topics, cluster, first) == ["orders"]
        with pytest.raises(ClusterError, match="1 → 2 of the user's cluster cannot be broken"):
            cluster.cut([(1, 2)])


def test_a_routed_seam_does_not_dial_an_address_without_a_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])

        async def ask() -> None:
            async with (
                routed_seam({Address("127.0.0.1", 1): Address("127.0.0.1", 2)}) as seam,
                Admin(bootstrap_servers=str(address), timeout_ms=500, seam=seam) as admin,
            ):
                await admin.nodes.cluster()

        with pytest.raises((ClusterUnreachable, DialFailed), match="it has no proxy"):
            trio.run(ask)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_users_cluster_without_proxies_and_commands_rejects_all_faults(theirs: KafkaCluster) -> None:
    with UserCluster(theirs.bootstrap_servers) as cluster:
        assert cluster.fault_kinds == ()
        with pytest.raises(ClusterError, match="need --control FILE"):
            cluster.kill(1)
        with pytest.raises(ClusterError, match="have no proxies"):
            cluster.cut([(0, 1)])
        with pytest.raises(ClusterError, match="cannot be tampered with"):
            cluster.drop("PRODUCE")
        assert theirs.is_running(1)


@pytest.mark.parametrize(
    ("address", "complaint"),
    [("nonsense", r"is not HOST:PORT"), ("127.0.0.1:1", r"no Kafka cluster answers at 127\.0\.0\.1:1")],
)
def test_a_users_cluster_that_does_not_answer_is_rejected(address: str, complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        UserCluster(address).open()


def test_a_control_file_with_an_unknown_node_is_rejected(theirs: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "control.toml"
    path.write_text("[node.7]\npause = 'true'\nresume = 'true'\n")
    with pytest.raises(ClusterError, match=r"commands of node 7, which .* its nodes are 1, 2, 3"):
        UserCluster(theirs.bootstrap_servers, control=NodeCommands.read(path)).open()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[node", "is not TOML"),
        ("", "names no node"),
        ("nodes = 3", r"unknown nodes; expected timeout_s and \[node\.ID\] tables"),
        ("timeout_s = 0\n[node.1]\n", "a number of seconds above 0, and not 0"),
        ("[node.one]\n", "expected a node id"),
        ("node.1 = 'kill'", "a table of shell commands"),
        ("[node.1]\nreboot = 'true'\n", "has 'reboot': expected kill, stop, start, pause, resume"),
        ("[node.1]\nkill = 9\n", "a shell command in one line, and not 9"),
        ("[node.1]\nkill = 'true'\n", "has kill and no start: the node would never come back"),
        ("[node.1]\npause = 'true'\nstart = 'true'\n", "has pause and no resume"),
    ],
)
def test_an_invalid_control_file_is_rejected(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "control.toml"
    path.write_text(text)
    with pytest.raises(ClusterError, match=complaint):
        NodeCommands.read(path)


def test_a_missing_control_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="No such file"):
        NodeCommands.read(tmp_path / "missing.toml")


def test_the_error_for_a_failed_control_command_has_its_output(tmp_path: Path) -> None:
    path = tmp_path / "control.toml"
    path.write_text("[node.1]\nstart = 'echo no such container >&2; exit 3'\n")
    commands = NodeCommands.read(path)
    with pytest.raises(ClusterError, match=r"start of \[node\.1\] in .* exit code 3: no such container"):
        commands.run(1, "start")
    with pytest.raises(ClusterError, match=r"has no command for this: expected kill in \[node\.2\]"):
        commands.run(2, "kill")


def test_a_control_command_that_times_out_is_killed_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "control.toml"
    path.write_text("timeout_s = 0.2\n[node.1]\nresume = 'sleep 600'\n")
    with pytest.raises(ClusterError, match=r"has not ended within 0\.2 s, and was killed"):
        NodeCommands.read(path).run(1, "resume")


def test_a_control_command_runs_in_the_folder_of_its_file_and_may_leave_a_process_running(tmp_path: Path) -> None:
    path = tmp_path / "control.toml"
    path.write_text("[node.1]\nstart = 'sleep 600 & echo $! > pid'\n")
    NodeCommands.read(path).run(1, "start")
    left = psutil.Process(int((tmp_path / "pid").read_text()))
    assert left.status() != psutil.STATUS_ZOMBIE
    left.kill()


def test_the_control_file_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "chaos.md").read_text()
    lines = page.partition("    [node.1]\n")[2].partition("\n\nA kind of fault")[0].splitlines()
    path = tmp_path / "nodes.toml"
    path.write_text("\n".join(["[node.1]", *(line.strip() for line in lines)]))
    assert "systemctl start kafka" in path.read_text()
    NodeCommands.read(path)


# whole runs


async def _left(bootstrap: str) -> tuple[set[str], set[str]]:
    """Return the existing topics and groups, except Kafka's internal ones."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        topics = {topic.name for topic in await admin.topics.list() if not topic.is_internal}
        return topics, {group.group_id for group in await admin.groups.list()}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_on_a_users_cluster_deletes_only_its_own_topics_and_groups(
    theirs: KafkaCluster, tmp_path: Path, number: signal.Signals
) -> None:
    chaos = Chaos(tmp_path)
    before = trio.run(_left, theirs.bootstrap_servers)
    with chaos.start(chaos.scenario(CLIENTS_OF_ALL_KINDS), "--against", theirs.bootstrap_servers) as process:
        read_until(process, "clients work")
        _wait_until(lambda: any("churn" in name for name in trio.run(_left, theirs.bootstrap_servers)[0]))
        _wait_until(lambda: "chaos-group" in trio.run(_left, theirs.bootstrap_servers)[1])
        process.send_signal(number)
        printed, _ = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 128 + number, printed
    assert trio.run(_left, theirs.bootstrap_servers) == before, printed


@pytest.mark.slow
def test_an_existing_topic_of_a_users_cluster_is_neither_used_nor_deleted(theirs: KafkaCluster, tmp_path: Path) -> None:
    chaos = Chaos(tmp_path)
    trio.run(_create_topic, theirs.bootstrap_servers, "chaos")
    try:
        scenario = chaos.scenario(CLIENTS_OF_ALL_KINDS)
        words = ("run", scenario, "--out", chaos.runs, "--against", theirs.bootstrap_servers)
        assert "topic chaos exists already" in chaos.run(*words, code=3)
        assert trio.run(_left, theirs.bootstrap_servers)[0] == {"orders", "chaos"}
    finally:
        trio.run(_delete_topic, theirs.bootstrap_servers, "chaos")


async def _delete_topic(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.topics.delete(name)


def test_a_failed_kill_command_is_reported_and_the_node_is_not_started_at_the_end(
    theirs: KafkaCluster, tmp_path: Path
) -> None:
    path = tmp_path / "nodes.toml"
    tables = "".join(f'[node.{node}]\nkill = "no-such-program"\nstart = "false"\n' for node in theirs.broker_ids)
    path.write_text(tables)
    with UserCluster(theirs.bootstrap_servers, control=NodeCommands.read(path)) as cluster:
        run = FaultRun(cluster, [plan.Fault(at_ms=0, kind=plan.KILL, node=1)], lambda: 0)
        with pytest.raises(ClusterError, match=r"kill of \[node.1\].* exit code 127"):
            next(run.steps())
        assert cluster.is_running(1)
