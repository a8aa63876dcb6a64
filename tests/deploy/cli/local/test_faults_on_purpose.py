"""`kraft fault` with a real node process: rules and link faults are set, take effect, and are cleared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE
from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from tests.stages.kraft_command import Command, free_port

SHAPE = ClusterLayout(combined=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("faults") / "a-folder-with-a-name-that-is-rather-long-for-the-address-of-a-socket"
    layout = ClusterLayout(combined=1, port=free_port(SHAPE), fault_control=True)
    cluster = LocalCluster.up(ClusterFolder(path), layout, new_cluster_id())
    try:
        cluster.wait_ready()
        yield path
    finally:
        cluster.down()


@pytest.fixture
def kraft(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_a_fault_rule_changes_matching_responses_until_the_rule_is_cleared(kraft: Command, folder: Path) -> None:
    data = ("--data", folder)
    at = ("--bootstrap-server", ClusterFolder(folder).read()[0].bootstrap_servers())
    set_ = kraft.json(
        "fault", "reply", "1", "--api", "create-topics", "--error", "POLICY_VIOLATION", "--topic", "orders", *data
    )
    assert "POLICY_VIOLATION" in kraft.run("topics", "create", "orders", *at, code=1)
    kraft.run("topics", "create", "others", *at)
    (row,) = kraft.json("fault", "list", *data)
    assert (row["node"], row["rule"], row["applied"]) == ("1", set_["rule"], 1)
    kraft.run("fault", "clear", "1", "--rule", str(set_["rule"]), *data)
    assert kraft.json("fault", "list", "1", *data) == []
    kraft.run("topics", "create", "orders", *at)


def test_faulty_links_are_listed_and_cleared(kraft: Command, folder: Path) -> None:
    data = ("--data", folder)
    kraft.run("fault", "link", "1", "1", "hang", "--listener", "PLAINTEXT", *data)
    socket = str(folder / "1" / "fault.sock")
    kraft.run("fault", "link", socket, "3", "reset", *data)
    found = [row["fault"] for row in kraft.json("fault", "list", "1", *data)]
    assert sorted(found) == ["to 1 on PLAINTEXT: hang", "to 3: reset"]
    kraft.run("fault", "clear", *data)
    assert kraft.json("fault", "list", *data) == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("reply", "1"), EXIT_USAGE, "choose one of --error"),
        (("reply", "1", "--drop", "--close"), EXIT_USAGE, "choose one of --error"),
        (("reply", "1", "--api", "Nonsense", "--drop"), EXIT_USAGE, "no API 'Nonsense'; names are those of"),
        (("reply", "1", "--api", "Fetch", "--error", "OOPS"), EXIT_USAGE, "is no error code: give one of Kafka's"),
        (("reply", "1", "--api", "Fetch", "--error", "NOT_LEADER"), EXIT_USAGE, "did you mean NOT_LEADER_OR_FOLLOWER?"),
        (("reply", "1", "--api", "Produc", "--error", "OOPS"), EXIT_USAGE, "API 'Produc'; did you mean Produce?"),
        (("reply", "1", "--error", "REQUEST_TIMED_OUT"), EXIT_USAGE, "needs the API"),
        (("link", "1", "2", "hang"), EXIT_NOT_FOUND, "there is no node 2"),
        (("link", "9", "1", "hang"), EXIT_NOT_FOUND, "there is no node 9"),
        (("clear", "1", "--rule", "77"), 1, "no rule 77"),
        (("clear", "--rule", "1"), EXIT_USAGE, "--rule needs NODE"),
        (("link", "/nowhere/s", "1", "hang"), EXIT_NOT_FOUND, "no node listens"),
        (("link", "/nowhere/s", "1", "hang", "--both"), EXIT_USAGE, "--both needs"),
    ],
)
def test_impossible_faults_are_refused_with_the_reason(
    kraft: Command, folder: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    assert says in kraft.run("fault", *words, "--data", folder, code=code)


def test_faults_on_a_node_started_without_fault_control_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="--fault-control"):
        FaultClient(tmp_path / "fault.sock").listed()
