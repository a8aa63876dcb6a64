"""Tests of topics read by several executor processes: what executors need, and what happens when one is killed.

Each test has its own driver, because the session that other tests share has no executors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.client.spark.executors import ROOT, Job, job_running, kill_tree, standalone_running
from tests.client.spark.topic_records import Record, create_topic, numbered, write_records
from tests.stages.started_clusters import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.usefixtures("spark_ready")]

PARTITIONS = 4
RECORDS = 2_000
LARGE_VALUE = bytes(16 * 1024)
"""Size of values in bytes. It is large enough that a partition does not fit into all buffers between a broker and a
query's last step."""
LARGE_RECORDS = 6_000
TWO_EXECUTORS = "local-cluster[2,1,1024]"
BOTH_STARTED_SECONDS_MAX = 120
SITE = next(path for path in map(Path, sys.path) if path.name == "site-packages")


@pytest.fixture
def full_topic(cluster: LocalCluster, topic: str) -> str:
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(RECORDS, partitions=PARTITIONS))
    return topic


def require_each_record_once(rows: list[dict[str, Any]], partitions: int, records: int) -> None:
    read = Counter((row["partition"], offset) for row in rows for offset in row["offsets"])
    assert set(read) == {(partition, n) for partition in range(partitions) for n in range(records // partitions)}
    assert set(read.values()) == {1}


def test_topic_is_read_by_two_executor_processes(cluster: LocalCluster, full_topic: str, tmp_path: Path) -> None:
    with job_running(tmp_path, "count", TWO_EXECUTORS, cluster.bootstrap, full_topic) as job:
        rows = job.result()["rows"]
    require_each_record_once(rows, PARTITIONS, RECORDS)
    assert len({row["executor"] for row in rows}) == 2


def python_without_pykraft_on_executors(folder: Path) -> Path:
    """Write a program for PYSPARK_PYTHON that runs this environment's Python on the driver, and on executors, where
    ON_EXECUTOR is set, the same Python without pykraft."""
    venv.create(folder / "bare", with_pip=False, symlinks=True)
    packages = next((folder / "bare" / "lib").glob("python*/site-packages"))
    for entry in SITE.iterdir():
        if "pykraft" not in entry.name and entry.name != "__pycache__":
            (packages / entry.name).symlink_to(entry)
    program = folder / "python"
    bare = folder / "bare" / "bin" / "python"
    program.write_text(f'#!/bin/sh\n[ "$ON_EXECUTOR" ] && exec "{bare}" "$@"\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


def shipped_package(folder: Path) -> Path:
    """Make a zip of pykraft from its wheel, as users do, and return its path."""
    source = folder / "source"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "dist", "build", "tests"
    )
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder / "dist"),
        str(source),
    ]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    target = folder / "pykraft.zip"
    next((folder / "dist").glob("*.whl")).rename(target)
    assert "kraft/client/spark/source.py" in zipfile.ZipFile(target).namelist()
    return target


def test_executors_without_pykraft_fail_until_the_package_is_shipped_to_them(
    cluster: LocalCluster, full_topic: str, tmp_path: Path
) -> None:
    program, package = python_without_pykraft_on_executors(tmp_path), shipped_package(tmp_path)
    environment = {"PYSPARK_PYTHON": str(program)}
    job_folder = tmp_path / "job"
    job_folder.mkdir()
    arguments = ("ship", TWO_EXECUTORS, cluster.bootstrap, full_topic, str(package))
    with job_running(job_folder, *arguments, environment=environment) as job:
        result = job.result()
    assert "ModuleNotFoundError: No module named 'kraft'" in result["error"]
    require_each_record_once(result["rows"], PARTITIONS, RECORDS)


def reads_from(cluster: LocalCluster, executor: int) -> bool:
    """Whether a Python worker of this executor process has an open connection to a broker."""
    ports = {port for _, port in cluster.addresses}
    workers = psutil.Process(executor).children(recursive=True)
    return any(one.raddr and one.raddr.port in ports for worker in workers for one in worker.net_connections())


def test_topic_read_returns_each_record_once_if_a_spark_worker_is_killed_halfway(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2)
    values = (Record(value=LARGE_VALUE, partition=number % 2) for number in range(LARGE_RECORDS))
    write_records(cluster.bootstrap, topic, values, queue_buffering_max_messages=LARGE_RECORDS)
    gate = tmp_path / "gate"
    gate.mkdir()
    with (
        standalone_running(2) as workers,
        job_running(tmp_path, "gated", workers.url, cluster.bootstrap, topic, str(gate)) as job,
    ):
        started = wait_for_two_executors(gate, job)
        partition, killed = started[0]
        survivor = started[1][1]
        assert reads_from(cluster, killed)
        kill_tree(workers.worker_of(killed))
        (gate / "go").touch()
        rows = job.result()["rows"]
    require_each_record_once(rows, 2, LARGE_RECORDS)
    assert {row["executor"] for row in rows} == {survivor}
    assert (gate / f"started-{partition}-{survivor}").exists()


def wait_for_two_executors(gate: Path, job: Job) -> list[tuple[int, int]]:
    """Wait until two executors each have a task that has read its first rows. Return (partition, executor) of such
    tasks."""
    deadline = time.monotonic() + BOTH_STARTED_SECONDS_MAX
    while time.monotonic() < deadline:
        job.require_sound()
        names = [path.name.split("-") for path in gate.glob("started-*")]
        started = [(int(partition), int(executor)) for _, partition, executor in names]
        if len({executor for _, executor in started}) == 2:
            return started
        time.sleep(0.05)
    raise AssertionError(f"two executors did not start reading in {BOTH_STARTED_SECONDS_MAX} s: {os.listdir(gate)}")
