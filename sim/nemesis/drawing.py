"""How a seed draws the faults and the operations of its plan. Each lane and each client has a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.drawn_clients import PICKS, RARE_CLIENTS, heated, paused_times
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import Fault, Operation
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
"""How long a fault lasts, where it does."""

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
"""How long a node stays down, where it goes down."""

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
"""One crash in so many waits for a moment."""
CALM_SEEDS = 10
"""One seed in so many is free of faults."""
HEALING_WORK_MS = 10_000
"""Clients have work for this long after the last fault."""
ADMIN_PAUSE_MS_MAX = 1_500
PRANK_PAUSE_MS_MAX = 8_000
EXTRA_VALUE_BYTES_MAX = 200
MOVE_PAUSE_MS = (500, 3_000)
THROTTLE_ONE_IN = 2
"""One move in so many is throttled, where throttles are set at all."""
THROTTLED_MOVE_MS = 6_000
"""Nothing else is moved for this long, and that much time is left for the last one."""
DIRECTORY_PAUSE_MS_MAX = 2_000
VOTER_PAUSE_MS_MAX = 2_000
TRIM_PAUSE_MS_MAX = 2_000
REREAD_PAUSE_MS_MAX = 5_000
UNCOUNTED_PAUSES = 2
"""Who has no acks=all pauses so many times as long as who has: a run must have 2,000 records that were acknowledged by
all in sync, and costs its requests."""
SCATTERED_ONE_IN = 8
"""The records of one burst in so many leave one by one: as several batches, which are under way at the same time. Those
of the others leave together, for what a run costs is its requests."""
MISDIRECTED_ONE_IN = 3
"""Of so many times that bytes rot, others land in their place once."""
WEAR_PERIOD_MS = 12_000
"""Of how many ms a disk that wears out has one fault."""
RARE_FAULT_PERIOD_MS = 8_000
"""Of how many ms a world with rare faults has one."""
REPLACEMENT_PERIOD_MS = 12_000
"""Of how many ms one controller comes back with an empty disk, where they do."""
REGISTRAR_PAUSE_MS_MAX = 800
REGISTRAR_KEYS = 2
"""Topics, and as many offsets, that both registrars work on at one time."""
REGISTRAR_KEYS_MS = 15_000
"""Then they take others, so that the history of each stays short enough to be judged: at most about 50 calls."""
CANCEL_ONE_IN = 4
SLOTS = 3
"""Extra topics at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mood:
    """What a seed draws of its faults and operations in general."""

    kinds: tuple[str, ...] = plan.NETWORK_KINDS
    """The disturbances that happen in this run."""
    disturbances: int = 0
    """So many of them in each lane at most, if that is more than the settings say; at least what the settings say."""
    streams: int = 1
    """Lanes of crashes, and as many of disturbances."""
    pause_ms_max: int = 1_200
    """Producers pause up to this long between two bursts."""
    burst_max: int = 24
    """Records that a producer sends at once, to one partition, at most."""
    moves: bool = False
    """Partitions are moved between brokers."""
    throttles: bool = False
    """Some of these moves are throttled."""
    changes_directories: bool = False
    """Replicas are moved between the log directories of their brokers."""
    changes_voters: bool = False
    """Controllers come and go as voters."""
    joins_by_itself: bool = False
    """They are only taken out: nobody but they themselves puts them back."""
    replaces_controllers: bool = False
    """Controllers come back with empty disks."""
    trims: bool = False
    """Records of the extra topics are deleted."""
    wears: bool = False
    """Disks of brokers wear out, and somebody reads what is old again and again."""
    rare_kinds: tuple[str, ...] = ()
    """The rare faults that happen in this run, in a lane of their own."""
    registers: bool = False
    """There are registrars."""
    is_hot: bool = False
    """Most of what producers send goes to one partition."""
    rare_clients: tuple[str, ...] = ()
    """Clients that only some worlds have, each by itself."""
    value_bytes_max: int = 0
    """Values are filled up to a drawn size below this."""


def draw_faults(seed: int, mood: Mood, settings: FaultSettings, shape: ClusterShape) -> tuple[Fault, ...]:
    """All lanes, in order of time."""
    faults: list[Fault] = []
    if not seed % CALM_SEEDS:
        return ()
    for stream in range(mood.streams):
        crashes = _draw_crashes(NamedRandom(seed, f"crashes {stream}"), settings, shape, lane=2 * stream)
        faults += _aimed(NamedRandom(seed, f"moments {stream}"), crashes)
        random = NamedRandom(seed, f"disturbances {stream}")
        faults += _draw_disturbances(random, mood, settings, shape, lane=2 * stream + 1)
    if mood.wears:
        faults += _draw_wear(NamedRandom(seed, "wear"), settings, shape, lane=2 * mood.streams)
    if mood.rare_kinds:
        random, count = NamedRandom(seed, "rare faults"), 1 + settings.duration_ms // RARE_FAULT_PERIOD_MS
        faults += _draw_each(random, mood.rare_kinds, count, settings, shape, lane=2 * mood.streams + 1)
    if mood.replaces_controllers:
        random = NamedRandom(seed, "replaced controllers")
        faults += _draw_replacements(random, settings, shape, lane=2 * mood.streams + 2)
    return tuple(sorted(faults, key=lambda fault: (fault.at_ms, fault.lane)))


def _draw_crashes(random: NamedRandom, settings: FaultSettings, shape: ClusterShape, lane: int) -> list[Fault]:
    """One victim after the other, some as soon as the one before is back, with stops in order between them."""
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
    """Of any node, of the active controller, or of a partition's leader: each as often as the others."""
    role = ("", *plan.LASTING_ROLES)[random.below(3)]
    node = 0 if role else shape.node_ids[random.below(len(shape.node_ids))]
    back_ms = between(random, *DOWN[kind]) if kind in DOWN else 0
    return Fault(at_ms=at_ms, kind=kind, lane=lane, role=role, node=node, pick=random.below(PICKS), back_ms=back_ms)


def _aimed(random: NamedRandom, crashes: list[Fault]) -> Iterator[Fault]:
    """Some of these crashes wait for a moment in which they hurt most."""
    for crash in crashes:
        role = plan.MOMENT_ROLES[random.below(len(plan.MOMENT_ROLES))]
        if random.one_in(MOMENT_ONE_IN) and crash.kind != plan.CLEAN_STOP:
            crash = replace(crash, role=role, node=0)
        yield crash


def _draw_disturbances(
    random: NamedRandom, mood: Mood, settings: FaultSettings, shape: ClusterShape, lane: int
) -> list[Fault]:
    least = settings.network_faults
    count = between(random, least, max(least, mood.disturbances)) if least else 0
    return _draw_each(random, mood.kinds, count, settings, shape, lane)


def _draw_each(
    random: NamedRandom, kinds: tuple[str, ...], count: int, settings: FaultSettings, shape: ClusterShape, lane: int
) -> list[Fault]:
    """So many of these kinds, at any times."""
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


def draw_work(seed: int, mood: Mood, settings: FaultSettings) -> dict[str, tuple[Operation, ...]]:
    """What each client does, while faults happen and for a while after."""
    end_ms = settings.duration_ms + HEALING_WORK_MS
    work: dict[str, tuple[Operation, ...]] = {}
    rare = replace(mood, pause_ms_max=UNCOUNTED_PAUSES * mood.pause_ms_max)
    for name in plan.PRODUCERS:
        its_mood = rare if name == plan.LOOSE else mood
        work[name] = _draw_sends(NamedRandom(seed, name), its_mood, end_ms, plan.PARTITIONS, mood.value_bytes_max)
    if mood.is_hot:
        work = heated(NamedRandom(seed, "hot"), work)
    work[plan.CONSUMER] = ()
    if mood.wears:
        work[plan.REREADER] = _draw_reading(NamedRandom(seed, plan.REREADER), settings.duration_ms)
    work[plan.EXTRA] = _draw_sends(NamedRandom(seed, plan.EXTRA), rare, end_ms, PICKS, EXTRA_VALUE_BYTES_MAX)
    work[plan.ADMIN] = _draw_administration(NamedRandom(seed, plan.ADMIN), settings.duration_ms)
    if mood.moves:
        moves = _draw_moves(NamedRandom(seed, plan.MOVER), settings.duration_ms)
        if mood.throttles:
            moves = _throttled(NamedRandom(seed, "throttles of moves"), moves, settings.duration_ms)
        work[plan.MOVER] = moves
    if mood.changes_directories:
        random = NamedRandom(seed, plan.DIRECTORY_MOVER)
        work[plan.DIRECTORY_MOVER] = _draw_directory_moves(random, settings.duration_ms)
    if mood.changes_voters:
        verbs = (plan.REMOVE_VOTER,) if mood.joins_by_itself else plan.VOTER_VERBS
        random = NamedRandom(seed, plan.VOTER_CHANGER)
        work[plan.VOTER_CHANGER] = _draw_voter_changes(random, verbs, settings.duration_ms)
    if mood.trims:
        work[plan.TRIMMER] = _draw_trims(NamedRandom(seed, plan.TRIMMER), settings.duration_ms)
    for name in mood.rare_clients:
        work[name] = RARE_CLIENTS[name](NamedRandom(seed, name), settings.duration_ms)
    for name in plan.REGISTRARS if mood.registers else ():
        work[name] = _draw_registrations(NamedRandom(seed, name), settings.duration_ms)
    return work | draw_group_work(seed, settings.duration_ms)


def draw_group_work(seed: int, duration_ms: int) -> dict[str, tuple[Operation, ...]]:
    """The odd things that each member of the group does."""
    return {name: _draw_pranks(NamedRandom(seed, name), duration_ms) for name in plan.MEMBERS}


def _draw_sends(random: NamedRandom, mood: Mood, end_ms: int, targets: int, bytes_max: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    at_ms = 0
    while at_ms < end_ms:
        target = random.below(targets)
        is_scattered = random.one_in(SCATTERED_ONE_IN)
        for number in range(1 + random.below(mood.burst_max)):
            verb = plan.SEND if is_scattered or not number else plan.SEND_TOO
            operations.append(Operation(at_ms, verb, target, random.below(bytes_max + 1)))
        at_ms += 1 + random.below(mood.pause_ms_max)
    return tuple(operations)


def _draw_reading(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    at_ms = random.below(REREAD_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(Operation(at_ms, plan.READ_AGAIN, random.below(plan.PARTITIONS)))
        at_ms += random.below(REREAD_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_administration(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    verbs = (plan.DELETE, plan.DELETE, plan.DELETE, plan.ADD_PARTITION, plan.SET_CONFIG, plan.ELECT)
    operations: list[Operation] = []
    at_ms = random.below(ADMIN_PAUSE_MS_MAX)
    while at_ms < end_ms:
        verb = verbs[random.below(len(verbs))]
        operations.append(Operation(at_ms, verb, random.below(SLOTS), random.below(PICKS)))
        at_ms += random.below(ADMIN_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_moves(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    for at_ms in paused_times(random, MOVE_PAUSE_MS, end_ms):
        verb = plan.MOVE if random.below(CANCEL_ONE_IN) else plan.CANCEL_MOVE
        operations.append(Operation(at_ms, verb, random.below(PICKS), random.below(PICKS)))
    return tuple(operations)


def _throttled(random: NamedRandom, moves: tuple[Operation, ...], end_ms: int) -> tuple[Operation, ...]:
    """The same moves, some with a throttle, and without those for which then is no time."""
    kept: list[Operation] = []
    free_ms = 0
    for move in moves:
        is_throttled = move.verb == plan.MOVE and random.one_in(THROTTLE_ONE_IN)
        if move.at_ms < free_ms:
            continue
        if is_throttled and move.at_ms + THROTTLED_MOVE_MS <= end_ms:
            move, free_ms = replace(move, verb=plan.THROTTLED_MOVE), move.at_ms + THROTTLED_MOVE_MS
        kept.append(move)
    return tuple(kept)


def _draw_directory_moves(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    at_ms = random.below(DIRECTORY_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(Operation(at_ms, plan.CHANGE_DIRECTORY, random.below(PICKS), random.below(PICKS)))
        at_ms += random.below(DIRECTORY_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_voter_changes(random: NamedRandom, verbs: tuple[str, ...], end_ms: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    at_ms = random.below(VOTER_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(Operation(at_ms, verbs[random.below(len(verbs))], random.below(PICKS)))
        at_ms += random.below(VOTER_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_trims(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    at_ms = random.below(TRIM_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(Operation(at_ms, plan.DELETE_RECORDS, random.below(PICKS), random.below(PICKS)))
        at_ms += random.below(TRIM_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_registrations(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    """Half of them are of topics."""
    more = (plan.CREATE, plan.CREATE_PARTITIONS, plan.VALIDATE_PARTITIONS)
    verbs = (*plan.TOPIC_VERBS, *more, *plan.OFFSET_VERBS * 4)
    operations: list[Operation] = []
    at_ms = random.below(REGISTRAR_PAUSE_MS_MAX)
    while at_ms < end_ms:
        target = REGISTRAR_KEYS * (at_ms // REGISTRAR_KEYS_MS) + random.below(REGISTRAR_KEYS)
        operations.append(Operation(at_ms, verbs[random.below(len(verbs))], target, random.below(PICKS)))
        at_ms += random.below(REGISTRAR_PAUSE_MS_MAX)
    return tuple(operations)


def _draw_pranks(random: NamedRandom, end_ms: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    at_ms = random.below(PRANK_PAUSE_MS_MAX)
    while at_ms < end_ms:
        operations.append(Operation(at_ms, plan.PRANKS[random.below(len(plan.PRANKS))]))
        at_ms += random.below(PRANK_PAUSE_MS_MAX)
    return tuple(operations)
