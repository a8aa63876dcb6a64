"""The live table of `kraft up` in the foreground: processes, roles, who leads, and what is not in sync."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kraft.client import KafkaError
from kraft.client.admin import Admin, PartitionDescription
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import TimedOut
from kraft.deploy.cli.output import plural
from kraft.deploy.launch.control import LocalCluster, NodeStatus

REFRESH_SECONDS = 1.0
ASK_SECONDS_MAX = 2.0

_COLORS = MappingProxyType(
    {"ready": "green", "starting": "yellow", "paused": "yellow", "running": "green", "ended": "red"}
)


@dataclass(frozen=True, slots=True)
class View:
    """What the cluster itself says; None where no broker answers."""

    quorum_leader: int | None
    partitions: tuple[PartitionDescription, ...]
    topics: int


def watch(cluster: LocalCluster) -> None:
    """Show the cluster until ctrl-C or the end of its last node."""
    trio.run(_watch, cluster)


async def _watch(cluster: LocalCluster) -> None:
    console = Console(highlight=False)
    console.print(f"ready: bootstrap {cluster.bootstrap_servers}, data {cluster.folder.path}")
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, client_id="kraft-up") as admin:
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
            topics = await admin.topics.list()
            quorum = await admin.nodes.quorum()
        except (ClusterUnreachable, TimedOut, KafkaError):
            return None
        partitions = tuple(part for topic in topics for part in topic.partitions)
        return View(quorum.leader, partitions, len(topics))
    return None


def _render(nodes: list[NodeStatus], view: View | None) -> Group:
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
    leads = sum(1 for part in view.partitions if part.leader == node_id)
    behind = sum(1 for part in view.partitions if node_id in part.replicas and node_id not in part.isr)
    return str(leads), str(behind) if behind else ""


def _trouble(view: View | None) -> Text:
    if view is None:
        return Text("no broker answers", style="red")
    short = [part for part in view.partitions if part.is_under_replicated]
    leaderless = sum(1 for part in view.partitions if part.leader is None)
    if not short:
        return Text(
            f"{plural(view.topics, 'topic')}, {plural(len(view.partitions), 'partition')}, all in sync", style="green"
        )
    example = f"{short[0].topic}-{short[0].index} has ISR {list(short[0].isr)}"
    text = f"{plural(len(short), 'partition')} not fully in sync, {leaderless} without leader; {example}"
    return Text(text, style="red" if leaderless else "yellow")
