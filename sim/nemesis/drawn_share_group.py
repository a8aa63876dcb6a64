"""Draws the operations of the share groups, and the faults of the brokers that serve them."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault, PlannedOperation
from kraft.sim.world.chance import NamedRandom, between

PAUSE_MS = (500, 3_000)
"""Minimum and maximum ms between two operations of the share groups."""
START_MS_MAX = 600
CUT_MS = (500, 9_000)
"""Minimum and maximum ms for which a member is cut off, which is shorter or longer than its session."""
PICKS = 1_000
VERBS = (
    plan.START_MEMBER,
    *(plan.END_MEMBER,) * 2,
    *(plan.KILL_MEMBER,) * 3,
    *(plan.CUT_OFF_MEMBER,) * 2,
    *(plan.HOLD_RECORDS,) * 4,
    *(plan.MOVE_COORDINATOR,) * 3,
    *(plan.MOVE_LEADER,) * 3,
    plan.GROW_TOPIC,
    plan.SET_GROUP_CONFIG,
    *(plan.SET_SHARE_OFFSETS,) * 2,
    plan.DELETE_SHARE_OFFSETS,
    plan.DELETE_SHARE_GROUP,
)
"""Operations to draw from. An operation that occurs n times is drawn n times as often."""
FAULT_PERIOD_MS = 12_000
"""Average time in ms between two faults that wait for a moment of the share groups."""
KINDS = (plan.KILL, plan.KILL, plan.KILL, plan.POWER_LOSS, plan.CLEAN_STOP, plan.PAUSE)
DOWN_MS, PAUSED_MS = (100, 3_000), (100, 12_000)
WAYS_COUNT = 4
"""Number of ways in which members acknowledge. The amount of a start operation selects one."""


def draw_share_group(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    """Draw the operations of the share groups until `end_ms`. All members start; then operations happen one at a time.
    The next operation of a member that is down starts it again."""
    count = len(plan.SHARE_MEMBERS)

    def started(at_ms: int, member: int) -> PlannedOperation:
        return PlannedOperation(at_ms, plan.START_MEMBER, member, random.below(WAYS_COUNT))

    operations = [started(random.below(START_MS_MAX), member) for member in range(count)]
    operations.sort(key=lambda operation: operation.at_ms)
    down: set[int] = set()
    at_ms = between(random, *PAUSE_MS)
    while at_ms < end_ms:
        member, verb, amount = random.below(count), VERBS[random.below(len(VERBS))], random.below(PICKS)
        if verb == plan.START_MEMBER or (member in down and verb not in plan.SHARE_ADMIN_VERBS):
            operations.append(started(at_ms, member))
            down.discard(member)
        else:
            amount = between(random, *CUT_MS) if verb == plan.CUT_OFF_MEMBER else amount
            operations.append(PlannedOperation(at_ms, verb, member, amount))
        if verb in (plan.END_MEMBER, plan.KILL_MEMBER) and operations[-1].verb == verb:
            down.add(member)
        at_ms += between(random, *PAUSE_MS)
    return tuple(operations)


def draw_share_faults(random: NamedRandom, duration_ms: int, lane: int) -> Iterator[Fault]:
    """Draw crashes and pauses of leaders and share coordinators, each of which waits for a drawn moment. `lane` is the
    number of the sequence of faults, in which no two overlap."""
    for at_ms in sorted(random.below(duration_ms) for _ in range(1 + duration_ms // FAULT_PERIOD_MS)):
        kind = KINDS[random.below(len(KINDS))]
        yield Fault(
            at_ms=at_ms,
            kind=kind,
            lane=lane,
            role=plan.SHARE_ROLES[random.below(len(plan.SHARE_ROLES))],
            pick=random.below(PICKS),
            back_ms=0 if kind in (plan.PAUSE, plan.CLEAN_STOP) else between(random, *DOWN_MS),
            duration_ms=between(random, *PAUSED_MS) if kind == plan.PAUSE else 0,
        )
