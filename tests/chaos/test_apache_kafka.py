"""Tests that clusters of Apache Kafka support the same fault methods as clusters of pykraft."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.sim.chaos.apache.apache_kafka import ApacheKafka, ProxiedApacheKafka
from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import BROKER, CLIENT, CONTROLLER, QUORUM, ListenerKey
from kraft.sim.nemesis import plan
from kraft.sim.shapes import ClusterError
from tests.bench.kafka import installed
from tests.chaos.relays import Relays

pytestmark = pytest.mark.interop

SECONDS_MAX = 90
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
HOLDER = """
import sys
from pathlib import Path
from kraft.sim.chaos.apache.apache_kafka import ApacheKafka
from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM

with ApacheKafka(Path(sys.argv[1]), combined=1, jvm=QUICK_NODE_JVM) as kafka:
    kafka.pause(1)
    print(kafka.pid(1), kafka.folder, flush=True)
    sys.stdin.read()
"""


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def libraries() -> Path:
    return installed()


@pytest.fixture(scope="module")
def kafka(libraries: Path) -> Iterator[ApacheKafka]:
    """Run a cluster of one controller and three brokers, with a topic `orders` that has a replica on each broker."""
    with ApacheKafka(libraries, controllers=1, brokers=3, settings=SETTINGS, jvm=QUICK_NODE_JVM) as cluster:
        _create_topic(cluster.bootstrap_servers, "orders", 3)
        yield cluster


@pytest.fixture
def whole(kafka: ApacheKafka) -> ApacheKafka:
    """Return the cluster after all faults were removed and all replicas are in sync."""
    kafka.mend()
    _wait_until(kafka.is_whole)
    return kafka


def _create_topic(bootstrap: str, name: str, replicas: int, timeout_s: float = 30) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=1, replication_factor=replicas)
    admin.create_topics([topic], request_timeout=timeout_s)[name].result(timeout=timeout_s + 5)


def _can_create_topic(bootstrap: str, name: str) -> bool:
    """Return whether a new client could create the topic. After a cut, brokers need some tenths of a second to notice
    that they were fenced, and name no controller meanwhile. A librdkafka client that sends its request in that time
    gets no response."""
    try:
        _create_topic(bootstrap, name, 1, timeout_s=3)
    except (KafkaException, TimeoutError) as error:
        return "already exists" in str(error)
    return True


def _produce(bootstrap: str, topic: str = "orders", timeout_s: float = 30) -> bool:
    """Send a record; return whether all in-sync replicas acknowledged it."""
    results: list[bool] = []
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0}
    producer = Producer({**settings, "message.timeout.ms": int(1000 * timeout_s)})
    producer.produce(topic, b"value", on_delivery=lambda error, _message: results.append(error is None))
    producer.flush(timeout_s + 5)
    return results == [True]


def test_an_open_apache_kafka_cluster_serves_clients_and_has_a_controller(whole: ApacheKafka) -> None:
    assert _produce(whole.bootstrap_servers)
    assert whole.active_controller() == 101
    assert whole.leader("orders") in whole.broker_ids
    assert whole.isr("orders") == [1, 2, 3]
    assert {*whole.bootstrap_servers.split(",")} & {*whole.direct_servers.split(",")} == set()


def test_a_killed_apache_kafka_leader_is_replaced_and_returns_to_the_isr(whole: ApacheKafka) -> None:
    (victim, *_) = whole.holders(plan.A_LEADER)
    whole.kill(victim)
    assert not whole.is_running(victim)
    _wait_until(lambda: whole.leader("orders") not in (victim, None))
    assert _produce(whole.bootstrap_servers)
    with pytest.raises(ClusterError, match=f"node {victim} does not run"):
        whole.kill(victim)
    whole.start(victim)
    _wait_until(lambda: victim in whole.isr("orders"))


def test_a_stopped_apache_kafka_broker_hands_over_its_leadership_before_it_ends(whole: ApacheKafka) -> None:
    victim = whole.leader("orders")
    assert victim is not None
    whole.stop(victim)
    assert not whole.is_running(victim)
    assert whole.leader("orders") not in (victim, None)
    whole.start(victim)


def test_a_paused_apache_kafka_leader_loses_its_leadership_and_resumes_as_a_follower(whole: ApacheKafka) -> None:
    victim = whole.leader("orders")
    assert victim is not None
    whole.pause(victim)
    assert whole.is_running(victim)
    assert whole.is_paused(victim)
    _wait_until(lambda: whole.leader("orders") not in (victim, None))
    whole.resume(victim)
    assert not whole.is_paused(victim)
    _wait_until(lambda: victim in whole.isr("orders"))


def test_link_and_request_faults_of_apache_kafka_without_proxies_are_rejected(whole: ApacheKafka) -> None:
    with pytest.raises(ClusterError, match="they have no proxies"):
        whole.partition(1, 2)
    with pytest.raises(ClusterError, match="cannot be tampered with"):
        whole.drop("PRODUCE")
    whole.heal()


def test_the_error_for_an_apache_kafka_node_that_cannot_start_has_its_log(libraries: Path) -> None:
    cluster = ApacheKafka(libraries, combined=1, settings={"num.io.threads": "none"}, jvm=QUICK_NODE_JVM)
    with pytest.raises(ClusterError, match=r"num\.io\.threads"):
        cluster.open()
    with pytest.raises(ClusterError, match="is not open"):
        _ = cluster.folder


def test_a_closed_apache_kafka_cluster_leaves_no_process_and_no_folder(libraries: Path) -> None:
    with ApacheKafka(libraries, combined=1, jvm=QUICK_NODE_JVM) as cluster:
        node, folder = psutil.Process(cluster.pid(1)), cluster.folder
        cluster.pause(1)
    assert not node.is_running()
    assert not folder.exists()


def test_an_apache_kafka_cluster_whose_creating_process_is_killed_leaves_no_process_and_no_folder(
    libraries: Path,
) -> None:
    command = [sys.executable, "-c", HOLDER, str(libraries)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        pid, folder = holder.stdout.readline().split()
        node = psutil.Process(int(pid))
        try:
            holder.kill()
            assert psutil.wait_procs([node], timeout=SECONDS_MAX)[1] == []
            _wait_until(lambda: not Path(folder.decode()).exists())
        finally:
            if node.is_running():
                node.kill()


@pytest.fixture(scope="module")
def relays() -> Relays[ListenerKey]:
    return Relays()


@pytest.fixture(scope="module")
def proxied(libraries: Path, relays: Relays[ListenerKey]) -> Iterator[ProxiedApacheKafka]:
    with ProxiedApacheKafka(
        libraries, relays, controllers=3, brokers=2, settings=SETTINGS, jvm=QUICK_NODE_JVM
    ) as cluster:
        _create_topic(cluster.bootstrap_servers, "orders", 2)
        yield cluster


@pytest.fixture
def healed(proxied: ProxiedApacheKafka) -> Iterator[ProxiedApacheKafka]:
    """Fixture: the cluster without cuts. All cuts are removed before and after each test."""
    _wait_until(proxied.is_whole)
    yield proxied
    proxied.heal()


def test_all_apache_kafka_traffic_except_the_observers_passes_the_proxies(
    proxied: ProxiedApacheKafka, relays: Relays[ListenerKey]
) -> None:
    assert _produce(proxied.bootstrap_servers)
    _wait_until(lambda: proxied.isr("orders") == [1, 2])
    leader = proxied.active_controller()
    assert leader is not None
    kinds = {name for name, _ in relays.accepted}
    assert kinds == {CLIENT, BROKER, CONTROLLER, QUORUM}
    assert (CONTROLLER, leader) in relays.accepted
    bound = {address.port for address in relays.targets.values()}
    for node in proxied.node_ids:
        for one in psutil.Process(proxied.pid(node)).net_connections("tcp"):
            dialled = one.raddr and one.laddr.port not in bound
            assert not (dialled and one.raddr.port in bound), f"node {node} by-passes its proxy: {one}"


def test_apache_kafka_clients_that_are_cut_off_get_no_response_until_the_cut_ends(healed: ProxiedApacheKafka) -> None:
    healed.cut([(0, node) for node in healed.broker_ids])
    assert not _produce(healed.bootstrap_servers, timeout_s=3)
    assert healed.isr("orders") == [1, 2]
    healed.heal()
    assert _produce(healed.bootstrap_servers)


def test_apache_kafka_brokers_cut_off_from_all_controllers_change_no_topics_until_the_cut_ends(
    healed: ProxiedApacheKafka,
) -> None:
    pairs = [(controller, broker) for controller in healed.controller_ids for broker in healed.broker_ids]
    healed.cut(pairs)
    assert healed.active_controller() is None  # no broker can send the request
    with pytest.raises((KafkaException, TimeoutError)):
        _create_topic(healed.bootstrap_servers, "impossible", 1, timeout_s=3)
    healed.join(pairs)
    _wait_until(lambda: _can_create_topic(healed.bootstrap_servers, "possible"))
    assert _produce(healed.bootstrap_servers)


def test_an_apache_kafka_cut_that_no_set_of_proxies_covers_is_rejected(healed: ProxiedApacheKafka) -> None:
    with pytest.raises(ClusterError, match="cannot be broken alone"):
        healed.cut([(1, 2)])
    with pytest.raises(ClusterError, match="all of them and both ways"):
        healed.cut([(101, 1)])
    assert not healed.is_cut(101, 1)
    assert plan.ISOLATE not in healed.fault_kinds
