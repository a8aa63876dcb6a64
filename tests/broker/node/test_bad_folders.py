"""Data folders that cannot be used, on a real disk: the node does not start, and its error names the folder and the
reason.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kraft.broker.node.serve import serve
from kraft.config import NodeConfig
from kraft.runtime import open_seam
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.log_dir import DirectoryInUse
from kraft.storage.meta_properties import ForeignDirectory
from tests.stages.broker_harness import PROPERTIES

CLUSTER_ID = "cluster-A"
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.quorum.voters": "1@127.0.0.1:9192",
}


async def start(folder: Path | str, **changed: str) -> None:
    """Start a node on this folder, which must fail."""
    given = {**PROPERTIES, **COMBINED, "log.dirs": str(folder), **{k.replace("_", "."): v for k, v in changed.items()}}
    async with open_seam(node_name="node") as seam:
        await serve(NodeConfig.parse(given), seam, cluster_id=CLUSTER_ID)


async def test_a_node_whose_data_folder_is_a_file_fails_to_start_and_names_it(tmp_path: Path) -> None:
    taken = tmp_path / "data"
    taken.write_text("precious")
    with pytest.raises(DiskError, match=f"{taken}.*file of that name"):
        await start(taken)
    with pytest.raises(DiskError, match=str(taken)):
        await start(taken / "below")
    assert taken.read_text() == "precious"


async def test_a_node_that_cannot_create_its_data_folder_fails_to_start_and_names_it() -> None:
    with pytest.raises(DiskError, match="/proc/kraft"):
        await start("/proc/kraft")


@pytest.mark.parametrize(("line", "why"), [("cluster.id=another", "cluster another"), ("node.id=7", "node 7")])
async def test_a_node_that_finds_the_folder_of_another_cluster_or_node_does_not_change_it(
    tmp_path: Path, line: str, why: str
) -> None:
    key = line.split("=")[0]
    lines = {"version": "1", "cluster.id": CLUSTER_ID, "node.id": "1", "directory.id": "AAAAAAAAAGQAAAAAAAAAZA"}
    lines[key] = line.split("=")[1]
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(ForeignDirectory, match=why):
        await start(tmp_path)
    assert (tmp_path / "meta.properties").read_text() == text


@pytest.mark.parametrize(("version", "why"), [("2", "newer"), ("0", "older"), ("", "no version")])
async def test_a_data_folder_of_another_format_gives_an_error_that_names_the_release_to_use(
    tmp_path: Path, version: str, why: str
) -> None:
    text = f"version={version}\ncluster.id={CLUSTER_ID}\nnode.id=1\ndirectory.id=AAAAAAAAAGQAAAAAAAAAZA\n"
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(ForeignDirectory, match=why):
        await start(tmp_path)


async def test_a_node_fails_to_start_on_a_data_folder_that_another_process_has_open(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(DirectoryInUse, match=f"{tmp_path}: another process"):
            await start(tmp_path)
    finally:
        os.close(descriptor)


async def test_a_vote_in_the_format_of_a_later_release_stops_the_voter(tmp_path: Path) -> None:
    metadata = tmp_path / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "quorum-state").write_text('{"leaderId":1,"leaderEpoch":4,"votedId":1,"data_version":9}')
    with pytest.raises(StorageCorrupt, match=r"data_version 9.*newer release"):
        await start(tmp_path)
