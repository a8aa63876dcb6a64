"""`kraft storage format` stores the initial voters of a quorum, and nodes that were formatted with it form a
cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from kraft.deploy.launch.layout import new_cluster_id
from kraft.storage.partition_metadata import encode_uuid
from tests.quorum.test_first_voters import directory
from tests.quorum.test_tls import Started, run_node
from tests.stages.kraft_command import Command
from tests.stages.ports import hold_ports

READY_SECONDS_MAX = 60


def properties(folder: Path, node_id: int, servers: str, port: int, *roles: str) -> Path:
    """Return a node's `server.properties` with bootstrap servers in place of the voters."""
    listener = "CONTROLLER" if roles == ("controller",) else "PLAINTEXT"
    path = folder / f"{node_id}.properties"
    lines = (
        f"node.id={node_id}",
        f"process.roles={','.join(roles)}",
        f"listeners={listener}://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.bootstrap.servers={servers}",
        f"log.dirs={folder}/{node_id}",
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


async def come_up(*paths: Path, then: Callable[[], None] = lambda: None) -> None:
    """Start the nodes, and call `then` while they start. Return when the last node is ready and `then` has returned."""
    nodes = [Started() for _ in paths]
    async with trio.open_nursery() as nursery:
        for path, started in zip(paths, nodes, strict=True):
            nursery.start_soon(run_node, read(path), started, None)
        with trio.fail_after(READY_SECONDS_MAX):
            while nodes[-1].node is None:
                await trio.lowlevel.checkpoint()
            await nodes[-1].node.wait_ready()
        await trio.to_thread.run_sync(then)  # commands that have their own timeouts
        nursery.cancel_scope.cancel()


def test_a_standalone_controller_and_a_broker_form_a_cluster(kraft: Command, tmp_path: Path) -> None:
    ports = hold_ports(2)
    controller = properties(tmp_path, 101, f"127.0.0.1:{ports[0]}", ports[0], "controller")
    broker = properties(tmp_path, 1, f"127.0.0.1:{ports[0]}", ports[1], "broker")
    formatted = kraft.json("storage", "format", "--config", controller, "--standalone")
    kraft.json("storage", "format", "--config", broker, "--cluster-id", formatted["cluster_id"])
    trio.run(come_up, controller, broker)


def test_controllers_formatted_with_initial_controllers_form_a_quorum(kraft: Command, tmp_path: Path) -> None:
    ports = hold_ports(4)
    servers = f"127.0.0.1:{ports[1]}"
    first = ",".join(f"10{n}@127.0.0.1:{ports[n]}:{encode_uuid(directory(n))}" for n in (1, 2, 3))
    cluster_id = new_cluster_id()
    paths = [properties(tmp_path, 100 + n, servers, ports[n], "controller") for n in (1, 2, 3)]
    for path in paths:
        kraft.json("storage", "format", "--config", path, "--cluster-id", cluster_id, "--initial-controllers", first)
    (row,) = kraft.json("storage", "info", "--config", paths[0])
    assert row["directory_id"] == encode_uuid(directory(1))
    broker = properties(tmp_path, 1, servers, ports[0], "broker")
    kraft.json("storage", "format", "--config", broker, "--cluster-id", cluster_id)
    trio.run(come_up, *paths, broker)


def test_a_controller_is_added_and_removed_as_voter_by_command(kraft: Command, tmp_path: Path) -> None:
    ports = hold_ports(3)
    servers = f"127.0.0.1:{ports[0]}"
    first, second = (properties(tmp_path, 101 + n, servers, ports[n], "controller") for n in (0, 1))
    broker = properties(tmp_path, 1, servers, ports[2], "broker")
    cluster = kraft.json("storage", "format", "--config", first, "--standalone")["cluster_id"]
    kraft.json("storage", "format", "--config", second, "--cluster-id", cluster, "--no-initial-controllers")
    kraft.json("storage", "format", "--config", broker, "--cluster-id", cluster)
    there = ("--bootstrap-server", f"127.0.0.1:{ports[2]}")

    def change() -> None:
        assert "is a voter now" in kraft.spawn("quorum", "add-controller", "--config", second, *there)
        assert "voter 102" in kraft.spawn("quorum", "add-controller", "--config", second, *there, code=1)
        kraft.spawn("quorum", "remove-controller", "101", "--yes", *there)
        assert "there is no voter 101" in kraft.spawn("quorum", "remove-controller", "101", "-y", *there, code=4)
        roles = {row["node"]: row["role"] for row in json.loads(kraft.spawn("quorum", "--json", *there))["replicas"]}
        assert (roles[102], roles.get(101, "observer")) == ("leader", "observer")

    trio.run(partial(come_up, first, second, broker, then=change))


def test_formatting_a_controller_without_voters_lists_the_options(kraft: Command, tmp_path: Path) -> None:
    path = properties(tmp_path, 101, "127.0.0.1:9192", 9192, "controller")
    format_it = ("storage", "format", "--config", path)
    assert "--standalone" in kraft.run(*format_it, code=2)
    assert "exclude each other" in kraft.run(*format_it, "--standalone", "--no-initial-controllers", code=2)
    assert "expected ID@HOST:PORT" in kraft.run(*format_it, "--initial-controllers", "101", code=2)
    broker = properties(tmp_path, 1, "127.0.0.1:9192", 9092, "broker")
    assert "only a controller" in kraft.run("storage", "format", "--config", broker, "--standalone", code=2)
    assert not (tmp_path / "101").exists()
    kraft.run(*format_it, "--no-initial-controllers")
    assert not list((tmp_path / "101").glob("*/*.checkpoint"))
