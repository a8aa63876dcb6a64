"""Pure: the shapes of network partitions, as pairs of nodes between which nothing passes in either direction.

`pick` selects one of the partitions of a shape: the same number gives the same partition of the same nodes. `CLIENTS`
instead of a node means all clients.
Source: Jepsen (partition nemeses).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.plan import (
    ALL_CLIENTS,
    BRIDGE,
    CLIENTS_CUT,
    CONTROLLERS_CUT,
    CUT,
    HALVES,
    ISOLATE,
    RING,
    Fault,
)

CLIENTS = 0

Pair = tuple[int, int]


def between(*groups: Iterable[int]) -> tuple[Pair, ...]:
    """Return the pairs of a partition between nodes of different groups; a node in no group reaches all."""
    sides = [tuple(group) for group in groups]
    found = ((here, there) for number, here in enumerate(sides) for there in sides[number + 1 :])
    return tuple((one, other) for here, there in found for one in here for other in there)


def halves(nodes: Iterable[int], pick: int = 0) -> tuple[Pair, ...]:
    """Return the pairs of a partition into two halves; with an odd number of nodes the second half is larger."""
    order = _ordered(nodes, pick)
    middle = len(order) // 2
    return between(order[:middle], order[middle:])


def bridge(nodes: Iterable[int], node: int, pick: int = 0) -> tuple[Pair, ...]:
    """Return the pairs of a partition in which this node reaches all nodes, and the other nodes are split into two
    halves that cannot reach each other."""
    return halves([other for other in nodes if other != node], pick)


def ring(nodes: Iterable[int], pick: int = 0) -> tuple[Pair, ...]:
    """Return the pairs of a partition in which the nodes form a ring and each reaches only its two neighbours."""
    order = _ordered(nodes, pick)
    apart = (2, len(order) - 2)
    return tuple(
        (one, other)
        for here, one in enumerate(order)
        for there, other in enumerate(order)
        if apart[0] <= there - here <= apart[1]
    )


def clients_from(nodes: Iterable[int]) -> tuple[Pair, ...]:
    """Return the pairs of a partition that cuts clients off from these nodes; the nodes still reach each other."""
    return tuple((CLIENTS, node) for node in nodes)


def end_of(node: int) -> int:
    """Return the end of a link that a fault's `node` or `other` stands for: a node or CLIENTS."""
    return CLIENTS if node == ALL_CLIENTS else node


def end_words(node: int) -> str:
    """Describe a fault's `node` or `other` in words."""
    return "clients" if node == ALL_CLIENTS else f"node {node}"


def pairs_of(fault: Fault, shape: ClusterShape) -> tuple[Pair, ...]:
    """Return the pairs that a fault cuts, if it is a fault that cuts both directions."""
    nodes, node, pick = shape.node_ids, fault.node, fault.pick
    others = [other for other in nodes if other != node]
    if fault.kind in (CUT, ISOLATE):
        return between([end_of(node)], [end_of(fault.other)] if fault.kind == CUT else others)
    if fault.kind == CONTROLLERS_CUT:
        return between(shape.controller_ids, shape.broker_ids)
    if fault.kind == CLIENTS_CUT:
        return clients_from([node] if node else nodes)
    return {HALVES: halves(nodes, pick), BRIDGE: bridge(nodes, node, pick), RING: ring(nodes, pick)}[fault.kind]


def words_of(fault: Fault, shape: ClusterShape) -> str:
    """Describe this partition in words."""
    node, order = fault.node, _ordered(shape.node_ids, fault.pick)
    if fault.kind == CUT and ALL_CLIENTS in (node, fault.other):
        return f"clients are cut off from node {max(node, fault.other)}"
    if fault.kind == CUT:
        return f"node {node} is cut off from {[fault.other]}"
    if fault.kind == ISOLATE:
        return f"node {node} is cut off from {sorted({*shape.node_ids} - {node})}"
    if fault.kind == CONTROLLERS_CUT:
        return "the controllers are cut off from the brokers"
    if fault.kind == CLIENTS_CUT:
        return f"clients are cut off from {f'node {node}' if node else 'all nodes'}"
    if fault.kind == RING:
        return f"nodes see their neighbours in the ring {order} only"
    who = f"all but node {node}" if fault.kind == BRIDGE else "the nodes"
    one, other = ([pair[side] for pair in pairs_of(fault, shape)] for side in (0, 1))
    return f"{who} fall into {_once(one)} and {_once(other)}"


def _once(nodes: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(nodes))


def _ordered(nodes: Iterable[int], pick: int) -> list[int]:
    """Return these nodes in the order that `pick` selects; `pick` 0 selects the given order."""
    left, order = list(nodes), []
    while left:
        pick, index = divmod(pick, len(left))
        order.append(left.pop(index))
    return order
