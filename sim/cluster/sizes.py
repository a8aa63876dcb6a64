"""Reduces size limits that only a large cluster reaches, so that a run exceeds them: a few hundred bytes overflow a
buffer, and a topic with two partitions is decided in slices.

Production's sizes are constants of its modules; a run replaces them and restores them at its end. Only constants that
change behaviour are listed here. Constants that only divide work into slices are omitted, because the slices take no
virtual time.
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
PRODUCER_EPOCHS = "producer epochs"

SMALL: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        RECEIVE_BUFFERS: {  # all of them a thousandth of their value, so that their ratios stay the same
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
            "kraft.broker.following.leader_fetcher:SESSION_PARTITIONS_MAX": 1,
            "kraft.broker.api.fetch.pending_fetch:ANSWER_PARTITIONS_MAX": 1,
        },
        INDEX_FLUSHES: {"kraft.storage.indexes.index_file:FLUSH_BYTES": 24},
        PRODUCER_EPOCHS: {  # a producer id is used up after a few transactions
            "kraft.broker.txn.transaction:LAST_USABLE_EPOCH": 4,
            "kraft.broker.txn.ending:LAST_USABLE_EPOCH": 4,
            "kraft.broker.txn.enrolment:LAST_USABLE_EPOCH": 4,
            "kraft.broker.txn.identity:LAST_USABLE_EPOCH": 4,
        },
    }
)
"""Name of a group of constants → "module:CONSTANT" → its small value."""


@contextmanager
def small_sizes(names: Collection[str]) -> Iterator[None]:
    """Reduce the constants of these groups within this context."""
    kept: list[tuple[ModuleType, str, int]] = []
    chosen = [(place.partition(":"), value) for name in names for place, value in SMALL[name].items()]
    # a module imported later would copy the reduced value
    owners = [import_module(module) for (module, _, _), _ in chosen]
    try:
        for owner, ((_, _, constant), value) in zip(owners, chosen, strict=True):
            kept.append((owner, constant, getattr(owner, constant)))
            setattr(owner, constant, value)
        yield
    finally:
        # restore in reverse order: a group that is named twice was already reduced the second time
        for owner, constant, value in reversed(kept):
            setattr(owner, constant, value)
