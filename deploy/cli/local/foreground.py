"""`kraft up` in the foreground: its output until the cluster ends, and its final report on the nodes and the data."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kraft.deploy.cli.local.node_logs import read_from
from kraft.deploy.cli.output import CommandFailed, is_terminal, plural, print_json, warn

if TYPE_CHECKING:
    from kraft.deploy.launch.control import LocalCluster

POLL_SECONDS = 0.2
CLEAN_END = "exit code 0"
"""Text with which the launcher describes a node that stopped cleanly."""


def announce(cluster: LocalCluster, as_json: bool, *, how_to_end: str) -> None:
    """Print that the cluster is ready, the addresses for clients and for users, and how to end the cluster."""
    if as_json:
        print_json({**addresses_json(cluster), "ready": True})
    else:
        print(ready_line(cluster))
        print(f"end it with {how_to_end}")
    sys.stdout.flush()


def ready_line(cluster: LocalCluster) -> str:
    """Return the line `ready: bootstrap HOST:PORT,…, data DIR`."""
    return f"ready: {addresses_text(cluster, ', ')}, data {cluster.folder.path}"


def addresses_text(cluster: LocalCluster, between: str) -> str:
    """Return the brokers' addresses as text: those for this machine, and those of --external if there are any."""
    external = cluster.layout.external_servers()
    return f"bootstrap {cluster.bootstrap_servers}" + (f"{between}external {external}" if external else "")


def addresses_json(cluster: LocalCluster) -> dict[str, str]:
    """Return the addresses and the folder as JSON."""
    external = cluster.layout.external_servers()
    where = {"data": str(cluster.folder.path), "bootstrap": cluster.bootstrap_servers}
    return where | ({"external": external} if external else {})


def show_until_end(cluster: LocalCluster, as_json: bool, *, is_temporary: bool) -> None:
    """Show the cluster until ctrl-C, SIGTERM, a `kraft down` from elsewhere, or the end of its last node. Then end the
    cluster, and report how each node ended. Raise CommandFailed if nodes have failed by themselves."""
    # a background job of a shell ignores SIGINT, so it needs a handler here
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    is_interrupted = _show_to_the_end(cluster, as_json)
    failures: list[str] = []
    if not is_interrupted and cluster.is_ending:
        cluster.wait_launcher()
        how, killed = "ended by kraft down", []
    else:
        if is_interrupted and not as_json:
            warn(f"stopping {plural(len(cluster.node_ids), 'node')} …")
        if not is_interrupted:
            failures = _failures(cluster)  # read the logs before a temporary folder that has them is deleted
        killed = cluster.down()
        how = "all nodes have stopped" if is_interrupted else "every node has ended"
    if not as_json:
        warn(f"{how}; {_describe_data(cluster, is_temporary)}")
    warn_of_killed(killed)
    if failures:
        raise CommandFailed("\n  ".join(["not cleanly:", *failures]))


def warn_of_killed(killed: list[int]) -> None:
    """Name the nodes that did not stop cleanly."""
    if killed:
        named = ", ".join(map(str, killed))
        warn(f"not cleanly: {plural(len(killed), 'node')} did not stop within 30 s and had to be killed: {named}")


def _failures(cluster: LocalCluster) -> list[str]:
    """Return, for each node that did not stop cleanly, how it ended and the last line of its log."""
    failed = [node for node in cluster.status() if node.ended != CLEAN_END]
    return [
        f"node {node.node_id}, {node.ended or 'ended'} ({_last_line(cluster.folder.node(node.node_id))})"
        for node in failed
    ]


def _last_line(folder: Path) -> str:
    lines = read_from(folder / "node.log", 0)[0].splitlines()
    return lines[-1] if lines else "with an empty log"


def _show_to_the_end(cluster: LocalCluster, as_json: bool) -> bool:
    """Show the cluster until none of its nodes is running. Return whether an interrupt ended the display earlier."""
    try:
        if as_json or not is_terminal(sys.stdout) or os.environ.get("TERM") == "dumb":
            announce(cluster, as_json, how_to_end="ctrl-C")
            while any(node.pid is not None for node in cluster.status()):
                time.sleep(POLL_SECONDS)
        else:
            from kraft.deploy.cli.local.live_table import watch

            watch(cluster)
    except KeyboardInterrupt:
        return True
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        return True
    return False


def _describe_data(cluster: LocalCluster, is_temporary: bool) -> str:
    path = cluster.folder.path
    if is_temporary and not path.exists():
        return f"{path}, a temporary folder, is deleted"
    return f"the data is in {path}; start it again with kraft up --data {path}"
