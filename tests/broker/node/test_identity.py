"""The cluster and node to which data directories belong: unformatted, foreign and locked directories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.broker.node.identity import format_directories, open_identity
from kraft.config import NodeConfig
from kraft.seam import Seam
from kraft.sim.world import World
from kraft.storage.log_dir import DirectoryInUse
from kraft.storage.meta_properties import ForeignDirectory, read_meta_properties
from tests.stages.broker_harness import PROPERTIES

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "101",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@c1:9192",
    "listeners": "CONTROLLER://c1:9192",
    "log.dirs": "/data",
}


def config(properties: dict[str, str] | None = None, **changed: str) -> NodeConfig:
    return NodeConfig.parse({**(properties or PROPERTIES), **{key.replace("_", "."): v for key, v in changed.items()}})


def on_a_disk(test: Callable[[Seam], Any]) -> None:
    async def main(world: World) -> None:
        test(world.node("b1"))

    World(seed=2).run(main)


def test_an_unformatted_directory_is_rejected_with_an_error_that_says_how_to_format_it() -> None:
    def test(seam: Seam) -> None:
        with pytest.raises(ForeignDirectory, match="kraft storage format"):
            open_identity(config(), seam, None)

    on_a_disk(test)


def test_with_a_cluster_id_each_directory_is_formatted_once_with_its_own_directory_id() -> None:
    def test(seam: Seam) -> None:
        two = config(log_dirs="/one,/two")
        assert open_identity(two, seam, "cluster-A").cluster_id == "cluster-A"
        first, second = (read_meta_properties(seam.disk, path) for path in ("/one", "/two"))
        assert first is not None
        assert second is not None
        assert first.directory_id != second.directory_id
        assert (first.cluster_id, first.node_id) == ("cluster-A", 1)
        assert format_directories(two, seam.disk, seam.random, "cluster-A") == []
        again = open_identity(two, seam, None)
        assert again.metadata == first

    on_a_disk(test)


@pytest.mark.parametrize("given", ["cluster-B", None])
def test_a_data_directory_of_another_node_or_cluster_is_rejected(given: str | None) -> None:
    def test(seam: Seam) -> None:
        open_identity(config(), seam, "cluster-A")
        if given is not None:
            with pytest.raises(ForeignDirectory, match="cluster-A"):
                open_identity(config(), seam, given)
        with pytest.raises(ForeignDirectory, match="node 1"):
            open_identity(config(node_id="2"), seam, None)

    on_a_disk(test)


def test_a_node_with_directories_of_different_clusters_is_rejected() -> None:
    def test(seam: Seam) -> None:
        open_identity(config(log_dirs="/one"), seam, "cluster-A")
        open_identity(config(log_dirs="/two"), seam, "cluster-B")
        with pytest.raises(ForeignDirectory, match="/two"):
            open_identity(config(log_dirs="/one,/two"), seam, None)

    on_a_disk(test)


def test_a_controllers_directory_is_locked_until_it_is_released() -> None:
    def test(seam: Seam) -> None:
        identity = open_identity(config(CONTROLLER), seam, "cluster-A")
        with pytest.raises(DirectoryInUse):
            open_identity(config(CONTROLLER), seam, None)
        identity.release()
        open_identity(config(CONTROLLER), seam, None).release()

    on_a_disk(test)


def test_releasing_locks_after_a_crash_does_not_affect_the_next_incarnation() -> None:
    async def main(world: World) -> None:
        first = open_identity(config(CONTROLLER), world.node("c1"), "cluster-A")
        second = open_identity(config(CONTROLLER), world.node("c1"), None)
        first.release()
        with pytest.raises(DirectoryInUse):
            open_identity(config(CONTROLLER), world._hosts["c1"].incarnation.seam, None)  # type: ignore[union-attr]
        second.release()

    World(seed=3).run(main)
