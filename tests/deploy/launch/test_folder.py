"""The folder of a cluster: its files are written and read back, and other folders are rejected."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from kraft.config import NodeConfig, parse_properties
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder, last_folder, remember_last, started_folders
from kraft.deploy.launch.layout import ClusterLayout
from kraft.deploy.launch.processes import identify, write_identity
from kraft.deploy.launch.zygote import take_lock
from kraft.deploy.launch.zygote_client import require_unlocked

LAYOUT = ClusterLayout(controllers=1, brokers=2, settings={"num.partitions": "3"})


def test_a_created_cluster_folder_is_read_back_unchanged(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "new")
    folder.create(LAYOUT, "an-id")
    assert folder.read() == (LAYOUT, "an-id")
    assert folder.plan(2).ports == (9093,)


def test_every_node_gets_a_file_that_kraft_node_accepts(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.create(LAYOUT, "an-id")
    for node in LAYOUT.nodes():
        text = (folder.node(node.node_id) / "server.properties").read_text()
        assert NodeConfig.parse(parse_properties(text)).node_id == node.node_id


def test_a_folder_with_other_files_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(LaunchError, match="holds no kraft cluster"):
        ClusterFolder(tmp_path).create(LAYOUT, "an-id")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_instead_of_the_cluster_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match="cannot use the folder"):
        ClusterFolder(tmp_path / "file").create(LAYOUT, "an-id")


def test_an_empty_folder_is_refused_with_the_command_to_start_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="start one with kraft up"):
        ClusterFolder(tmp_path).read()


def test_a_cluster_description_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.create(LAYOUT, "an-id")
    described = json.loads(folder.description.read_text())
    folder.description.write_text(json.dumps({**described, "format": 2}))
    with pytest.raises(LaunchError, match="has format 2, but this release reads format 1"):
        folder.read()


def test_a_damaged_cluster_description_is_refused_with_its_path(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.description.write_text("{")
    with pytest.raises(LaunchError, match=r"cluster\.json is damaged"):
        folder.read()


def test_an_unreadable_folder_is_not_reported_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *arguments: object, **options: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    folder = ClusterFolder(tmp_path)
    folder.create(LAYOUT, "an-id")
    for name in ("read_text", "is_file"):
        monkeypatch.setattr(Path, name, refuse)
    for ask in (folder.read, folder.exists):
        with pytest.raises(LaunchError, match="is closed to this user; act on it as its owner or as root"):
            ask()


def test_the_error_for_an_unknown_node_names_the_existing_nodes(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.create(LAYOUT, "an-id")
    with pytest.raises(LaunchError, match=r"there is no node 7 .* there are 101, 1, 2"):
        folder.plan(7)


def test_the_cluster_started_last_is_the_default_of_later_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(LaunchError, match="no cluster was started yet"):
        last_folder()
    made = [ClusterFolder(tmp_path / name) for name in ("first", "second")]
    for folder in made:
        folder.create(LAYOUT, "an-id")
        remember_last(folder)
        assert last_folder().path == folder.path


def test_commands_use_the_running_cluster_that_was_started_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first, second, third = made = [ClusterFolder(tmp_path / name) for name in ("first", "second", "third")]
    for folder in made:
        folder.create(LAYOUT, "an-id")
        remember_last(folder)
    me = identify(os.getpid())
    assert me is not None
    write_identity(second.node(1), me)
    assert last_folder().path == second.path
    shutil.rmtree(second.path)
    assert last_folder().path == third.path
    assert [folder.path for folder in started_folders()] == [third.path, first.path]


def test_a_folder_held_by_an_unknown_process_is_reported_unless_released_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, slept = ClusterFolder(tmp_path), [0.0]
    monkeypatch.setattr("kraft.deploy.launch.zygote_client.time.monotonic", lambda: slept[0])
    monkeypatch.setattr(
        "kraft.deploy.launch.zygote_client.time.sleep", lambda seconds: slept.append(slept.pop() + seconds)
    )
    require_unlocked(folder)
    held = take_lock(folder)
    with pytest.raises(LaunchError, match="find it with fuser") as refused:
        require_unlocked(folder)
    assert refused.value.kind == "zygote"

    def release(_seconds: float) -> None:
        os.close(held)

    monkeypatch.setattr("kraft.deploy.launch.zygote_client.time.sleep", release)
    require_unlocked(folder)
    os.close(take_lock(folder))
