"""Write the golden files again: `.venv/bin/python -m tests.golden`.

The golden files are data folders written by the previous release, so they change only when
`tests.deploy.previous_release.PREVIOUS` changes. The nodes and the client of the previous release run as separate
processes; their code is taken from the repository's history.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from kraft.storage.checkpoints import CLEANER_CHECKPOINT, decode_offsets
from tests.deploy.previous_release import unpack_previous, use_previous
from tests.golden.files import BROKER, CLUSTER_ID, CONTROLLER, GOLDEN, HERE, LOG, NODES
from tests.golden.workload import COMPACTED
from tests.stages.kraft_command import free_port

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "2500",
    "log.cleaner.backoff.ms": "100",
}
CLEANED_SECONDS_MAX = 30


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        previous = unpack_previous(Path(folder) / "previous")
        write_cluster(Path(folder), previous)
        run_previous(previous, "written_log.py", str(Path(folder) / "log"))
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for node in NODES:
            target = GOLDEN / str(node)
            shutil.copytree(Path(folder) / "cluster" / str(node) / "data", target)
            (target / ".lock").unlink()
        shutil.copytree(Path(folder) / "log", LOG)


def write_cluster(folder: Path, previous: Path) -> None:
    """Run a controller and a broker of the previous release, and its client's workload. Restart both cleanly once in
    between, so that there are two leader epochs."""
    shape = ClusterLayout(controllers=1, brokers=1)
    layout = ClusterLayout(controllers=1, brokers=1, port=free_port(shape), settings=SETTINGS)
    cluster = LocalCluster.up(
        ClusterFolder(folder / "cluster"),
        layout,
        CLUSTER_ID,
        is_remembered=False,
        before_start=lambda: use_previous(cluster_folder(folder), [CONTROLLER, BROKER], previous),
    )
    try:
        cluster.wait_ready()
        run_previous(previous, "workload.py", cluster.bootstrap_servers, "0")
        wait_cleaned(cluster.folder.node(BROKER))
        cluster.stop(BROKER)
        cluster.start(BROKER)
        run_previous(previous, "workload.py", cluster.bootstrap_servers, "1")
    finally:
        cluster.down()


def cluster_folder(folder: Path) -> ClusterFolder:
    return ClusterFolder(folder / "cluster")


def run_previous(previous: Path, program: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(previous)}
    subprocess.run([sys.executable, "-P", str(HERE / program), *arguments], check=True, env=environment)


def wait_cleaned(node: Path) -> None:
    """Wait until the cleaner has compacted the log."""
    path = node / "data" / CLEANER_CHECKPOINT
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while not path.exists() or (COMPACTED, 0) not in decode_offsets(path.read_bytes()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{COMPACTED} was not cleaned within {CLEANED_SECONDS_MAX} s; see {node / 'node.log'}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
