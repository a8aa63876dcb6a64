"""`kraft rolling-restart`: restart the nodes of a local cluster one after the other, while clients keep working."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kraft.deploy.cli.completing import one_of
from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.local.cluster_verbs import find_cluster
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, DataOption, JsonOption, print_json, progress, warn

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.deploy.launch.control import LocalCluster
    from kraft.deploy.launch.layout import NodePlan

T = TypeVar("T")

IS_IT_UP = "see kraft status and kraft logs"
POLL_MS = 100
SYNC_SECONDS = 300
NAMES_MAX = 5
"""Maximum number of out-of-sync partitions that a message lists by name."""
ROLES = MappingProxyType({"controllers": "controller", "brokers": "broker"})


def rolling_restart(
    data: DataOption = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="Only controllers, or only brokers.", autocompletion=one_of(*ROLES)),
    ] = None,
    node: Annotated[
        list[int] | None, typer.Option("--node", metavar="NODE", help="Only this node; may be repeated.")
    ] = None,
    even_if_under_replicated: Annotated[
        bool, typer.Option("--even-if-under-replicated", help="Start even if partitions have replicas out of sync.")
    ] = False,
    sync_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="How long to wait for one node's replicas to be in sync.")
    ] = SYNC_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Restart the nodes one after the other: controllers first, the active one last, then brokers. The next node
    follows when all replicas of the one before are in sync. Ctrl-C, or a node that ends by itself, stops this command:
    the cluster stays as it is, and the remaining nodes are listed."""
    if only is not None and only not in ROLES:
        raise CommandFailed(f"--only {only}: expected {' or '.join(ROLES)}", code=EXIT_USAGE)
    cluster = find_cluster(data)
    cluster.require_all_up()
    accepted, active = _state_before(cluster)
    if accepted and not even_if_under_replicated:
        raise CommandFailed(
            f"not started: replicas are out of sync in {_names(accepted)}; wait, or see kraft topics describe "
            "--under-replicated; --even-if-under-replicated goes ahead"
        )
    order = restart_order(cluster.layout.nodes(), active, only, node)
    done: list[int] = []
    with progress("restarting", len(order)) as advance, _report_remaining_nodes(order, done):
        for plan in order:
            advance(0, f"restarting node {plan.node_id}")
            _restart(cluster, plan, accepted, sync_timeout)
            done.append(plan.node_id)
            advance(1)
            if not as_json:
                print(f"node {plan.node_id} restarted, in sync", flush=True)
    if as_json:
        print_json({"restarted": done})


def restart_order(
    nodes: Sequence[NodePlan], active: int | None, only: str | None = None, chosen: Sequence[int] | None = None
) -> list[NodePlan]:
    """Return controllers before brokers, with the `active` controller as the last controller. Raise CommandFailed for
    an unknown node."""
    unknown = set(chosen or ()) - {plan.node_id for plan in nodes}
    if unknown:
        known = ", ".join(str(plan.node_id) for plan in nodes)
        raise CommandFailed(f"there is no node {min(unknown)}; there are {known}", code=EXIT_USAGE)
    wanted = [
        plan for plan in nodes if (only is None or ROLES[only] in plan.roles) and (not chosen or plan.node_id in chosen)
    ]
    return sorted(wanted, key=lambda plan: ("controller" not in plan.roles, plan.node_id == active))


@contextmanager
def _report_remaining_nodes(order: Sequence[NodePlan], done: Sequence[int]) -> Iterator[None]:
    """Print the nodes that were not restarted, if an exception ends the restart early."""
    try:
        yield
    except BaseException:
        rest = [plan.node_id for plan in order if plan.node_id not in done]
        options = " ".join(f"--node {node_id}" for node_id in rest)
        warn(
            f"stopped before the end: {len(done)} of {len(order)} nodes restarted, remaining: "
            f"{', '.join(map(str, rest))}. See kraft status; start what is down (node {rest[0]} may be: kraft start "
            f"{rest[0]}). Continue with kraft rolling-restart {options}"
            if rest
            else "stopped at the end: all nodes are restarted"
        )
        raise


def _restart(cluster: LocalCluster, plan: NodePlan, accepted: frozenset[str], sync_seconds: float) -> None:
    """Restart a node and wait until it is in sync. Raise LaunchError if another node has ended, because stopping this
    node too could make the quorum or partitions unavailable."""
    cluster.require_all_up()
    cluster.stop(plan.node_id)
    cluster.start(plan.node_id)
    _run(cluster, lambda admin: _wait_in_sync(cluster, admin, plan, accepted, sync_seconds))


def _state_before(cluster: LocalCluster) -> tuple[frozenset[str], int | None]:
    """Return the partitions that have replicas out of sync, and the active controller, before a restart."""

    async def work(admin: Admin) -> tuple[frozenset[str], int | None]:
        return await _out_of_sync(admin), (await admin.nodes.quorum()).leader

    return _run(cluster, work)


def _run(cluster: LocalCluster, work: Callable[[Admin], Awaitable[T]]) -> T:
    return ClusterConnection(cluster.bootstrap_servers, {}, None, IS_IT_UP).run(work)


async def _wait_in_sync(
    cluster: LocalCluster, admin: Admin, plan: NodePlan, accepted: frozenset[str], seconds: float
) -> None:
    """Wait until no partition except those in `accepted` has replicas out of sync. After the restart of a controller,
    wait also until it follows the quorum's leader again. Raise CommandFailed after the timeout, LaunchError if a node
    ends."""
    import trio

    found: frozenset[str] = frozenset()
    with trio.move_on_after(seconds):
        while True:
            found = await _out_of_sync(admin) - accepted
            if not found and ("controller" not in plan.roles or await _has_caught_up(admin, plan.node_id)):
                return
            cluster.require_all_up()
            await trio.sleep(POLL_MS / 1000)
    what = f"replicas out of sync in {_names(found)}" if found else "it does not follow the quorum's leader"
    raise CommandFailed(f"node {plan.node_id} was restarted, but after {seconds:g} s: {what}; see kraft logs")


async def _has_caught_up(admin: Admin, node_id: int) -> bool:
    """Whether a controller has the metadata log up to the high watermark, as reported by the quorum's leader."""
    quorum = await admin.nodes.quorum()
    replicas = {one.node_id: one for one in (*quorum.voters, *quorum.observers)}
    return node_id == quorum.leader or (
        node_id in replicas and replicas[node_id].log_end_offset >= quorum.high_watermark
    )


async def _out_of_sync(admin: Admin) -> frozenset[str]:
    partitions = (part for topic in await admin.topics.list() for part in topic.partitions)
    return frozenset(f"{part.topic}-{part.index}" for part in partitions if part.is_under_replicated)


def _names(partitions: frozenset[str]) -> str:
    shown = sorted(partitions)[:NAMES_MAX]
    more = len(partitions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
