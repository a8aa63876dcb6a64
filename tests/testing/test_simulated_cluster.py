"""SimulatedCluster: an application's own code in virtual time, with the same results under the same seed."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from kraft.broker.api import describe_configs
from kraft.client import Consumer, KafkaError, Producer
from kraft.client.admin import Admin, ConfigResource, ResourceType
from kraft.seam import InvariantError
from kraft.sim import SimulatedCluster
from kraft.sim.shapes import ClusterError
from kraft.sim.world import NotOfThisWorld
from tests.testing.application import bill, sell

ROOT = Path(__file__).resolve().parents[2]


def story(seed: int) -> tuple[list[str], str]:
    """Sell orders under random faults; return the sold orders and the trace."""
    with SimulatedCluster(seed=seed) as cluster:

        async def main() -> list[str]:
            async with cluster.random_faults():
                sold = await sell(cluster.bootstrap_servers, 30)
            assert sorted(await bill(cluster.bootstrap_servers, len(sold))) == sorted(sold)
            return sold

        return cluster.run(main), cluster.trace_hash


def test_the_same_seed_repeats_a_simulated_run_and_another_seed_differs() -> None:
    assert story(3) == story(3)
    assert story(3) != story(4)


def test_one_time_process_initialisation_does_not_change_a_simulated_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is imported late may be the first in its process that needs a temporary file."""

    def drawn() -> float:
        async def main() -> float:
            tempfile.NamedTemporaryFile().close()
            return random.random()

        with SimulatedCluster(seed=3) as cluster:
            return cluster.run(main)

    monkeypatch.setattr(tempfile, "_name_sequence", None)  # as in a fresh process
    assert drawn() == drawn()


@pytest.mark.slow
def test_a_simulated_run_is_the_same_in_processes_with_different_hash_seeds() -> None:
    program = "from tests.testing.test_simulated_cluster import story; print(story(5)[1])"
    hashes = set()
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        hashes.add(done.stdout)
    assert len(hashes) == 1


@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_records_survive_random_simulated_faults(seed: int) -> None:
    with SimulatedCluster(seed=seed) as cluster:
        down: set[int] = set()

        async def main() -> None:
            async with cluster.random_faults(pause_s=0.5), trio.open_nursery() as nursery:
                nursery.start_soon(look_on)
                sold = await sell(cluster.bootstrap_servers, 100)
                nursery.cancel_scope.cancel()
            await cluster.wait_ready()
            assert sorted(await bill(cluster.bootstrap_servers, len(sold))) == sorted(sold)

        async def look_on() -> None:
            while True:
                down.update(node for node in cluster.node_ids if not cluster.is_running(node))
                await trio.sleep(0.01)

        cluster.run(main)
    assert down


def test_simulated_time_is_virtual_and_starts_with_the_nodes() -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> float:
            before = time.monotonic(), time.time(), time.perf_counter_ns()
            await trio.sleep(100)
            after = time.monotonic(), time.time(), time.perf_counter_ns()
            assert [round(later - earlier) for earlier, later in zip(before[:2], after[:2], strict=True)] == [100, 100]
            assert round((after[2] - before[2]) / 1e9) == 100
            return cluster.now_s

        started = time.monotonic()
        assert 100 < cluster.run(main) < 110
        assert time.monotonic() - started < 100


def test_pythons_random_module_follows_the_seed_only_within_a_simulated_run() -> None:
    async def draw() -> list[object]:
        drawn: list[object] = [random.random(), random.choice(range(1000)), uuid.uuid4(), os.urandom(4)]
        own = random.Random()
        drawn.append(own.random())
        own.seed()
        random.seed()
        return [*drawn, own.random(), random.random(), random.Random(7).random()]

    def run(seed: int) -> list[object]:
        with SimulatedCluster(seed=seed, combined=1) as cluster:
            return cluster.run(draw)

    assert run(1) == run(1)
    assert not set(run(1)[:-1]) & set(run(2)[:-1])
    assert run(1)[-1] == random.Random(7).random()
    assert uuid.uuid4() != uuid.uuid4()
    assert random.Random().random() != random.Random().random()


@pytest.mark.parametrize("shape", [{"combined": 1}, {"combined": 3}, {"brokers": 2}, {"controllers": 3, "brokers": 3}])
def test_every_shape_of_a_simulated_cluster_serves_clients(shape: dict[str, int]) -> None:
    with SimulatedCluster(seed=2, **shape) as cluster:
        sold = cluster.run(sell, cluster.bootstrap_servers, 3)
    assert len(sold) == 3


def test_simulated_cluster_settings_apply_to_every_node() -> None:
    with SimulatedCluster(seed=2, combined=1, settings={"auto.create.topics.enable": "false"}) as cluster:

        async def main() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=500) as producer:
                with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PARTITION"):
                    await producer.send("orders", b"")

        cluster.run(main)


def test_an_application_error_in_a_simulated_run_is_raised_with_the_seed() -> None:
    async def main() -> None:
        raise LookupError("mine")

    with SimulatedCluster(seed=77, combined=1) as cluster, pytest.raises(LookupError, match="mine") as raised:
        cluster.run(main)
    assert any("seed 77" in note for note in raised.value.__notes__)


def test_an_application_that_never_ends_is_stopped_by_the_simulated_timeout() -> None:
    async def main() -> None:
        await trio.sleep_forever()

    with SimulatedCluster(seed=1, combined=1) as cluster, pytest.raises(ClusterError, match="within 30 virtual"):
        cluster.run(main, timeout_s=30)


@pytest.mark.parametrize("address", ["localhost:9092", "node-7:9092", "node-1:9999"])
def test_an_application_that_dials_an_unknown_address_gets_a_hint(address: str) -> None:
    async def main() -> None:
        async with Consumer(bootstrap_servers=address, group_id="bills") as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll()

    with SimulatedCluster(seed=1, combined=1) as cluster, pytest.raises(ClusterError, match="within 30") as raised:
        cluster.run(main, timeout_s=30)
    told = f"the application dialled {address}, where no node of this simulated cluster is; its bootstrap_servers are "
    assert told + "node-1:9092" in raised.value.__notes__


def test_an_application_that_dials_a_stopped_broker_gets_no_address_hint() -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> None:
            cluster.kill(1)
            await sell(cluster.bootstrap_servers, 1)

        with pytest.raises(Exception) as raised:
            cluster.run(main)
    assert not any("dialled" in note for note in raised.value.__notes__)


def test_a_failing_node_ends_the_simulated_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> None:
            cluster._nodes._nodes[1].fail(InvariantError("planted"))
            await trio.sleep_forever()

        with pytest.raises(ClusterError, match=r"node 1 stopped on its own.*planted"):
            cluster.run(main)


def test_a_node_failure_at_the_end_of_a_simulated_run_fails_the_run() -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> str:
            cluster._failed(1, InvariantError("planted"))
            return "passed"

        with pytest.raises(ClusterError, match=r"node 1 stopped on its own.*planted"):
            cluster.run(main)


def break_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(*_: Any) -> Any:
        raise LookupError("planted")

    monkeypatch.setattr(describe_configs, "_layers", twin)


async def describe(cluster: SimulatedCluster) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.configs.describe(ConfigResource(ResourceType.BROKER, "1"))


def test_a_violated_invariant_fails_the_simulated_run_with_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that raises fails only one request, and the application may not notice."""
    break_a_handler(monkeypatch)
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> None:
            with suppress(KafkaError):
                await describe(cluster)

        with pytest.raises(ClusterError) as raised:
            cluster.run(main)
    said = str(raised.value)
    assert said.startswith("an invariant broke: N1 at event")
    assert "node-1 logged an error: request failed" in said
    assert "the nodes logged last:" in said
    assert any("seed 1, " in note for note in raised.value.__notes__)


def test_a_violated_invariant_is_reported_together_with_the_applications_error(monkeypatch: pytest.MonkeyPatch) -> None:
    break_a_handler(monkeypatch)
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> None:
            try:
                await describe(cluster)
            finally:
                raise LookupError("mine")

        with pytest.raises(LookupError, match="mine") as raised:
            cluster.run(main)
    assert any("an invariant broke: N1" in note for note in raised.value.__notes__)


def test_an_application_in_a_simulated_run_may_log_errors() -> None:
    async def main() -> None:
        structlog.get_logger("shop").error("sold out", exc_info=LookupError("mine"))

    with SimulatedCluster(seed=1, combined=1) as cluster:
        cluster.run(main)


def kept(seed: int, end: str, **settings: str) -> bool:
    """Return whether an acknowledged record survives the crash of the only broker."""
    with SimulatedCluster(seed=seed, combined=1, settings=settings) as cluster:

        async def main() -> bool:
            sold = await sell(cluster.bootstrap_servers, 1)
            getattr(cluster, end)(1)
            cluster.start(1)
            await cluster.wait_ready()
            await sell(cluster.bootstrap_servers, 1)
            return (await bill(cluster.bootstrap_servers, 1))[0] == sold[0]

        return cluster.run(main)


def test_a_simulated_power_loss_loses_unsynced_data() -> None:
    seeds = range(8)
    assert all(kept(seed, "kill") for seed in seeds)
    assert not all(kept(seed, "lose_power") for seed in seeds)
    assert all(kept(seed, "lose_power", **{"log.flush.interval.messages": "1"}) for seed in seeds)


def test_a_wait_that_times_out_in_a_simulated_run_is_an_error() -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> None:
            with pytest.raises(ClusterError, match="did not come within 1 virtual"):
                await cluster.wait_until(lambda: False, timeout_s=1)
            cluster.kill(1)
            with pytest.raises(ClusterError, match=r"not whole after 2 virtual seconds: nodes \[1\] are down"):
                await cluster.wait_ready(timeout_s=2)

        cluster.run(main)


# wrong use


async def nothing() -> None:
    """An application that does nothing."""


def test_simulated_clusters_cannot_be_nested() -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:
        with (
            pytest.raises(ClusterError, match=r"a simulated cluster \(seed 1\) is open already"),
            SimulatedCluster(seed=2),
        ):
            pass
        cluster.run(nothing)
    with SimulatedCluster(seed=2, combined=1) as other:
        other.run(nothing)


def test_simulated_cluster_cannot_run_a_second_time() -> None:
    with SimulatedCluster(seed=8, combined=1) as cluster:
        cluster.run(nothing)
        with pytest.raises(ClusterError, match=r"runs once; SimulatedCluster\(seed=8\) begins it anew"):
            cluster.run(nothing)


def test_a_simulated_cluster_that_is_not_open_cannot_run() -> None:
    with pytest.raises(ClusterError, match="with SimulatedCluster"):
        SimulatedCluster(seed=1).run(nothing)


async def test_simulated_run_must_be_called_from_synchronous_code() -> None:
    with SimulatedCluster(seed=1) as cluster, pytest.raises(ClusterError, match="not async def"):
        cluster.run(nothing)


def test_simulated_cluster_methods_can_only_be_used_within_a_run() -> None:
    with SimulatedCluster(seed=1) as cluster:
        for verb in (lambda: cluster.kill(1), lambda: cluster.leader("orders"), cluster.active_controller):
            with pytest.raises(ClusterError, match=r"live within run\(main\)"):
                verb()


def test_threads_are_refused_in_a_simulated_run() -> None:
    async def main() -> None:
        await trio.to_thread.run_sync(time.sleep, 1)

    with SimulatedCluster(seed=1, combined=1) as cluster, pytest.raises(Exception, match="inside a world"):
        cluster.run(main)


def test_simulated_run_refuses_a_function_that_is_not_async() -> None:
    async def right() -> int:
        return 1

    with SimulatedCluster(seed=1, combined=1) as cluster:
        with pytest.raises(ClusterError, match="give the async function, and not <coroutine"):
            cluster.run(right())  # type: ignore[call-overload,arg-type]
        assert cluster.run(right) == 1
    with (
        SimulatedCluster(seed=1, combined=1) as cluster,
        pytest.raises(ClusterError, match="must be an async function"),
    ):
        cluster.run(lambda: 1)  # type: ignore[arg-type,return-value]


async def connect_with_trio() -> None:
    await trio.open_tcp_stream("127.0.0.1", 9)


async def connect_a_socket() -> None:
    with socket.socket() as alone:
        alone.connect(("127.0.0.1", 9))


async def serve_with_trio() -> None:
    await trio.open_tcp_listeners(0, host="127.0.0.1")


@pytest.mark.parametrize("reach_out", [connect_with_trio, connect_a_socket, serve_with_trio])
def test_real_sockets_are_refused_in_a_simulated_run(reach_out: Callable[[], Awaitable[None]]) -> None:
    with (
        SimulatedCluster(seed=1, combined=1) as cluster,
        pytest.raises(NotOfThisWorld, match=r"socket\.\w+ was called"),
    ):
        cluster.run(reach_out)


def test_ctrl_c_in_a_nursery_of_the_application_is_a_keyboard_interrupt() -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(interrupted)

    with SimulatedCluster(seed=1, combined=1) as cluster, pytest.raises(KeyboardInterrupt):
        cluster.run(main)


@pytest.mark.parametrize(
    ("kinds", "says"),
    [((), "not none"), (("kill", "earthquake"), "not earthquake"), (("partition",), "no links to cut")],
)
def test_unknown_kinds_of_faults_are_refused(kinds: tuple[str, ...], says: str) -> None:
    with SimulatedCluster(seed=1, combined=1) as cluster:

        async def main() -> None:
            with pytest.raises(ClusterError, match=says):
                async with cluster.random_faults(kinds):
                    pass

        cluster.run(main)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"combined": 1, "brokers": 3}, "not both"),
        ({"combined": 0}, "one broker at least"),
        ({"brokers": 0}, "at least"),
        ({"brokers": "3"}, "brokers is a number of nodes, and not '3'"),
        ({"settings": "num.partitions=6"}, "settings are a dict"),
        ({"settings": {"num.partitions": 6.5}}, "a setting is a text or a whole number: 'num.partitions': '6.5'"),
        ({"settings": {"num.partitions": "many"}}, "settings: num.partitions: 'many' is not a whole number"),
        ({"settings": {"num.partitons": "6"}}, "settings: .*did you mean num.partitions"),
    ],
)
def test_an_impossible_cluster_shape_is_refused(shape: dict[str, Any], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        SimulatedCluster(seed=1, **shape)
