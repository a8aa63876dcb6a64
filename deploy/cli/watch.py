"""The live table of `kraft up` in the foreground: processes, roles, who leads, and what is not in sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kraft.client.cluster import ClusterUnreachable
from kraft.deploy.cli.admin import Admin, open_admin
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.launch.control import LocalCluster

REFRESH_SECONDS = 1.0
ASK_SECONDS_MAX = 2.0

_COLORS = {"ready": "green", "starting": "yellow", "paused": "yellow", "running": "green", "ended": "red"}


@dataclass(frozen=True, slots=True)
class View:
    """What the cluster itself says; None where no broker answers."""

    quorum_leader: int | None
    partitions: tuple[Any, ...]
    topics: int


def watch(cluster: LocalCluster) -> None:
    """Show the cluster until ctrl-C or the end of its last node."""
    trio.run(_watch, cluster)


async def _watch(cluster: LocalCluster) -> None:
    console = Console()
    console.print(f"ready: bootstrap {cluster.bootstrap_servers}, data {cluster.folder.path}")
    async with open_admin(cluster.bootstrap_servers) as admin:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                nodes = await trio.to_thread.run_sync(cluster.status)
                view = await _ask(admin)
                live.update(_render(nodes, view), refresh=True)
                if all(node.pid is None for node in nodes):
                    return
                await trio.sleep(REFRESH_SECONDS)


async def _ask(admin: Admin) -> View | None:
    with trio.move_on_after(ASK_SECONDS_MAX):
        try:
            metadata = await admin.metadata(None)
            quorum = await admin.describe_quorum()
        except (ClusterUnreachable, CommandFailed):
            return None
        partitions = tuple((topic.name, part) for topic in metadata.topics for part in topic.partitions)
        return View(int(quorum.topics[0].partitions[0].leader_id), partitions, len(metadata.topics))
    return None


def _render(nodes: list[Any], view: View | None) -> Group:
    table = Table(box=None, pad_edge=False)
    for name in ("node", "roles", "ports", "pid", "state", "leads", "out of sync"):
        table.add_column(name)
    for node in nodes:
        leads, behind = _share(node.node_id, view)
        roles = ",".join(node.roles) + (" (active)" if view and view.quorum_leader == node.node_id else "")
        state = Text(node.ended or node.state, style=_COLORS.get(node.state, ""))
        ports = ",".join(str(port) for port in node.ports)
        table.add_row(str(node.node_id), roles, ports, str(node.pid or "-"), state, leads, behind)
    return Group(table, _trouble(view), Text("ctrl-C ends the cluster", style="dim"))


def _share(node_id: int, view: View | None) -> tuple[str, str]:
    if view is None:
        return "-", "-"
    leads = sum(1 for _, part in view.partitions if part.leader_id == node_id)
    behind = sum(1 for _, part in view.partitions if node_id in part.replica_nodes and node_id not in part.isr_nodes)
    return str(leads), str(behind) if behind else ""


def _trouble(view: View | None) -> Text:
    if view is None:
        return Text("no broker answers", style="red")
    short = [(name, part) for name, part in view.partitions if len(part.isr_nodes) < len(part.replica_nodes)]
    leaderless = sum(1 for _, part in short if part.leader_id < 0)
    if not short:
        return Text(f"{view.topics} topics, {len(view.partitions)} partitions, all in sync", style="green")
    name, part = short[0]
    example = f"{name}-{int(part.partition_index)} has ISR {[int(n) for n in part.isr_nodes]}"
    text = f"{len(short)} partitions are not fully in sync, {leaderless} without leader; {example}"
    return Text(text, style="red" if leaderless else "yellow")
