"""Sizes that only a large cluster reaches, made small for a run: so a few hundred bytes are more than a buffer, and a
topic with two partitions is decided in steps.

Production's sizes are constants of its modules; a run that is to have small ones sets them there and puts them back.
Only such are here as change what happens: a step that takes no virtual time is as good as none.
Source: FoundationDB paper, section 4 (buggification).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType, ModuleType

RECEIVE_BUFFERS = "receive buffers"
TURNS = "turns"
SLICES = "slices of decisions"
STEPS = "steps of the controller"
METADATA_READS = "metadata reads"
BROKER_REQUESTS = "brokers' requests"
INDEX_FLUSHES = "index flushes"

SMALL: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        RECEIVE_BUFFERS: {  # all of them a thousandth of what they are, so that they stand to each other as they do
            "kraft.wire.client:IDLE_BUFFER_BYTES": 16,
            "kraft.wire.client:KEPT_BUFFER_BYTES": 16 * 1024,
            "kraft.wire.server:IDLE_BUFFER_BYTES": 16,
            "kraft.wire.server:KEPT_BUFFER_BYTES": 1536,
            "kraft.wire.server:JOIN_BYTES_MAX": 32,
            "kraft.wire.framing:READ_BUFFER_BYTES": 256,
            "kraft.wire.framing:FIRST_STEP_BYTES": 1024,
            "kraft.wire.framing:BUFFER_STEP_BYTES": 64,
            "kraft.wire.framing:JOIN_BYTES_MAX": 32,
            "kraft.wire.framing:LARGE_BYTES": 2048,
            "kraft.wire.budget:LARGE_BYTES": 2048,
        },
        TURNS: {  # every turn has one piece
            "kraft.broker.serving.turns:TURN_NS_MAX": 0,
            "kraft.broker.api.metadata:PARTITIONS_AT_ONCE_MAX": 1,
            "kraft.broker.api.metadata:STEP_TOPICS": 1,
            "kraft.broker.api.list_offsets:STEP_PARTITIONS": 1,
            "kraft.broker.api.fetch.handle_fetch:LONG_BYTES": 0,
            "kraft.broker.api.fetch.handle_fetch:STEP_PARTITIONS": 1,
            "kraft.broker.node.broker_node:LONG_REQUEST_BYTES": 64,
        },
        SLICES: {
            "kraft.control.topics.drafts:EVENTS_PER_SLICE": 1,
            "kraft.control.topics.grow:EVENTS_PER_SLICE": 1,
            "kraft.control.topics.create_delete:EVENTS_PER_SLICE": 1,
            "kraft.control.partitions.isr:PARTITION_CHANGES_PER_SLICE_MAX": 1,
            "kraft.control.brokers.assign_directories:PARTITION_CHANGES_PER_SLICE_MAX": 1,
            "kraft.control.partitions.plans:PARTITION_CHANGES_PER_SLICE_MAX": 1,
            "kraft.control.brokers.fencing:FENCE_CHANGES_PER_SLICE_MAX": 1,
            "kraft.control.partitions.reassignments:PARTITIONS_PER_SLICE": 1,
        },
        STEPS: {
            "kraft.controller.command_queue:EVENTS_PER_STEP_MAX": 1,
            "kraft.controller.command_queue:PLAN_EVENTS_AHEAD_MAX": 0,
            "kraft.quorum.listener_delivery:EVENTS_PER_STEP_MAX": 1,
        },
        METADATA_READS: {
            "kraft.quorum.metadata_log:SCAN_BYTES": 200,
            "kraft.quorum.metadata_log:BATCHES_BYTES": 200,
        },
        BROKER_REQUESTS: {
            "kraft.broker.roles.alter_partition:PARTITIONS_PER_REQUEST_MAX": 1,
            "kraft.broker.logs.directory_assignments:REPLICAS_PER_REQUEST_MAX": 1,
            "kraft.broker.following.leader_fetcher:WISHES_MAX": 1,
            "kraft.broker.api.fetch.pending_fetch:ANSWER_PARTITIONS_MAX": 1,
        },
        INDEX_FLUSHES: {"kraft.storage.indexes.index_file:FLUSH_BYTES": 24},
    }
)
"""Name of a group → "module:CONSTANT" → its small value."""


@contextmanager
def small_sizes(names: Collection[str]) -> Iterator[None]:
    """The constants of these groups are small meanwhile."""
    kept: list[tuple[ModuleType, str, int]] = []
    chosen = [(place.partition(":"), value) for name in names for place, value in SMALL[name].items()]
    owners = [import_module(module) for (module, _, _), _ in chosen]  # one imported later would take what is small
    try:
        for owner, ((_, _, constant), value) in zip(owners, chosen, strict=True):
            kept.append((owner, constant, getattr(owner, constant)))
            setattr(owner, constant, value)
        yield
    finally:
        for owner, constant, value in reversed(kept):  # a group that is named twice was small the second time
            setattr(owner, constant, value)
