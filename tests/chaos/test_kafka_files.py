"""Tests of two functions: finding Apache Kafka's files, and the layout of a cluster whose links can have proxies."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from kraft.seam import Address
from kraft.sim.chaos.apache import kafka_files
from kraft.sim.chaos.apache.kafka_files import HOME_VARIABLE, find_libraries, libraries_of, version_of
from kraft.sim.chaos.apache.kafka_layout import BROKER, CLIENT, CONTROLLER, DIRECT, QUORUM, KafkaLayout, split_keys
from kraft.sim.shapes import ClusterError
from tests.bench.kafka import SCRIPT


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Create files like those of an unpacked release in a folder; return the folder."""
    libraries = tmp_path / "kafka" / "libs"
    libraries.mkdir(parents=True)
    for name in ("kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar"):
        (libraries / name).touch()
    return tmp_path / "kafka"


def test_kafka_jars_are_found_in_a_release_folder_and_in_its_libs_folder(release: Path) -> None:
    assert libraries_of(release) == libraries_of(release / "libs") == release / "libs"
    assert version_of(release / "libs") == "4.3.1"


def test_a_folder_without_kafka_jars_is_rejected_with_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"has no Kafka in it: expected kafka_2\.\*\.jar"):
        libraries_of(tmp_path)
    with pytest.raises(ClusterError, match="there is no such folder"):
        libraries_of(tmp_path / "missing")


def test_kafka_jars_are_searched_in_the_given_folder_then_the_variable_then_the_cache(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_files.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    with pytest.raises(ClusterError, match=f"--kafka DIR or {HOME_VARIABLE}"):
        find_libraries()
    fetched = tmp_path / "cache" / "1234"
    (tmp_path / "cache").mkdir()
    release.rename(fetched)
    with pytest.raises(ClusterError, match="which Apache Kafka"):  # an incomplete download
        find_libraries()
    (fetched / ".complete").touch()
    assert find_libraries() == fetched / "libs"
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(ClusterError, match="elsewhere"):
        find_libraries()
    assert find_libraries(fetched) == fetched / "libs"


def test_of_several_downloads_the_one_that_was_asked_for_last_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_files.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("KAFKA_CACHE", str(tmp_path))
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    pinned = "jars_sum " + str(SCRIPT.parent / "kafka")
    ours = subprocess.check_output(["bash", "-c", f"source {SCRIPT.parent / 'jars.sh'}; {pinned}"], text=True).strip()
    for age_s, folder in ((0, "other"), (60, ours)):
        libraries = tmp_path / folder / "libs"
        libraries.mkdir(parents=True)
        for name in ("kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar"):
            (libraries / name).touch()
        complete = tmp_path / folder / ".complete"
        complete.touch()
        os.utime(complete, (time.time() - age_s,) * 2)
    assert find_libraries() == tmp_path / "other" / "libs"
    assert subprocess.check_output([SCRIPT, "install"], text=True).strip() == str(tmp_path / ours)
    assert find_libraries() == tmp_path / ours / "libs"


def test_a_machine_without_java_gets_an_error(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="needs java"):
        find_libraries(release)


def test_a_split_kafka_layout_has_a_listener_for_each_kind_of_source() -> None:
    layout = KafkaLayout.split(9000, (1, 2), (101,))
    assert split_keys((1, 2), (101,)) == tuple(layout.listeners)
    behind = {key: Address("127.0.0.1", address.port + 500) for key, address in layout.listeners.items()}
    layout = KafkaLayout(
        layout.brokers,
        layout.controllers,
        layout.listeners,
        layout.directory_ids,
        {key: address for key, address in behind.items() if key[0] != DIRECT},
    )
    broker = layout.properties(1, Path("/data"))
    assert broker["listeners"] == "CLIENT://127.0.0.1:9000,BROKER://127.0.0.1:9001,DIRECT://127.0.0.1:9002"
    assert broker["advertised.listeners"] == "CLIENT://127.0.0.1:9500,BROKER://127.0.0.1:9501,DIRECT://127.0.0.1:9002"
    assert broker["inter.broker.listener.name"] == BROKER
    assert broker["controller.listener.names"] == CONTROLLER
    assert broker["controller.quorum.bootstrap.servers"] == str(behind[CONTROLLER, 101])
    controller = layout.properties(101, Path("/data"))
    assert controller["controller.listener.names"] == "QUORUM,CONTROLLER"
    assert controller["controller.quorum.bootstrap.servers"] == str(behind[QUORUM, 101])
    assert layout.initial_controllers.startswith(f"101@{behind[QUORUM, 101]}:")
    assert layout.bootstrap_servers == f"{behind[CLIENT, 1]},{behind[CLIENT, 2]}"
    assert layout.direct(2) == layout.listeners[DIRECT, 2]


def test_a_split_kafka_layout_of_combined_nodes_has_one_controller_listener() -> None:
    properties = KafkaLayout.split(9000, (1, 2), (1, 2)).properties(2, Path("/data"))
    assert properties["process.roles"] == "broker,controller"
    assert properties["controller.listener.names"] == QUORUM
    assert properties["controller.quorum.bootstrap.servers"] == "127.0.0.1:9006,127.0.0.1:9007"
