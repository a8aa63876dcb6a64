"""Blocking: list, make and clear the faults of a local cluster. Failures raise LaunchError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import FAULT_SOCKET

DELAY_MS_MAX = 60_000
CUT = "hang"


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """State of a node on the fault board. `why_not` is the reason why the board cannot make faults at this node; empty
    if it can."""

    node_id: int
    roles: tuple[str, ...]
    state: str
    links: tuple[tuple[int, str], ...]
    """Peer and policy of each link that has a fault."""
    rules: tuple[str, ...]
    why_not: str


class BadAction(Exception):
    """The form names an action, node or number that does not exist."""


def read_board(data: Path) -> list[NodeFaults]:
    """Return the state of every node, in order."""
    folder = ClusterFolder(data)
    return [
        _node_faults(folder, status.node_id, status.roles, status.state)
        for status in LocalCluster.find(folder).status()
    ]


def node_states(data: Path) -> list[tuple[int, str]]:
    """Return the id and the state of every node, as the launcher reports them."""
    return [(status.node_id, status.state) for status in LocalCluster.find(ClusterFolder(data)).status()]


def act(data: Path, form: Mapping[str, str]) -> str:
    """Carry out the action of a form and return a description of what was done. May raise BadAction or LaunchError."""
    action = ACTIONS.get(form.get("action", ""))
    if action is None:
        raise BadAction(f"action {form.get('action', '')}: expected one of {', '.join(ACTIONS)}")
    return action(LocalCluster.find(ClusterFolder(data)), form)


def _node_faults(folder: ClusterFolder, node_id: int, roles: tuple[str, ...], state: str) -> NodeFaults:
    def without(why: str) -> NodeFaults:
        return NodeFaults(node_id, roles, state, (), (), why)

    if state not in ("ready", "running", "starting"):
        return without(f"the node is {state}")
    if not (folder.node(node_id) / FAULT_SOCKET).exists():
        return without("it was started without --fault-control")
    try:
        found = FaultClient.of_node(folder, node_id).listed()
    except LaunchError as problem:
        return without(str(problem))
    links = tuple((int(one["node"]), str(one["policy"])) for one in found["links"] if one["policy"] != "open")
    slow = tuple((int(one["node"]), "slow") for one in found["qualities"])
    return NodeFaults(node_id, roles, state, links + slow, tuple(map(_rule, found["rules"])), "")


def _rule(rule: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in rule.items())


def _kill(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    node = _node(cluster, form, "node")
    return f"node {node} is killed (pid {cluster.kill(node)})"


def _pause(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    node = _node(cluster, form, "node")
    cluster.pause(node)
    return f"node {node} is paused"


def _resume(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    node = _node(cluster, form, "node")
    cluster.resume(node)
    return f"node {node} is resumed"


def _start(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    node = _node(cluster, form, "node")
    cluster.start(node, until_ready=False)
    return f"node {node} is started"


def _cut(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    """Cut the links of a node to a peer, or to all others, in both directions."""
    node = _node(cluster, form, "node")
    peers = (
        [one for one in cluster.node_ids if one != node]
        if form.get("peer") == "all"
        else [_node(cluster, form, "peer")]
    )
    if node in peers:
        raise BadAction(f"node {node} has no link to itself: choose another peer")
    done = _each_way(cluster, node, peers, lambda client, peer: client.link(peer, CUT))
    return f"links cut: {done}"


def _slow(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    """Delay the traffic between a node and all others."""
    node, delay_ms = _node(cluster, form, "node"), _delay(form)
    peers = [one for one in cluster.node_ids if one != node]
    quality = {"latency_ms": delay_ms}
    done = _each_way(cluster, node, peers, lambda client, peer: client.link(peer, "open", sends=quality))
    return f"slower by {delay_ms} ms: {done}"


def _heal(cluster: LocalCluster, form: Mapping[str, str]) -> str:
    """Clear every fault of links, responses and syncs, and resume paused nodes. Killed nodes stay down."""
    healed, left = [], []
    for status in cluster.status():
        if status.state == "paused":
            cluster.resume(status.node_id)
        if status.pid is None:
            continue
        if not (cluster.folder.node(status.node_id) / FAULT_SOCKET).exists():
            continue
        try:
            FaultClient.of_node(cluster.folder, status.node_id).clear()
            healed.append(status.node_id)
        except LaunchError:
            left.append(status.node_id)
    text = f"faults cleared at nodes {', '.join(map(str, healed)) or 'none'}"
    return text + (f"; no response from {', '.join(map(str, left))}" if left else "")


ACTIONS: Mapping[str, Callable[[LocalCluster, Mapping[str, str]], str]] = MappingProxyType(
    {"kill": _kill, "pause": _pause, "resume": _resume, "start": _start, "cut": _cut, "slow": _slow, "heal": _heal}
)


def _each_way(cluster: LocalCluster, node: int, peers: list[int], change: Callable[[FaultClient, int], None]) -> str:
    """Apply `change` to the links between a node and its peers, in both directions. Return the changed links. The links
    of a node can be changed only while it runs with fault control. Raise LaunchError if no link could be changed."""
    done, problem = [], None
    for here, there in [pair for peer in peers for pair in ((node, peer), (peer, node))]:
        try:
            change(FaultClient.of_node(cluster.folder, here), there)
            done.append(f"{here} → {there}")
        except LaunchError as failure:
            problem = failure
    if not done and problem is not None:
        raise problem
    return ", ".join(done)


def _node(cluster: LocalCluster, form: Mapping[str, str], name: str) -> int:
    text = form.get(name, "")
    if not (text.isascii() and text.isdigit() and int(text[:9]) in cluster.node_ids):
        raise BadAction(f"{name} {text}: expected one of {', '.join(map(str, cluster.node_ids))}")
    return int(text)


def _delay(form: Mapping[str, str]) -> int:
    text = form.get("delay_ms", "")
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= DELAY_MS_MAX):
        raise BadAction(f"delay {text}: expected 1 to {DELAY_MS_MAX} ms")
    return int(text)
