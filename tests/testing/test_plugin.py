"""The pytest plugin in a user's test run: each test here starts a separate pytest run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

KAFKA_CLUSTER = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient


def topics(cluster):
    return set(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics)


@pytest.mark.parametrize("number", range(3))
def test_each_test_has_the_cluster_for_itself(kafka_cluster, number):
    assert topics(kafka_cluster) == set()
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    producer.produce("orders", b"3 apples")
    assert producer.flush(20) == 0
    assert kafka_cluster.leader("orders") == 1


@pytest.mark.kraft(controllers=1, brokers=2, settings={"num.partitions": "2"})
def test_a_marker_chooses_another_shape(kafka_cluster):
    assert kafka_cluster.node_ids == (101, 1, 2)
    assert kafka_cluster.active_controller() == 101


def test_that_fails(kafka_cluster):
    assert kafka_cluster.leader("nowhere")
"""

SIMULATED = """
import random
import pytest
from kraft.client import Producer

drawn = []


def test_the_sun_rises(simulated_cluster):
    async def main():
        drawn.append(random.random())
        async with Producer(bootstrap_servers=simulated_cluster.bootstrap_servers) as producer:
            report = await producer.send("orders", b"3 apples")
        return report.offset

    assert simulated_cluster.run(main) == 0


def test_that_fails(simulated_cluster):
    async def main():
        print("drawn:", random.random())
        assert simulated_cluster.isr("nowhere")

    simulated_cluster.run(main)


@pytest.mark.kraft(combined=1)
def test_a_marker_chooses_another_shape(simulated_cluster):
    assert simulated_cluster.node_ids == (1,)
"""


def run_pytest(folder: Path, text: str, *options: str, outcome: int) -> str:
    """Return the output of a pytest run with this test module and our plugin, loaded as by its entry point."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "kraft.testing.plugin", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == outcome, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_real_clusters_work_in_a_pytest_run_with_workers(tmp_path: Path) -> None:
    """The run has two workers, each with separate clusters."""
    printed = run_pytest(
        tmp_path, KAFKA_CLUSTER, "-p", "xdist", "-n", "2", "--strict-markers", "-W", "error", outcome=1
    )
    assert "1 failed, 4 passed" in printed
    assert "there is no partition nowhere-0" in printed
    assert re.search(r"- KafkaCluster -+\nnode 1 \(controller,broker\): ready, pid \d+\n", printed)
    assert "broker is unfenced" in printed


@pytest.mark.slow
def test_session_cluster_is_shared_by_all_tests_and_has_the_shape_given_as_an_option(tmp_path: Path) -> None:
    text = """
import pytest


@pytest.fixture(scope="module")
def orders(session_kafka_cluster):
    session_kafka_cluster.create_topic("orders")
    return session_kafka_cluster


@pytest.mark.parametrize("count", [1, 2])
def test_one_more(orders, kafka_cluster, count):
    assert kafka_cluster.bootstrap_servers != orders.bootstrap_servers
    orders.produce("orders", ["apple"])
    assert len(orders.records("orders")) == count
    assert orders.node_ids == (1, 2)
"""
    run_pytest(tmp_path, text, "--kraft-shape", "2", "-W", "error", "-p", "no:randomly", outcome=0)


@pytest.mark.slow
def test_a_failed_simulated_test_reports_its_seed_which_repeats_the_run(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, SIMULATED, "--strict-markers", "-W", "error", outcome=1)
    assert "1 failed, 2 passed" in printed
    again = re.search(r"to see this again: pytest --kraft-seed (\d+) test_it.py::test_that_fails\n", printed)
    drawn = re.search(r"drawn: (.*)", printed)
    assert again is not None
    assert drawn is not None
    assert f"seed {again[1]}, 0." in printed
    repeated = run_pytest(tmp_path, SIMULATED, "--kraft-seed", again[1], "test_it.py::test_that_fails", outcome=1)
    assert drawn[0] in repeated
    assert again[0] in repeated


@pytest.mark.slow
def test_a_simulated_test_is_repeated_under_many_seeds(tmp_path: Path) -> None:
    text = SIMULATED + "\n\ndef test_all_were_different():\n    assert len(set(drawn)) == 3\n"
    printed = run_pytest(tmp_path, text, "--kraft-seeds", "3", "--kraft-seed", "10", "-v", outcome=1)
    assert "test_the_sun_rises[run2] PASSED" in printed
    assert "3 failed, 7 passed" in printed
    assert [int(seed) for seed in re.findall(r"again: pytest --kraft-seed (\d+)", printed)] == [10, 11, 12]


@pytest.mark.slow
def test_command_to_repeat_a_test_has_its_parameters_and_shape_but_not_the_run_number(tmp_path: Path) -> None:
    text = """
import pytest


@pytest.mark.parametrize("word", ["it's", "run1"])
def test_word(simulated_cluster, word):
    raise AssertionError(word, simulated_cluster.node_ids)


def test_plain(simulated_cluster):
    raise AssertionError(simulated_cluster.node_ids)
"""
    options = ("--kraft-seed", "10", "--kraft-seeds", "2", "--kraft-shape", "1+2")
    printed = run_pytest(tmp_path, text, *options, outcome=1)
    commands = [line.partition("again: ")[2] for line in printed.splitlines() if line.startswith("to see this again: ")]
    tests = ("test_word[it's]", "test_word[run1]", "test_plain")
    assert sorted(map(shlex.split, commands)) == sorted(
        ["pytest", "--kraft-seed", seed, "--kraft-shape", "1+2", f"test_it.py::{test}"]
        for seed in ("10", "11")
        for test in tests
    )
    repeated = run_pytest(tmp_path, text, *shlex.split(commands[0])[1:], outcome=1)
    assert "1 failed" in repeated
    assert commands[0] in repeated


def test_the_command_to_repeat_a_test_works_in_the_folder_of_the_pytest_call(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    printed = run_pytest(inner, "def test_it(simulated_cluster):\n    assert 0\n", outcome=1)
    (command,) = re.findall(r"to see this again: pytest (.*)", printed)
    assert command.endswith(" test_it.py::test_it")
    assert "1 failed" in run_pytest(
        inner, "def test_it(simulated_cluster):\n    assert 0\n", *shlex.split(command), outcome=1
    )


@pytest.mark.parametrize(("given", "says"), [("3, 3", "has no 3, 3; it is"), ("broker=3", "has no broker; it is")])
def test_an_unknown_argument_of_the_cluster_marker_is_reported(tmp_path: Path, given: str, says: str) -> None:
    text = f"import pytest\n@pytest.mark.kraft({given})\ndef test_it(simulated_cluster):\n    pass\n"
    assert f"the marker {says} kraft(controllers=" in run_pytest(tmp_path, text, outcome=1)


@pytest.mark.slow
def test_a_failed_test_describes_each_of_its_clusters(tmp_path: Path) -> None:
    text = "def test_both(kafka_cluster, simulated_cluster):\n    raise AssertionError\n"
    printed = run_pytest(tmp_path, text, outcome=1)
    assert re.search(r"- KafkaCluster -+\nnode 1 ", printed)
    assert re.search(r"- SimulatedCluster -+\nseed \d+, ", printed)


@pytest.mark.slow
def test_a_test_failure_is_reported_if_its_cluster_cannot_be_described(tmp_path: Path) -> None:
    text = """
import pytest


@pytest.fixture
def broken(kafka_cluster):
    yield
    raise RuntimeError("the teardown of a fixture")


def test_that_closes_its_cluster(kafka_cluster):
    kafka_cluster.close()
    raise AssertionError("the test itself")


def test_without_a_log(kafka_cluster):
    (kafka_cluster.folder / "1" / "node.log").unlink()
    raise AssertionError("and another")


def test_of_which_nothing_can_be_said(kafka_cluster, monkeypatch):
    monkeypatch.setattr(kafka_cluster, "_cluster", object())
    raise AssertionError("and a third")


def test_before_a_teardown_that_fails(broken):
    pass
"""
    printed = run_pytest(tmp_path, text, outcome=1)
    assert "3 failed, 1 passed, 1 error" in printed
    for said in ("the test itself", "and another", "and a third", "the teardown of a fixture"):
        assert said in printed
    assert len(re.findall(r"- KafkaCluster -+\nthis cluster is closed\n", printed)) == 2
    assert re.search(r"- KafkaCluster -+\nnode 1 \(controller,broker\): ready, pid \d+\n", printed)
    assert "could not be described: AttributeError" in printed


@pytest.mark.slow
def test_the_shape_option_applies_to_tests_without_a_marker(tmp_path: Path) -> None:
    text = """
import pytest


def test_default(simulated_cluster):
    assert simulated_cluster.node_ids == (101, 1, 2)


@pytest.mark.kraft(3)
def test_number(simulated_cluster):
    pass


@pytest.mark.kraft(size=3)
def test_word(simulated_cluster):
    pass


@pytest.mark.kraft(combined=1, brokers=3)
def test_two_shapes(simulated_cluster):
    pass
"""
    printed = run_pytest(tmp_path, text, "--kraft-shape", "1+2", outcome=1)
    assert "1 passed, 3 errors" in printed
    assert len(re.findall(r"^E .*the marker has no \S+; it is kraft", printed, re.MULTILINE)) == 2
    assert "combined nodes, or controllers and brokers: not both" in printed


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--kraft-shape", "three"), "'three' is no shape of a cluster"),
        (("--kraft-seeds", "0"), "--kraft-seeds is 1 or more"),
    ],
)
def test_an_invalid_plugin_option_ends_the_pytest_run_at_once(
    tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    printed = run_pytest(tmp_path, "def test_it():\n    pass\n", *options, outcome=4)
    assert f"ERROR: {says}" in printed


@pytest.mark.slow
def test_one_test_can_use_a_real_and_a_simulated_cluster_but_not_two_simulated_clusters(tmp_path: Path) -> None:
    text = """
from kraft.sim import SimulatedCluster


def test_both(kafka_cluster, simulated_cluster):
    async def main():
        return simulated_cluster.active_controller()

    assert simulated_cluster.run(main) in (101, 102, 103)
    assert kafka_cluster.active_controller() == 1


def test_two_worlds(simulated_cluster):
    with SimulatedCluster(seed=1):
        pass
"""
    printed = run_pytest(tmp_path, text, outcome=1)
    assert "1 failed, 1 passed" in printed
    assert "is open already, and worlds do not nest" in printed


def test_a_pytest_run_without_clusters_imports_no_cluster_modules(tmp_path: Path) -> None:
    text = """
import sys


def test_it():
    loaded = {name for name in sys.modules if name.startswith("kraft")}
    assert loaded == {"kraft", "kraft.testing", "kraft.testing.plugin"}
"""
    assert "1 passed" in run_pytest(tmp_path, text, outcome=0)


def test_importing_the_plugin_without_pytest_raises_an_error_that_names_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['pytest'] = None; import kraft.testing.plugin"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'pykraft[pytest]'" in done.stderr
    program = "import sys; sys.modules['pytest'] = None; from kraft.testing import ClusterError, Fault, KafkaCluster"
    subprocess.run([sys.executable, "-c", program], check=True)
