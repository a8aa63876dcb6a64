"""Draws different worlds for different seeds (swarm testing): the cluster's size, its configuration, the speed of links
and disks, and the odds of rare events.

One seed in four is plain: three brokers and three controllers with Kafka's defaults. Half of the worlds have links and
disks so fast that the time limits of failure detection (K6) apply. A swarm finds what one rich configuration hides: a
run without a feature reaches states that a run with all features cannot (Groce et al., ISSTA 2012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from kraft.sim.cluster.shape import AUTO_JOIN, ClusterShape
from kraft.sim.cluster.sizes import SMALL
from kraft.sim.nemesis.drawing import PlanChoices, draw_faults, draw_work
from kraft.sim.nemesis.drawn_clients import RARE_CLIENTS
from kraft.sim.nemesis.drawn_transactions import draw_transaction_version
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    BLACKOUT,
    DIRECTORY,
    MIXED_GROUP,
    NETWORK_KINDS,
    OTHER_KINDS,
    OVERRIDES,
    RARE_KINDS,
    RETAINER,
    RETENTION_CHECK,
    SHARE_GROUP,
    TRANSACTION_VERSION_MAX,
    TRANSACTOR,
    Plan,
    allows,
)
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.options import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, WorldOptions

T = TypeVar("T")

SIZES = ((3, 3), (3, 3), (3, 3), (3, 3), (1, 3), (3, 4), (3, 5), (5, 3))
"""Sizes of clusters: (controllers, brokers)."""

RHYTHMS = ((1200, 24), (1200, 24), (1200, 24), (600, 12), (600, 12), (300, 6))
"""Sending rhythms of producers: (pause_ms_max, burst_max). All rhythms send the same number of records per time."""
SMALL_BATCH_BYTES = 300
"""Small maximum batch size, with which a burst becomes several batches that are in flight at the same time. The size of
padded values is added to it."""
SMALL_ONE_IN = 4
"""One world in this many has a reduced size limit, drawn for each limit. Plain worlds (those with Kafka's defaults)
never have one."""
TRIMS_ONE_IN = 2
"""One in this many worlds has deletions of records. Worlds with only Kafka's defaults have none."""
THROTTLES_ONE_IN = 2
"""Some reassignments are throttled in one in this many of the worlds with reassignments."""
THROTTLED_BROKERS_MIN = 4
"""Minimum number of brokers in a world with throttled reassignments. With three brokers each has every partition, and a
reassignment copies nothing."""
JOINS_ONE_IN = 2
"""Controllers join as voters by themselves in one in this many of the worlds in which voters change. In half of these
worlds voters are removed, and in the others controllers restart with empty disks."""
DIRECTORY_RATE = MappingProxyType({"replica.alter.log.dirs.io.max.bytes.per.second": "20000"})
"""Rate to which moves between log directories are limited, in half of the worlds with such moves."""
HOT_ONE_IN = 4
"""In one world in this many, most records go to one partition, whose log often starts a new segment. Plain worlds
(those with Kafka's defaults) have no such partition."""
HOT_SEGMENT_BYTES = "5000"
RETENTION_CHECK_MS = "2000"
RARE_CLIENT_ONE_IN = 3
"""Each optional client but the share groups exists in one world in this many, never in plain worlds (those with Kafka's
defaults)."""
SHARE_GROUP_ONE_IN = 6
"""The share groups exist in one world in this many, because a run with them costs half as much again."""
RARE_KINDS_ONE_IN = 3
"""Rare faults happen in one world in this many, never in plain worlds (those with Kafka's defaults). Each kind of rare
fault happens in half of these worlds."""
WEAR_ONE_IN = 3
"""Disks wear out in one world in this many, never in plain worlds (those with Kafka's defaults)."""

CONSUMER_GROUP_SETTINGS = MappingProxyType(
    {
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "1500",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.regex.refresh.interval.ms": "10000",
    }
)
"""Settings of worlds with the mixed group: sessions of a few seconds, like those of classic members."""

SHARE_GROUP_SETTINGS = MappingProxyType(
    {
        "group.share.session.timeout.ms": "6000",
        "group.share.min.session.timeout.ms": "6000",
        "group.share.heartbeat.interval.ms": "1500",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.record.lock.duration.ms": "2000",
        "group.share.min.record.lock.duration.ms": "1000",
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.snapshot.update.records.per.snapshot": "20",
        "share.coordinator.state.topic.prune.interval.ms": "5000",
    }
)
"""Settings of worlds with share groups: sessions and locks of a few seconds, and a log of states that is often
shortened."""

Choices = Sequence[Mapping[str, str]]
"""Alternative sets of configuration keys, one of which is drawn; {} stands for the defaults."""

NODE_CHOICES: tuple[Choices, ...] = (
    # the metadata log: tiny segments, frequent snapshots, a log that is deleted below them, small fetches
    (
        {},
        {"metadata.log.max.record.bytes.between.snapshots": "3000"},
        {
            "metadata.log.max.record.bytes.between.snapshots": "1000",
            "internal.metadata.log.segment.bytes": "1000",
            "metadata.max.retention.bytes": "3000",
        },
    ),
    ({}, {"controller.quorum.fetch.max.bytes": "1"}, {"controller.quorum.fetch.max.bytes": "500"}),
    ({}, {"controller.quorum.fetch.snapshot.max.bytes": "300"}),
    # failure detection and leadership
    (
        {},
        {},
        {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"},
    ),
    ({}, {"leader.imbalance.check.interval.seconds": "2"}),
    # replication
    ({}, {}, {"replica.lag.time.max.ms": "2000"}, {"replica.lag.time.max.ms": "600"}),
    ({}, {}, {"replica.fetch.max.bytes": "1"}, {"replica.fetch.response.max.bytes": "1"}),
    ({}, {}, {"replica.fetch.wait.max.ms": "250"}),  # idle followers fetch again at this rate
    ({}, {}, {"max.incremental.fetch.session.cache.slots": "0"}, {"max.incremental.fetch.session.cache.slots": "2"}),
    # logs
    ({}, {"replica.high.watermark.checkpoint.interval.ms": "1000"}),
    ({}, {"log.flush.offset.checkpoint.interval.ms": "2000"}),
    ({}, {}, {"log.flush.interval.messages": "1"}, {"log.flush.interval.messages": "5"}),
    ({}, {"log.segment.delete.delay.ms": "0"}),
    ({}, {RETENTION_CHECK: RETENTION_CHECK_MS}),
)
TOPIC_CHOICES: tuple[Choices, ...] = (
    ({}, {}, {"internal.segment.bytes": "2000"}, {"internal.segment.bytes": "5000"}),
    ({}, {"index.interval.bytes": "0"}, {"index.interval.bytes": "200"}),
    ({}, {}, {"message.timestamp.type": "LogAppendTime"}),
)


def draw_plan(seed: int, settings: FaultSettings) -> Plan:
    """Draw the plan of this seed."""
    plan, profile = _draw_cluster(seed)
    work, level = draw_work(seed, profile, settings), TRANSACTION_VERSION_MAX
    if TRANSACTOR in work:
        random = NamedRandom(seed, "transaction version")
        level, work[TRANSACTOR] = draw_transaction_version(random, work[TRANSACTOR], settings.duration_ms)
    return replace(
        plan,
        duration_ms=settings.duration_ms,
        faults=draw_faults(seed, profile, settings, plan.shape),
        work=work,
        transaction_version=level,
    )


def _draw_cluster(seed: int) -> tuple[Plan, PlanChoices]:
    """Draw the cluster and its world, and the general choices for faults and operations."""
    random = NamedRandom(seed, "swarm")

    def one_of(choices: Sequence[T]) -> T:
        return choices[random.below(len(choices))]

    options, is_quick = _draw_options(random)
    plan = Plan(seed=seed, options=options, is_quick=is_quick)
    if not seed % 4:
        return plan, PlanChoices()
    overrides = dict(OVERRIDES)
    for choices in NODE_CHOICES:
        overrides.update(one_of(choices))
    topic_configs: dict[str, str] = {}
    for choices in TOPIC_CHOICES:
        topic_configs.update(one_of(choices))
    controllers, brokers = one_of(SIZES)
    kinds = tuple(kind for kind in (*NETWORK_KINDS, *OTHER_KINDS) if random.below(3)) or NETWORK_KINDS
    shape = ClusterShape(controllers, brokers, overrides, log_dirs=one_of((1, 1, 2)))
    pause_ms_max, burst_max = one_of(RHYTHMS)
    profile = PlanChoices(
        kinds=(*kinds, *(kind for kind in (BLACKOUT, DIRECTORY) if allows(shape, kind))),
        disturbances=one_of((2, 4, 8)),
        streams=one_of((1, 1, 2)),
        pause_ms_max=pause_ms_max,
        burst_max=burst_max,
        moves=one_of((False, False, True)),
        changes_directories=shape.log_dirs > 1,
        value_bytes_max=one_of((0, 0, 600)),
        wears=not NamedRandom(seed, "wear").below(WEAR_ONE_IN),
        trims=not NamedRandom(seed, "trims").below(TRIMS_ONE_IN),
        is_hot=not NamedRandom(seed, "is hot").below(HOT_ONE_IN),
        rare_clients=_draw_rare_clients(seed),
        rare_kinds=_draw_rare_kinds(seed, shape),
    )
    if profile.moves and not NamedRandom(seed, "throttles").below(THROTTLES_ONE_IN):
        shape = replace(shape, brokers=max(brokers, THROTTLED_BROKERS_MIN))
        profile = replace(profile, throttles=True)
    compression = one_of(("none", "none", "gzip", "lz4"))
    small_batch_bytes = SMALL_BATCH_BYTES + profile.value_bytes_max
    batch_bytes = one_of((plan.batch_bytes, plan.batch_bytes, small_batch_bytes))
    if RETAINER in profile.rare_clients:
        overrides[RETENTION_CHECK] = RETENTION_CHECK_MS
    if MIXED_GROUP in profile.rare_clients:
        overrides.update(CONSUMER_GROUP_SETTINGS)
    if SHARE_GROUP in profile.rare_clients:
        overrides.update(SHARE_GROUP_SETTINGS)
    if profile.changes_directories and NamedRandom(seed, "directory rate").below(2):
        overrides.update(DIRECTORY_RATE)
    if profile.is_hot:
        topic_configs.setdefault("internal.segment.bytes", HOT_SEGMENT_BYTES)
    changes_voters = controllers > 1 and one_of((False, False, True))
    joins_by_itself = changes_voters and not NamedRandom(seed, "auto join").below(JOINS_ONE_IN)
    replaces_controllers = joins_by_itself and bool(NamedRandom(seed, "are controllers replaced").below(2))
    if joins_by_itself:
        overrides[AUTO_JOIN] = "true"
    return (
        replace(
            plan,
            shape=replace(shape, dynamic_voters=changes_voters),
            topic_configs=topic_configs,
            compression=compression,
            batch_bytes=batch_bytes,
            small_sizes=_draw_small_sizes(seed),
        ),
        replace(
            profile,
            changes_voters=changes_voters and not replaces_controllers,
            joins_by_itself=joins_by_itself,
            replaces_controllers=replaces_controllers,
            registers=one_of((False, False, True)),
        ),
    )


def _draw_small_sizes(seed: int) -> tuple[str, ...]:
    random = NamedRandom(seed, "sizes")
    return tuple(name for name in SMALL if not random.below(SMALL_ONE_IN))


def _draw_rare_kinds(seed: int, shape: ClusterShape) -> tuple[str, ...]:
    random = NamedRandom(seed, "rare kinds")
    if random.below(RARE_KINDS_ONE_IN):
        return ()
    return tuple(kind for kind in RARE_KINDS if random.below(2) and allows(shape, kind))


def _draw_rare_clients(seed: int) -> tuple[str, ...]:
    odds = dict.fromkeys(RARE_CLIENTS, RARE_CLIENT_ONE_IN) | {SHARE_GROUP: SHARE_GROUP_ONE_IN}
    return tuple(name for name, one_in in odds.items() if not NamedRandom(seed, f"is {name} there").below(one_in))


def _draw_options(random: NamedRandom) -> tuple[WorldOptions, bool]:
    """Draw the world's options; return them, and whether links and disks are so fast that the time limits of failure
    detection (K6) apply."""

    def one_of(choices: Sequence[T]) -> T:
        return choices[random.below(len(choices))]

    options = WorldOptions(
        cold_read_one_in=one_of((0, 8, 64, 64)),
        partial_read_one_in=one_of((4, 16, 16, 256)),
        tiny_read_one_in=one_of((16, 128, 128, 0)),
        write_back_age_ns=one_of((SECOND_NS, 30 * SECOND_NS, 30 * SECOND_NS)),
    )
    is_quick = bool(random.below(2))
    if is_quick:
        return options, True
    slow = replace(
        options,
        delay_jitter_ns=one_of((160 * MICROSECOND_NS, 2 * MILLISECOND_NS, 10 * MILLISECOND_NS)),
        slow_delay_ns=one_of((5 * MILLISECOND_NS, 50 * MILLISECOND_NS)),
        slow_delay_one_in=one_of((20, 200)),
        pass_delay_ns=one_of((20 * MICROSECOND_NS, MILLISECOND_NS)),
        sync_delay_jitter_ns=one_of((2 * MILLISECOND_NS, 20 * MILLISECOND_NS)),
        slow_sync_ns=one_of((40 * MILLISECOND_NS, 400 * MILLISECOND_NS)),
        slow_sync_one_in=one_of((20, 200)),
        offload_delay_jitter_ns=one_of((500 * MICROSECOND_NS, 10 * MILLISECOND_NS)),
        drift_ppm_max=one_of((200, 10_000)),
    )
    return slow, False
