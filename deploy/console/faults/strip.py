"""Pure: the strip below the board that shows the effect of faults: nodes, leaders and in-sync replicas, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft.client.admin import PartitionDescription, QuorumDescription
from kraft.deploy.console.snapshot import ClusterSnapshot

CELLS_MAX = 120


def strip_of(snapshot: ClusterSnapshot, states: Iterable[tuple[int, str]]) -> dict[str, Any]:
    """Return the strip as JSON. `states` are the node states as the launcher reports them.

    At most CELLS_MAX partitions are included: first those without a leader, then those with replicas out of sync, then
    the others. In each of these three groups, internal topics come last."""
    internal = {name for name, topic in snapshot.topics.items() if topic.is_internal}
    partitions = sorted(
        snapshot.partitions(), key=lambda one: (_rank(one), one.topic in internal, one.topic, one.index)
    )
    return {
        "nodes": [{"node": node, "state": state} for node, state in states],
        "controller": _controller(snapshot.quorum),
        "fenced": [one.node_id for one in snapshot.cluster.brokers if one.is_fenced] if snapshot.cluster else [],
        "offline": sum(one.leader is None for one in partitions),
        "short": sum(one.is_under_replicated for one in partitions),
        "total": len(partitions),
        "cells": [_cell(one) for one in partitions[:CELLS_MAX]],
        "taken_ms": snapshot.taken_ms,
    }


def _rank(partition: PartitionDescription) -> int:
    return 0 if partition.leader is None else 1 if partition.is_under_replicated else 2


def _controller(quorum: QuorumDescription | None) -> int | None:
    return None if quorum is None else quorum.leader


def _cell(partition: PartitionDescription) -> dict[str, Any]:
    return {
        "name": f"{partition.topic}-{partition.index}",
        "leader": partition.leader,
        "isr": list(partition.isr),
        "missing": [one for one in partition.replicas if one not in partition.isr],
        "state": ("offline", "short", "whole")[_rank(partition)],
    }
