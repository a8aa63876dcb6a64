"""Rules for plans that come from outside, written by hand or read from a file, so that a run can carry them out.

A rule yields a sentence for each problem, with the place of the problem in the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from kraft.config import ConfigError, validate_topic_config
from kraft.sim.cluster.shape import LOG_DIR_LETTERS, ClusterShape
from kraft.sim.cluster.sizes import SMALL
from kraft.sim.nemesis.plan import (
    AWAITED_ROLES,
    CLIENT_VERBS,
    CLOSED_LOOP,
    CRASH_KINDS,
    LATENCY,
    LINK_KINDS,
    NODELESS_KINDS,
    PARTITIONS,
    PAUSE,
    PAUSED_ROLES,
    PLAN_MS_MAX,
    PRODUCERS,
    QUALITY_KINDS,
    REREADER,
    ROLE_KINDS,
    ROLES,
    TRANSACTION_VERSION_MAX,
    VOTER_CHANGER,
    WEAR_KINDS,
    Fault,
    Plan,
    PlannedOperation,
    allows,
)
from kraft.wire.records.compression import Compression

COMPRESSIONS = tuple(codec.name.lower() for codec in Compression)
_TOO_LONG = f"it must not be beyond PLAN_MS_MAX, {PLAN_MS_MAX:,} ms (a day)"


def problems_of(plan: Plan) -> Iterator[str]:
    """Return all problems of this plan. A problem may be the consequence of an earlier one."""
    yield from _problems_of_cluster(plan.shape)
    yield from _problems_of_settings(plan)
    for number, fault in enumerate(plan.faults, start=1):
        yield from (f"fault {number} {problem}" for problem in _problems_of_fault(fault, plan.shape))
    if VOTER_CHANGER in plan.work and not plan.shape.dynamic_voters:
        yield f"{VOTER_CHANGER}: needs dynamic_voters in the shape, for voters that are configured cannot change"
    for client, operations in plan.work.items():
        for number, operation in enumerate(operations, start=1):
            yield from (f"{client}: operation {number} {problem}" for problem in _problems_of(operation, client))


def _problems_of_cluster(shape: ClusterShape) -> Iterator[str]:
    if shape.combined < 0 or (not shape.combined and min(shape.controllers, shape.brokers) < 1):
        yield f"shape: a cluster has controllers and brokers, and this has {shape.controllers} and {shape.brokers}"
    if not 1 <= shape.log_dirs <= len(LOG_DIR_LETTERS):
        yield f"shape: log_dirs must be 1 to {len(LOG_DIR_LETTERS)}, and is {shape.log_dirs}"
    try:
        for node in shape.node_ids:
            shape.config(node)
    except ConfigError as problem:
        yield f"shape: overrides: {problem}"


def _problems_of_settings(plan: Plan) -> Iterator[str]:
    if plan.compression not in COMPRESSIONS:
        yield f"compression must be one of {', '.join(COMPRESSIONS)}, and is {plan.compression!r}"
    if plan.batch_bytes < 1 or min(plan.seed, plan.duration_ms) < 0:
        yield f"seed, duration_ms and batch_bytes are {plan.seed}, {plan.duration_ms} and {plan.batch_bytes}: too small"
    if plan.duration_ms > PLAN_MS_MAX:
        yield f"duration_ms is {plan.duration_ms}: {_TOO_LONG}"
    for name in plan.small_sizes:
        if name not in SMALL:
            yield f"small_sizes: {name!r} is not one of {', '.join(SMALL)}"
    if not 0 <= plan.transaction_version <= TRANSACTION_VERSION_MAX:
        yield f"transaction_version must be 0 to {TRANSACTION_VERSION_MAX}, and is {plan.transaction_version}"
    for item in fields(plan.options):
        if (value := getattr(plan.options, item.name)) < 0:
            yield f"options: {item.name} must not be below 0, and is {value}"
    for name, value in plan.topic_configs.items():
        try:
            validate_topic_config(name, value)
        except ConfigError as problem:
            yield f"topic_configs: {problem}"


def _problems_of_fault(fault: Fault, shape: ClusterShape) -> Iterator[str]:
    unknown = sorted({fault.node, fault.other} - {0, *shape.node_ids})
    if unknown:
        yield f"names {unknown}, and the cluster has {', '.join(map(str, shape.node_ids))}"
    if fault.role not in ("", *ROLES):
        yield f"names the role {fault.role!r}, and there are {', '.join(ROLES)}"
    is_awaited_pause = fault.kind == PAUSE and fault.role in PAUSED_ROLES
    if not (fault.node or is_awaited_pause or fault.kind in NODELESS_KINDS) or not (
        fault.other or fault.kind not in LINK_KINDS
    ):
        yield f"({fault.kind}) must name the nodes that it hits: node, and other for a link"
    if fault.kind in LINK_KINDS and fault.node == fault.other:
        yield f"({fault.kind}) needs two nodes, and names {fault.node} twice"
    if fault.kind in WEAR_KINDS and fault.node in shape.node_ids and fault.node not in shape.broker_ids:
        yield f"({fault.kind}) is of a broker's logs, and {fault.node} is none"
    if not allows(shape, fault.kind):
        yield (
            f"({fault.kind}) is not for this cluster: a blackout needs log.flush.interval.messages=1 in the overrides, "
            "a failing directory log_dirs of 2 or more, a bridge three nodes, a ring four, and controllers can be cut "
            "off where they are no brokers"
        )
    if min(fault.at_ms, fault.duration_ms, fault.back_ms, fault.pick, fault.jitter_ms) < 0:
        yield f"({fault.kind}) has a time or a pick below 0"
    longest = max(fault.at_ms, fault.duration_ms, fault.back_ms, fault.jitter_ms)
    if longest > PLAN_MS_MAX:
        yield f"({fault.kind}) has a time of {longest} ms: {_TOO_LONG}"
    if fault.kind in QUALITY_KINDS and fault.amount < (fault.kind != LATENCY):
        yield f"({fault.kind}) needs an amount: ms, bytes per second, or bytes"
    if fault.needs_toxics:
        yield f"({fault.kind}) has a toxicity_percent or a stream: only clusters behind toxiproxy can have that"
    if fault.role in AWAITED_ROLES and fault.kind not in CRASH_KINDS and not is_awaited_pause:
        yield f"({fault.kind}) cannot wait for the {fault.role}: only {', '.join(CRASH_KINDS)} can"
    if fault.role and fault.kind not in ROLE_KINDS and not is_awaited_pause:
        kinds = ", ".join(ROLE_KINDS)
        yield f"({fault.kind}) hits the node that it names, and not the {fault.role}: only {kinds} can have a role"


def _problems_of(operation: PlannedOperation, client: str) -> Iterator[str]:
    verbs = CLIENT_VERBS[client]
    if operation.verb not in verbs:
        yield f"is {operation.verb!r}, and this client knows {', '.join(verbs) or 'nothing'}"
    if min(operation.at_ms, operation.target, operation.amount) < 0:
        yield f"({operation.verb}) has a number below 0"
    if operation.at_ms > PLAN_MS_MAX:
        yield f"({operation.verb}) is at {operation.at_ms} ms: {_TOO_LONG}"
    if client in (*PRODUCERS, CLOSED_LOOP, REREADER) and operation.target >= PARTITIONS:
        yield f"is for partition {operation.target}, and the topic has {PARTITIONS}, from 0 on"
