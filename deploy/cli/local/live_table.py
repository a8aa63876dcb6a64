"""The live table of `kraft up` in the foreground: processes, roles, leaders, and replicas out of sync."""

from __future__ import annotations

import contextlib
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
from kraft.client.connections import CONNECTION_FAILURES
from kraft.deploy.cli.local.foreground import ready_line
from kraft.deploy.cli.output import plural
from kraft.deploy.launch.control import LocalCluster, NodeStatus

REFRESH_SECONDS = 1.0
ASK_MS_MAX = 3_000
"""Timeout of a request in ms. A request has three attempts, each at another broker, so a paused or hanging broker
delays it by a third of this time."""

_FAILURES = (ClusterUnreachable, *CONNECTION_FAILURES, KafkaError)
_COLORS = MappingProxyType(
    {"ready": "green", "starting": "yellow", "paused": "yellow", "running": "green", "ended": "red"}
)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State as the cluster itself reports it. `quorum_leader` is None if the quorum has none, or does not respond."""

    quorum_leader: int | None
    partitions: tuple[PartitionDescription, ...]
    topics: int


@dataclass(slots=True)
class LatestState:
    """The latest response from the cluster. `view` is None if no broker responded. `is_asked` is true once the first
    request has succeeded or failed."""

    view: ClusterState | None = None
    is_asked: bool = False


def watch(cluster: LocalCluster) -> None:
    """Show the cluster until ctrl-C or the end of its last node. Ctrl-C takes effect at a checkpoint: in a finalizer,
    the interpreter would ignore it."""
    trio.run(_watch, cluster, restrict_keyboard_interrupt_to_checkpoints=True)


async def _watch(cluster: LocalCluster) -> None:
    console = Console(highlight=False)
    console.print(ready_line(cluster), soft_wrap=True)  # this line stays when the table is gone
    latest = LatestState()
    async with (
        Admin(bootstrap_servers=cluster.bootstrap_servers, client_id="kraft-up", timeout_ms=ASK_MS_MAX) as admin,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_ask_again, admin, latest)
        # The alternate screen is redrawn completely each time, so lines that a resize has wrapped leave no traces.
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                nodes = await trio.to_thread.run_sync(cluster.status)
                live.update(Group(Text(ready_line(cluster)), _render(nodes, latest)), refresh=True)
                if all(node.pid is None for node in nodes):
                    break
                await trio.sleep(REFRESH_SECONDS)
        nursery.cancel_scope.cancel()


async def _ask_again(admin: Admin, latest: LatestState) -> None:
    """Query the cluster periodically, in a separate task, so that node states are shown even while brokers are slow."""
    while True:
        latest.view = await _ask(admin)
        latest.is_asked = True
        await trio.sleep(REFRESH_SECONDS)


async def _ask(admin: Admin) -> ClusterState | None:
    try:
        topics = await admin.topics.list()
    except _FAILURES:
        return None
    leader: int | None = None
    with contextlib.suppress(*_FAILURES):  # brokers can report topics even while the controllers hold an election
        leader = (await admin.nodes.quorum()).leader
    return ClusterState(leader, tuple(part for topic in topics for part in topic.partitions), len(topics))


def _render(nodes: list[NodeStatus], latest: LatestState) -> Group:
    view = latest.view
    table = Table(box=None, pad_edge=False)
    for name in ("node", "roles", "ports", "pid", "state", "leads", "out of sync"):
        table.add_column(name)
    for node in nodes:
        leads, behind = _led_and_lagging(node.node_id, view)
        roles = ",".join(node.roles) + (" (active)" if view and view.quorum_leader == node.node_id else "")
        state = Text(node.ended or node.state, style=_COLORS.get(node.state, ""))
        ports = ",".join(str(port) for port in node.ports)
        table.add_row(str(node.node_id), roles, ports, str(node.pid or "-"), state, leads, behind)
    trouble = _replication_summary(view) if latest.is_asked else Text("asking the brokers …", style="dim")
    return Group(table, trouble, Text("ctrl-C ends the cluster", style="dim"))


def _led_and_lagging(node_id: int, view: ClusterState | None) -> tuple[str, str]:
    if view is None:
        return "-", "-"
    leads = sum(1 for part in view.partitions if part.leader == node_id)
    behind = sum(1 for part in view.partitions if node_id in part.replicas and node_id not in part.isr)
    return str(leads), str(behind) if behind else ""


def _replication_summary(view: ClusterState | None) -> Text:
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
