"""Draws the operations of transactional producers, and the faults that wait for a step of two-phase commit."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault, PlannedOperation
from kraft.sim.world.chance import NamedRandom, between

PRODUCERS = len(plan.TRANSACTORS) // 2
PAUSE_MS = (200, 1_600)
"""Minimum and maximum ms between two operations, of all transactional producers together."""
PICKS = 1_000
VERBS = (
    *(plan.COMMIT_TRANSACTION,) * 10,
    *(plan.ABORT_TRANSACTION,) * 4,
    plan.OUTLAST_TIMEOUT,
    *(plan.REPLACE_PRODUCER,) * 2,
    plan.KILL_PRODUCER,
    *(plan.MOVE_COORDINATOR,) * 2,
)
"""Operations to draw from. An operation that occurs n times is drawn n times as often."""
LEVELS = (*(plan.TRANSACTION_VERSION_MAX,) * 3, 0, 1)
"""Levels of transaction.version to draw from."""
RAISE_ONE_IN = 2
"""The level is raised during one run in this many of those that begin below the newest level."""
FAULT_PERIOD_MS = 7_000
"""Average time in ms between two faults that wait for a step of two-phase commit."""
KINDS = (plan.KILL, plan.KILL, plan.KILL, plan.POWER_LOSS, plan.CLEAN_STOP, plan.PAUSE)
DOWN_MS, PAUSED_MS = (100, 3_000), (100, 6_000)


def draw_transactions(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    """Draw operations of the transactional producers until `end_ms`, at random times."""
    operations: list[PlannedOperation] = []
    at_ms = between(random, *PAUSE_MS)
    while at_ms < end_ms:
        verb, producer = VERBS[random.below(len(VERBS))], random.below(PRODUCERS)
        operations.append(PlannedOperation(at_ms, verb, producer, random.below(PICKS)))
        at_ms += between(random, *PAUSE_MS)
    return tuple(operations)


def draw_transaction_version(
    random: NamedRandom, work: tuple[PlannedOperation, ...], end_ms: int
) -> tuple[int, tuple[PlannedOperation, ...]]:
    """Draw the level of transaction.version. Return it with the operations; one that raises it may be added."""
    level = LEVELS[random.below(len(LEVELS))]
    if level == plan.TRANSACTION_VERSION_MAX or random.below(RAISE_ONE_IN):
        return level, work
    raised = PlannedOperation(random.below(end_ms), plan.RAISE_TRANSACTION_VERSION)
    return level, tuple(sorted((*work, raised), key=lambda operation: operation.at_ms))


def draw_transaction_faults(random: NamedRandom, duration_ms: int, lane: int) -> Iterator[Fault]:
    """Draw crashes and pauses of coordinators and leaders. Each waits for a drawn step of two-phase commit. `lane` is
    the number of the sequence of faults, in which no two overlap."""
    for at_ms in sorted(random.below(duration_ms) for _ in range(1 + duration_ms // FAULT_PERIOD_MS)):
        kind = KINDS[random.below(len(KINDS))]
        yield Fault(
            at_ms=at_ms,
            kind=kind,
            lane=lane,
            role=plan.TRANSACTION_ROLES[random.below(len(plan.TRANSACTION_ROLES))],
            pick=random.below(PICKS),
            back_ms=0 if kind in (plan.PAUSE, plan.CLEAN_STOP) else between(random, *DOWN_MS),
            duration_ms=between(random, *PAUSED_MS) if kind == plan.PAUSE else 0,
        )
