"""Pure: the shapes that a partition can have, as pairs of nodes between which nothing passes, either way.

`pick` chooses among the partitions of one shape: the same number is the same partition of the same nodes. `CLIENTS`
stands for all clients in the place of a node. Source: Jepsen (partition nemeses).
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
    """Nothing passes between nodes of different groups; who is in none reaches all."""
    sides = [tuple(group) for group in groups]
    found = ((here, there) for number, here in enumerate(sides) for there in sides[number + 1 :])
    return tuple((one, other) for here, there in found for one in here for other in there)


def halves(nodes: Iterable[int], pick: int = 0) -> tuple[Pair, ...]:
    """The nodes fall into two halves; of an odd number the second one is larger."""
    order = _ordered(nodes, pick)
    middle = len(order) // 2
    return between(order[:middle], order[middle:])


def bridge(nodes: Iterable[int], node: int, pick: int = 0) -> tuple[Pair, ...]:
    """The others fall into halves, and this node alone sees both."""
    return halves([other for other in nodes if other != node], pick)


def ring(nodes: Iterable[int], pick: int = 0) -> tuple[Pair, ...]:
    """The nodes stand in a ring, and each sees its two neighbours only."""
    order = _ordered(nodes, pick)
    apart = (2, len(order) - 2)
    return tuple(
        (one, other)
        for here, one in enumerate(order)
        for there, other in enumerate(order)
        if apart[0] <= there - here <= apart[1]
    )


def clients_from(nodes: Iterable[int]) -> tuple[Pair, ...]:
    """Clients do not reach these nodes, which see each other."""
    return tuple((CLIENTS, node) for node in nodes)


def end_of(node: int) -> int:
    """The end of a link that a fault's node or other stands for."""
    return CLIENTS if node == ALL_CLIENTS else node


def end_words(node: int) -> str:
    """A fault's node or other for people."""
    return "clients" if node == ALL_CLIENTS else f"node {node}"


def pairs_of(fault: Fault, shape: ClusterShape) -> tuple[Pair, ...]:
    """The pairs that a fault cuts, if it is one that cuts both ways."""
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
    """What this partition is, for people."""
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
    """These nodes in the order that `pick` stands for; 0 is the order given."""
    left, order = list(nodes), []
    while left:
        pick, index = divmod(pick, len(left))
        order.append(left.pop(index))
    return order
