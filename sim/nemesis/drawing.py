"""Draws the faults and the operations of a plan from its seed. Each client, and each lane (a sequence of faults that do
not overlap), has a separate random stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.drawn_clients import PICKS, RARE_CLIENTS, heated, paused_times
from kraft.sim.nemesis.drawn_mixed_group import draw_coordinator_faults
from kraft.sim.nemesis.drawn_share_group import draw_share_faults
from kraft.sim.nemesis.drawn_transactions import draw_transaction_faults
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import Fault, PlannedOperation
from kraft.sim.world.chance import NamedRandom, between

RESTART_MS = (100, 3_000)
HURRY_MS = 500
CUT_MS = (100, 3_000)
PAUSE_MS = (100, 6_000)
DISK_MS = (50, 1_500)
STALL_MS = (50, 4_000)
BACK_MS = (50, 1_000)
STUMBLE_MS = (0, 250)
ROT_MS = (1_000, 8_000)
STUMBLES = (1, 3)
CLOCK_STEP_MS = (-60_000, 60_000)
LATENCY_MS = (5, 500)
JITTER_MS_MAX = 300

LASTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "cut": CUT_MS,
        "cut one way": CUT_MS,
        "isolate": CUT_MS,
        "stall": STALL_MS,
        "pause": PAUSE_MS,
        "slow disk": CUT_MS,
        "full disk": DISK_MS,
        "failing sync": DISK_MS,
        "stumble": STUMBLE_MS,
        plan.DIRECTORY: CUT_MS,
        plan.BIT_ROT: ROT_MS,
        plan.READ_ERROR: CUT_MS,
        **dict.fromkeys((*plan.SHAPE_KINDS, *plan.QUALITY_KINDS), CUT_MS),
    }
)
"""Kind → range of a fault's duration."""

DOWN: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        plan.KILL: RESTART_MS,
        plan.POWER_LOSS: RESTART_MS,
        "full disk": BACK_MS,
        "failing sync": BACK_MS,
        "empty disk": BACK_MS,
        "stumble": STUMBLE_MS,
        "flap": STUMBLE_MS,
        plan.DIRECTORY: BACK_MS,
        plan.BIT_ROT: BACK_MS,
        plan.READ_ERROR: BACK_MS,
        plan.BLACKOUT: BACK_MS,
        plan.ROLLING: BACK_MS,
    }
)
"""Kind → range of a node's downtime."""

AMOUNTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "clock": CLOCK_STEP_MS,
        "stumble": STUMBLES,
        "flap": (0, 1),
        plan.BIT_ROT: (0, 1),
        plan.LATENCY: LATENCY_MS,
        plan.SLOW_LINK: (2_000, 100_000),
        plan.BYTE_LIMIT: (1, 20_000),
    }
)

MOMENT_ONE_IN = 3
"""A crash waits for a certain moment once in this many crashes, on average."""
CALM_SEEDS = 10
"""One seed in this many is free of faults."""
HEALING_WORK_MS = 10_000
"""Time in ms after the last fault for which clients still have operations."""
ADMIN_PAUSE_MS_MAX = 1_500
PRANK_PAUSE_MS_MAX = 8_000
EXTRA_VALUE_BYTES_MAX = 200
MOVE_PAUSE_MS = (500, 3_000)
THROTTLE_ONE_IN = 2
"""One reassignment in this many is throttled, in runs that use throttles."""
THROTTLED_MOVE_MS = 6_000
"""Minimum time in ms reserved for a throttled reassignment. No other reassignment starts in it."""
DIRECTORY_PAUSE_MS_MAX = 2_000
VOTER_PAUSE_MS_MAX = 2_000
TRIM_PAUSE_MS_MAX = 2_000
REREAD_PAUSE_MS_MAX = 5_000
UNCOUNTED_PAUSES = 2
"""Factor by which producers without acks=all pause longer than others. A run must have 2,000 records acknowledged with
acks=all, and its cost is its number of requests."""
SCATTERED_ONE_IN = 8
"""The records of one burst in this many are sent one by one, as several batches in flight at the same time. Other
bursts are sent together, because the cost of a run is its number of requests."""
MISDIRECTED_ONE_IN = 3
"""One corruption in this many writes bytes of another batch instead of flipping bits."""
WEAR_PERIOD_MS = 12_000
"""Average ms between faults of a disk that wears out."""
RARE_FAULT_PERIOD_MS = 8_000
"""Average ms between faults in a world with rare faults."""
REPLACEMENT_PERIOD_MS = 12_000
"""Average ms between restarts of controllers with an empty disk, in runs that have them."""
REGISTRAR_PAUSE_MS_MAX = 800
REGISTRAR_KEYS = 2
"""Number of topics, and of committed offsets, that the two registrars (clients that compete for the same names) use at
one time."""
REGISTRAR_KEYS_MS = 15_000
"""Time in ms after which the registrars (clients that compete for the same names) change to other names. It keeps each
history short enough for the check of linearizability: at most about 50 calls."""
CANCEL_ONE_IN = 4
SLOTS = 3
"""Maximum number of topics of the administrator (extra topics) that exist at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoices:
    """Choices of a seed that apply to all of its faults and operations."""

    kinds: tuple[str, ...] = plan.NETWORK_KINDS
    """Kinds of faults of this run, other than crashes."""
    disturbances: int = 0
    """Maximum number of faults other than crashes in each lane (sequence of faults that do not overlap). The settings
    give the minimum, which wins if it is larger."""
    streams: int = 1
    """Number of lanes (sequences of faults that do not overlap) of crashes. There is the same number of lanes of other
    faults."""
    pause_ms_max: int = 1_200
    """Maximum pause of producers between two bursts."""
    burst_max: int = 24
    """Maximum records that a producer sends at once to one partition."""
    moves: bool = False
    """Whether partitions are reassigned."""
    throttles: bool = False
    """Whether some reassignments are throttled."""
    changes_directories: bool = False
    """Whether replicas are moved between the log directories of their brokers."""
    changes_voters: bool = False
    """Whether controllers are added and removed as voters."""
    joins_by_itself: bool = False
    """Whether voters are only removed by a client, and the controllers join again by themselves."""
    replaces_controllers: bool = False
    """Whether controllers restart with empty disks."""
    trims: bool = False
    """Whether records of the extra topics (those that the administrator creates) are deleted with DeleteRecords."""
    wears: bool = False
    """Whether disks of brokers wear out, and a reader rereads old records."""
    rare_kinds: tuple[str, ...] = ()
    """Kinds of rare faults of this run. They are drawn separately from other faults, and do not overlap each other."""
    registers: bool = False
    """Whether there are registrars, which are clients that compete for the same topics and offsets."""
    is_hot: bool = False
    """Whether most records go to one partition."""
    rare_clients: tuple[str, ...] = ()
    """Optional clients, each drawn independently."""
    value_bytes_max: int = 0
    """Upper limit of the random size to which values are padded."""


def draw_faults(seed: int, profile: PlanChoices, settings: FaultSettings, shape: ClusterShape) -> tuple[Fault, ...]:
    """Draw all faults of a plan, and return them in order of time."""
    faults: list[Fault] = []
    if not seed % CALM_SEEDS:
        return ()
    for stream in range(profile.streams):
        crashes = _draw_crashes(NamedRandom(seed, f"crashes {stream}"), settings, shape, lane=2 * stream)
        faults += _aimed(NamedRandom(seed, f"moments {stream}"), crashes)
        random = NamedRandom(seed, f"disturbances {stream}")
        faults += _draw_disturbances(random, profile, settings, shape, lane=2 * stream + 1)
    if profile.wears:
        faults += _draw_wear(NamedRandom(seed, "wear"), settings, shape, lane=2 * profile.streams)
    if profile.rare_kinds:
        random, count = NamedRandom(seed, "rare faults"), 1 + settings.duration_ms // RARE_FAULT_PERIOD_MS
        faults += _draw_each(random, profile.rare_kinds, count, settings, shape, lane=2 * profile.streams + 1)
    if profile.replaces_controllers:
        random = NamedRandom(seed, "replaced controllers")
        faults += _draw_replacements(random, settings, shape, lane=2 * profile.streams + 2)
    if plan.TRANSACTOR in profile.rare_clients:
        random = NamedRandom(seed, "transaction faults")
        faults += draw_transaction_faults(random, settings.duration_ms, lane=2 * profile.streams + 3)
    if plan.MIXED_GROUP in profile.rare_clients:
        random = NamedRandom(seed, "faults of group coordinators")
        faults += draw_coordinator_faults(random, settings.duration_ms, lane=2 * profile.streams + 4)
    if plan.SHARE_GROUP in profile.rare_clients:
        random = NamedRandom(seed, "faults of share groups")
        faults += draw_share_faults(random, settings.duration_ms, lane=2 * profile.streams + 5)
    return tuple(sorted(faults, key=lambda fault: (fault.at_ms, fault.lane)))


def _draw_crashes(random: NamedRandom, settings: FaultSettings, shape: ClusterShape, lane: int) -> list[Fault]:
    """Draw one crash after the other, with clean stops between them. Some crashes follow as soon as the last crashed
    node is back."""
    faults: list[Fault] = []
    slot_ms = settings.duration_ms // max(1, settings.crashes)
    kinds = (plan.KILL, plan.POWER_LOSS)
    first = at_ms = 0
    for number in range(settings.crashes):
        if number and random.below(2) < settings.clean_stops:
            at_ms += random.below(HURRY_MS)
            faults.append(_draw_crash(random, shape, plan.CLEAN_STOP, at_ms, lane))
        hurry = number and random.below(2)
        at_ms = max(at_ms, 0 if hurry else number * slot_ms + random.below(slot_ms)) + random.below(HURRY_MS)
        which = 1 - first if number == 1 else random.below(2)
        first = first if number else which
        faults.append(_draw_crash(random, shape, kinds[which], at_ms, lane))
    return faults


def _draw_crash(random: NamedRandom, shape: ClusterShape, kind: str, at_ms: int, lane: int) -> Fault:
    """Draw a crash of any node, of the active controller, or of a partition's leader, with equal odds."""
    role = ("", *plan.LASTING_ROLES)[random.below(3)]
    node = 0 if role else shape.node_ids[random.below(len(shape.node_ids))]
    back_ms = between(random, *DOWN[kind]) if kind in DOWN else 0
    return Fault(at_ms=at_ms, kind=kind, lane=lane, role=role, node=node, pick=random.below(PICKS), back_ms=back_ms)


def _aimed(random: NamedRandom, crashes: list[Fault]) -> Iterator[Fault]:
    """Make some of these crashes wait for a moment at which they do the most harm."""
    for crash in crashes:
        role = plan.MOMENT_ROLES[random.below(len(plan.MOMENT_ROLES))]
        if random.one_in(MOMENT_ONE_IN) and crash.kind != plan.CLEAN_STOP:
            crash = replace(crash, role=role, node=0)
        yield crash


def _draw_disturbances(
    random: NamedRandom, profile: PlanChoices, settings: FaultSettings, shape: ClusterShape, lane: int
) -> list[Fault]:
    least = settings.network_faults
    count = between(random, least, max(least, profile.disturbances)) if least else 0
    return _draw_each(random, profile.kinds, count, settings, shape, lane)


def _draw_each(
    random: NamedRandom, kinds: tuple[str, ...], count: int, settings: FaultSettings, shape: ClusterShape, lane: int
) -> list[Fault]:
    """Draw this many faults of these kinds, at any times."""
    times = sorted(random.below(settings.duration_ms) for _ in range(count))
    return [_draw_disturbance(random, kinds[random.below(len(kinds))], at, shape, lane) for at in times]


def _draw_wear(random: NamedRandom, settings: FaultSettings, shape: ClusterShape, lane: int) -> Iterator[Fault]:
    brokers, misdirected = shape.broker_ids, random.stream("misdirected")
    for _ in range(1 + settings.duration_ms // WEAR_PERIOD_MS):
        fault = _draw_disturbance(
            random, plan.WEAR_KINDS[random.below(2)], random.below(settings.duration_ms), shape, lane
        )
        is_misdirected = fault.kind == plan.BIT_ROT and misdirected.one_in(MISDIRECTED_ONE_IN)
        kind = plan.MISDIRECTED if is_misdirected else fault.kind
        yield replace(fault, kind=kind, node=brokers[random.below(len(brokers))], pick=random.below(PICKS))


def _draw_replacements(random: NamedRandom, settings: FaultSettings, shape: ClusterShape, lane: int) -> Iterator[Fault]:
    for _ in range(1 + settings.duration_ms // REPLACEMENT_PERIOD_MS):
        fault = _draw_disturbance(random, plan.EMPTY_DISK, random.below(settings.duration_ms), shape, lane)
        yield replace(fault, node=shape.controller_ids[random.below(len(shape.controller_ids))])


def _draw_disturbance(random: NamedRandom, kind: str, at_ms: int, shape: ClusterShape, lane: int) -> Fault:
    nodes = shape.node_ids
    node = nodes[random.below(len(nodes))]
    others = [other for other in nodes if other != node]
    other = others[random.below(len(others))] if kind in plan.LINK_KINDS else 0
    role = plan.LASTING_ROLES[random.below(2)] if kind == "flap" else ""
    return Fault(
        at_ms=at_ms,
        kind=kind,
        lane=lane,
        role=role,
        node=0 if role or kind in plan.WHOLE_KINDS or (kind == plan.CLIENTS_CUT and random.below(2)) else node,
        pick=random.below(PICKS) if role or kind in plan.PICKED_KINDS else 0,
        other=other,
        duration_ms=between(random, *LASTS[kind]) if kind in LASTS else 0,
        back_ms=between(random, *DOWN[kind]) if kind in DOWN else 0,
        amount=between(random, *AMOUNTS[kind]) if kind in AMOUNTS else 0,
        jitter_ms=random.below(JITTER_MS_MAX + 1) if kind == plan.LATENCY else 0,
    )


def draw_work(seed: int, profile: PlanChoices, settings: FaultSettings) -> dict[str, tuple[PlannedOperation, ...]]:
    """Draw the operations of each client, during the faults and for some time after."""
    end_ms = settings.duration_ms + HEALING_WORK_MS
    work: dict[str, tuple[PlannedOperation, ...]] = {}
    rare = replace(profile, pause_ms_max=UNCOUNTED_PAUSES * profile.pause_ms_max)
    for name in plan.PRODUCERS:
        its_mood = rare if name == plan.LOOSE else profile
        work[name] = _draw_sends(NamedRandom(seed, name), its_mood, end_ms, plan.PARTITIONS, profile.value_bytes_max)
    if profile.is_hot:
        work = heated(NamedRandom(seed, "hot"), work)
    work[plan.CONSUMER] = ()
    if profile.wears:
        work[plan.REREADER] = _draw_reading(NamedRandom(seed, plan.REREADER), settings.duration_ms)
    work[plan.EXTRA] = _draw_sends(NamedRandom(seed, plan.EXTRA), rare, end_ms, PICKS, EXTRA_VALUE_BYTES_MAX)
    work[plan.ADMIN] = _draw_administration(NamedRandom(seed, plan.ADMIN), settings.duration_ms)
    if profile.moves:
        moves = _draw_moves(NamedRandom(seed, plan.MOVER), settings.duration_ms)
        if profile.throttles:
            moves = _throttled(NamedRandom(seed, "throttles of moves"), moves, settings.duration_ms)
        work[plan.MOVER] = moves
    if profile.changes_directories:
        random = NamedRandom(seed, plan.DIRECTORY_MOVER)
        work[plan.DIRECTORY_MOVER] = _draw_directory_moves(random, settings.duration_ms)
    if profile.changes_voters:
        verbs = (plan.REMOVE_VOTER,) if profile.joins_by_itself else plan.VOTER_VERBS
        random = NamedRandom(seed, plan.VOTER_CHANGER)
        work[plan.VOTER_CHANGER] = _draw_voter_changes(random, verbs, settings.duration_ms)
    if profile.trims:
        work[plan.TRIMMER] = _draw_trims(NamedRandom(seed, plan.TRIMMER), settings.duration_ms)
    for name in profile.rare_clients:
        work[name] = RARE_CLIENTS[name](NamedRandom(seed, name), settings.duration_ms)
    for name in plan.REGISTRARS if profile.registers else ():
        work[name] = _draw_registrations(NamedRandom(seed, name), settings.duration_ms)
    return work | draw_group_work(seed, settings.duration_ms)


def draw_group_work(seed: int, duration_ms: int) -> dict[str, tuple[PlannedOperation, ...]]:
    """Draw the misbehaviour of each group member."""
    return {name: _draw_pranks(NamedRandom(seed, name), duration_ms) for name in plan.MEMBERS}


def _draw_sends(
    random: NamedRandom, profile: PlanChoices, end_ms: int, targets: int, bytes_max: int
) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    at_ms = 0
    while at_ms < end_ms:
        target = random.below(targets)
        is_scattered = random.one_in(SCATTERED_ONE_IN)
        for number in range(1 + random.below(profile.burst_max)):
            verb = plan.SEND if is_scattered or not number else plan.SEND_TOO
            operations.append(PlannedOperation(at_ms, verb, target, random.below(bytes_max + 1)))
        at_ms += 1 + random.below(profile.pause_ms_max)
    return tuple(operations)


def _draw_reading(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    at_ms = random.below(REREAD_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(PlannedOperation(at_ms, plan.READ_AGAIN, random.below(plan.PARTITIONS)))
        at_ms += random.below(REREAD_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_administration(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    verbs = (plan.DELETE, plan.DELETE, plan.DELETE, plan.ADD_PARTITION, plan.SET_CONFIG, plan.ELECT)
    operations: list[PlannedOperation] = []
    at_ms = random.below(ADMIN_PAUSE_MS_MAX)
    while at_ms < end_ms:
        verb = verbs[random.below(len(verbs))]
        operations.append(PlannedOperation(at_ms, verb, random.below(SLOTS), random.below(PICKS)))
        at_ms += random.below(ADMIN_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_moves(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    for at_ms in paused_times(random, MOVE_PAUSE_MS, end_ms):
        verb = plan.MOVE if random.below(CANCEL_ONE_IN) else plan.CANCEL_MOVE
        operations.append(PlannedOperation(at_ms, verb, random.below(PICKS), random.below(PICKS)))
    return tuple(operations)


def _throttled(random: NamedRandom, moves: tuple[PlannedOperation, ...], end_ms: int) -> tuple[PlannedOperation, ...]:
    """Return the same reassignments, some of them with a throttle. Those for which no time is left are omitted."""
    kept: list[PlannedOperation] = []
    free_ms = 0
    for move in moves:
        is_throttled = move.verb == plan.MOVE and random.one_in(THROTTLE_ONE_IN)
        if move.at_ms < free_ms:
            continue
        if is_throttled and move.at_ms + THROTTLED_MOVE_MS <= end_ms:
            move, free_ms = replace(move, verb=plan.THROTTLED_MOVE), move.at_ms + THROTTLED_MOVE_MS
        kept.append(move)
    return tuple(kept)


def _draw_directory_moves(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    at_ms = random.below(DIRECTORY_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(PlannedOperation(at_ms, plan.CHANGE_DIRECTORY, random.below(PICKS), random.below(PICKS)))
        at_ms += random.below(DIRECTORY_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_voter_changes(random: NamedRandom, verbs: tuple[str, ...], end_ms: int) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    at_ms = random.below(VOTER_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(PlannedOperation(at_ms, verbs[random.below(len(verbs))], random.below(PICKS)))
        at_ms += random.below(VOTER_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_trims(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    at_ms = random.below(TRIM_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(PlannedOperation(at_ms, plan.DELETE_RECORDS, random.below(PICKS), random.below(PICKS)))
        at_ms += random.below(TRIM_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_registrations(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    """Draw the operations of the clients that compete for topics and offsets (the registrars); half of the operations
    are about topics."""
    more = (plan.CREATE, plan.CREATE_PARTITIONS, plan.VALIDATE_PARTITIONS)
    verbs = (*plan.TOPIC_VERBS, *more, *plan.OFFSET_VERBS * 4)
    operations: list[PlannedOperation] = []
    at_ms = random.below(REGISTRAR_PAUSE_MS_MAX)
    while at_ms < end_ms:
        target = REGISTRAR_KEYS * (at_ms // REGISTRAR_KEYS_MS) + random.below(REGISTRAR_KEYS)
        operations.append(PlannedOperation(at_ms, verbs[random.below(len(verbs))], target, random.below(PICKS)))
        at_ms += random.below(REGISTRAR_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_pranks(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    operations: list[PlannedOperation] = []
    at_ms = random.below(PRANK_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(PlannedOperation(at_ms, plan.PRANKS[random.below(len(plan.PRANKS))]))
        at_ms += random.below(PRANK_PAUSE_MS_MAX)
    return tuple(operations)
