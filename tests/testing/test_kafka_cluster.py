"""KafkaCluster: real processes for any client, which leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient

from kraft.client import Consumer
from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, NewTopic, ResourceType
from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import state_directory
from kraft.deploy.launch.processes import ProcessIdentity, identify
from kraft.sim.chaos.clusters import cluster_queries
from kraft.sim.chaos.clusters.held_ports import HeldPorts, hold_ports
from kraft.sim.shapes import ClusterError
from kraft.testing import KafkaCluster
from kraft.testing.cluster_pool import ClusterPool
from tests.testing.application import bill, sell

HOLDER = """
import sys
import pytest


@pytest.mark.kraft(combined=2)
def test_that_takes_for_ever(kafka_cluster):
    kafka_cluster.partition(1, 2)
    kafka_cluster.pause(2)
    print("nodes", kafka_cluster.folder, kafka_cluster.pid(1), kafka_cluster.pid(2), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: KafkaCluster) -> KafkaCluster:
    shared.reset()
    return shared


def test_a_cluster_without_topics_is_healthy_and_one_that_does_not_answer_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with KafkaCluster() as cluster:
        assert cluster_queries.find_partitions(cluster.bootstrap_servers) == []
        assert cluster.is_whole()
        with monkeypatch.context() as patched:
            patched.setattr(cluster_queries, "find_partitions", lambda servers: None)
            assert cluster.active_controller() is not None
            assert not cluster.is_whole()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    assert cluster_queries.find_partitions(address) is None


def topics(cluster: KafkaCluster) -> set[str]:
    return set(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics)


def test_client_library_of_another_project_writes_and_reads_in_a_group(cluster: KafkaCluster) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", b"3 apples")
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"3 apples"


def test_brokers_of_two_test_clusters_each_advertise_the_bootstrap_addresses_of_their_cluster(
    cluster: KafkaCluster,
) -> None:
    with KafkaCluster(controllers=1, brokers=2) as other:
        for one in (cluster, other):
            advertised = AdminClient({"bootstrap.servers": one.bootstrap_servers}).list_topics(timeout=10).brokers
            found = {f"{broker.host}:{broker.port}" for broker in advertised.values()}
            assert found == set(one.bootstrap_servers.split(","))
            assert sorted(advertised) == list(one.broker_ids)
        trio.run(sell, other.bootstrap_servers, 1)
        assert "orders" not in topics(cluster)


def test_a_cluster_reset_leaves_no_topic_group_or_setting(cluster: KafkaCluster) -> None:
    everywhere, here = (ConfigResource(ResourceType.BROKER, name) for name in ("", "1"))
    changes = [ConfigChange(ConfigOperation.SET, name, "5") for name in ("log.retention.ms", "min.insync.replicas")]

    async def use() -> None:
        sold = await sell(cluster.bootstrap_servers, 3)
        assert await bill(cluster.bootstrap_servers, 3) == sold
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.configs.alter(everywhere, changes)
            await admin.configs.alter(here, changes[:1])

    async def look() -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert [topic.name for topic in await admin.topics.list() if not topic.is_internal] == []
            assert await admin.groups.list() == ()
            for resource in (everywhere, here):
                settings = {entry.name: entry.value for entry in await admin.configs.describe(resource)}
                assert settings["min.insync.replicas"] == "1"
                assert settings.get("log.retention.ms") != "5"
        assert len(await sell(cluster.bootstrap_servers, 1)) == 1

    trio.run(use)
    cluster.fail_next("Produce", code="INVALID_RECORD", times=None)
    cluster.reset()
    trio.run(look)


def test_a_cluster_reset_removes_group_members_that_a_test_left(cluster: KafkaCluster) -> None:
    async def leave_a_member() -> None:
        async with (
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
            Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="billing") as consumer,
        ):
            await admin.topics.create(NewTopic("orders", partitions=1, replication_factor=1))
            await consumer.subscribe(["orders"])
            while not (await admin.groups.list() and (await admin.groups.describe("billing")).members):
                await consumer.poll(timeout_ms=500)
            await trio.to_thread.run_sync(cluster.reset)
            assert await admin.groups.list() == ()

    trio.run(leave_a_member)


def test_cluster_methods_can_be_used_while_trio_runs(cluster: KafkaCluster) -> None:
    async def story() -> None:
        await sell(cluster.bootstrap_servers, 1)
        assert (cluster.leader("orders"), cluster.isr("orders"), cluster.active_controller()) == (1, [1], 1)

    trio.run(story)


def test_a_cluster_failure_is_reported_with_the_nodes_and_their_logs(cluster: KafkaCluster) -> None:
    text = cluster.describe()
    assert f"node 1 (controller,broker): ready, pid {cluster.pid(1)}" in text
    assert "unfenced" in text


def test_wait_until_raises_a_timeout_if_its_condition_stays_false(cluster: KafkaCluster) -> None:
    cluster.wait_until(lambda: cluster.is_running(1))
    with pytest.raises(ClusterError, match=r"did not hold within 0\.1 s"):
        cluster.wait_until(lambda: False, timeout_s=0.1)


# cleanup


def test_a_closed_cluster_leaves_no_processes_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # other tests start clusters at the same time
    with KafkaCluster() as cluster:
        folder, process = cluster.folder, identified(cluster.pid(1))
        with pytest.raises(ClusterError, match="open already"):
            cluster.open()
    assert not folder.exists()
    assert not process.is_alive
    assert not state_directory().exists()
    for ask in (lambda: cluster.bootstrap_servers, lambda: cluster.kill(1)):
        with pytest.raises(ClusterError, match="is not open"):
            ask()


def identified(pid: int | None) -> ProcessIdentity:
    identity = None if pid is None else identify(pid)
    assert identity is not None
    return identity


@pytest.mark.slow
def test_nodes_end_with_the_test_run_even_if_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HOLDER)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "kraft.testing.plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "nodes " in line)
        _, folder, *pids = line[line.index("nodes ") :].split()
        nodes = [identified(int(pid)) for pid in pids]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for node in nodes:
            while node.is_alive:
                os.sched_yield()
        while Path(folder).exists():
            os.sched_yield()


def test_a_cluster_with_an_invalid_setting_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ClusterError, match=r"log\.retention\.hours"):
        KafkaCluster(settings={"log.retention.hours": "many"}).open()
    assert list(tmp_path.glob("kraft-cluster-*")) == []


def test_a_cluster_that_fails_to_stop_cleanly_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = KafkaCluster()
    before = open_sockets()
    cluster.open()
    folder, down = cluster.folder, LocalCluster.down
    assert open_sockets() > before, "its ports are held"
    monkeypatch.setattr(LocalCluster, "down", failing(down))
    with pytest.raises(LaunchError, match="planted"):
        cluster.close()
    assert not folder.exists()
    assert open_sockets() <= before


def open_sockets() -> int:
    """Return the sockets of this process, including those that are only bound."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith("socket:") for link in links)


def failing(down: Callable[[LocalCluster], object]) -> Callable[[LocalCluster], None]:
    """Return a function that calls `down` and then raises an error."""

    def fail(cluster: LocalCluster) -> None:
        down(cluster)
        raise LaunchError("zygote", "planted")

    return fail


# ports


def test_a_reserved_port_can_be_bound_only_by_the_listener_for_which_it_is_reserved() -> None:
    first, held = hold_ports([0, 1, 100])
    with pytest.raises(OSError):
        HeldPorts([first + 100])
    with socket.socket() as stranger, pytest.raises(OSError):
        stranger.bind(("127.0.0.1", first + 1))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", first))
        listener.listen()
        with socket.create_connection(("127.0.0.1", first)):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first))
    held.release()
    HeldPorts([first + 1, first + 100]).release()


# the pool


def test_cluster_pool_gives_a_test_the_reset_cluster_of_the_previous_test() -> None:
    pool = ClusterPool()
    try:
        first = pool.take(KafkaCluster())
        trio.run(sell, first.bootstrap_servers, 1)
        first.stop(1)
        again = pool.take(KafkaCluster())
        assert again is first
        assert topics(again) == set()
    finally:
        pool.close()


def test_cluster_pool_replaces_a_cluster_that_cannot_be_reset() -> None:
    pool = ClusterPool()
    try:
        first = pool.take(KafkaCluster())
        (first.folder / "1" / "server.properties").write_text("node.id=none\n")
        first.kill(1)
        second = pool.take(KafkaCluster())
        assert second is not first
        assert topics(second) == set()
    finally:
        pool.close()


@pytest.mark.slow
def test_cluster_pool_keeps_a_limited_number_of_clusters() -> None:
    pool = ClusterPool()
    try:
        first = pool.take(KafkaCluster())
        process = identified(first.pid(1))
        pool.take(KafkaCluster(settings={"num.partitions": "2"}))
        pool.take(KafkaCluster(settings={"num.partitions": "3"}))
        assert not process.is_alive
    finally:
        pool.close()


def test_cluster_pool_closes_the_remaining_clusters_if_one_fails_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ClusterPool()
    clusters = [pool.take(KafkaCluster(settings={"num.partitions": count})) for count in ("2", "3")]
    folders = [cluster.folder for cluster in clusters]
    monkeypatch.setattr(LocalCluster, "down", failing(LocalCluster.down))
    with pytest.raises(LaunchError, match="planted"):
        pool.close()
    assert not any(folder.exists() for folder in folders)
    pool.close()


def test_cluster_pool_closes_a_cluster_with_an_interrupted_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ClusterPool()
    folder = pool.take(KafkaCluster()).folder

    def break_off(cluster: KafkaCluster) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(KafkaCluster, "reset", break_off)
    with pytest.raises(KeyboardInterrupt):
        pool.take(KafkaCluster())
    assert not folder.exists()
