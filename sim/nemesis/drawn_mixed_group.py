"""Draws the operations of the group MIXED_GROUP, and the faults of its coordinator.

The members use the consumer protocol (KIP-848). In half of the runs they begin with the classic protocol, change to the
consumer protocol one after the other, and then change back in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault, PlannedOperation
from kraft.sim.world.chance import NamedRandom, between

PAUSE_MS = (600, 3_500)
"""Minimum and maximum ms between two operations of the group."""
CUT_MS = (500, 9_000)
"""Minimum and maximum ms for which a member is cut off, which is shorter or longer than its session."""
ROLL_MS = (1_000, 2_500)
"""Minimum and maximum ms between two members that change their protocol."""
RESTART_MS = (50, 800)
"""Minimum and maximum ms for which a member that changes its protocol is down."""
PICKS = 1_000
VERBS = (
    plan.START_MEMBER,
    *(plan.END_MEMBER,) * 2,
    *(plan.KILL_MEMBER,) * 3,
    plan.CANCEL_POLL,
    plan.BE_BUSY,
    *(plan.CUT_OFF_MEMBER,) * 2,
    *(plan.CHANGE_SUBSCRIPTION,) * 2,
    *(plan.GROW_TOPIC,) * 2,
    plan.ADD_TOPIC,
    *(plan.SET_GROUP_CONFIG,) * 2,
    *(plan.MOVE_COORDINATOR,) * 2,
)
"""Operations to draw from. An operation that occurs n times is drawn n times as often."""
FAULT_PERIOD_MS = 8_000
"""Average time in ms between two faults that wait for the group's coordinator."""
KINDS = (plan.KILL, plan.KILL, plan.KILL, plan.POWER_LOSS, plan.CLEAN_STOP, plan.PAUSE)
DOWN_MS, PAUSED_MS = (100, 3_000), (100, 6_000)

WAYS_COUNT, SUBSCRIPTIONS_COUNT, ASSIGNORS_COUNT = 4, 4, 3


@dataclass(frozen=True, slots=True)
class MemberChoices:
    """What the amount of a start operation encodes. The numbers select how the member commits, its subscription, and
    its assignor."""

    is_consumer_protocol: bool
    way: int
    subscription: int
    assignor: int

    @property
    def amount(self) -> int:
        number = self.assignor * SUBSCRIPTIONS_COUNT + self.subscription
        return 2 * (number * WAYS_COUNT + self.way) + self.is_consumer_protocol

    @classmethod
    def of(cls, amount: int) -> MemberChoices:
        number, protocol = divmod(amount, 2)
        number, way = divmod(number, WAYS_COUNT)
        number, subscription = divmod(number, SUBSCRIPTIONS_COUNT)
        return cls(bool(protocol), way, subscription, number % ASSIGNORS_COUNT)


class _Draw:
    """The members while the operations are drawn: which are down, and which protocol each uses. The assignor of a
    member with the classic protocol must be that of all, so there is one."""

    def __init__(self, random: NamedRandom, *, is_consumer_protocol: bool) -> None:
        self.random = random
        self.operations: list[PlannedOperation] = []
        self._is_consumer_protocol = [is_consumer_protocol] * len(plan.MIXED_MEMBERS)
        self._strategy = random.below(ASSIGNORS_COUNT)
        self._down: set[int] = set()

    def start(self, at_ms: int, member: int) -> None:
        is_new, random = self._is_consumer_protocol[member], self.random
        way, subscription, wish = (
            random.below(WAYS_COUNT),
            random.below(SUBSCRIPTIONS_COUNT),
            random.below(ASSIGNORS_COUNT),
        )
        choices = MemberChoices(is_new, way, subscription, wish if is_new else self._strategy)
        self.operations.append(PlannedOperation(at_ms, plan.START_MEMBER, member, choices.amount))
        self._down.discard(member)

    def change_protocol(self, at_ms: int, member: int) -> None:
        """Let a member end and start again with the other protocol."""
        self._is_consumer_protocol[member] ^= True
        if member not in self._down:
            self.operations.append(PlannedOperation(at_ms, plan.END_MEMBER, member))
            self.start(at_ms + between(self.random, *RESTART_MS), member)

    def disturb(self, at_ms: int) -> None:
        """Draw one operation. A member that is down starts instead."""
        random = self.random
        member, verb, amount = random.below(len(plan.MIXED_MEMBERS)), VERBS[random.below(len(VERBS))], 0
        if verb == plan.CUT_OFF_MEMBER:
            amount = between(random, *CUT_MS)
        elif verb in (*plan.MIXED_ADMIN_VERBS, plan.CHANGE_SUBSCRIPTION):
            amount = random.below(PICKS)
        if verb in plan.GROUP_VERBS and (verb == plan.START_MEMBER or member in self._down):
            self.start(at_ms, member)
            return
        self.operations.append(PlannedOperation(at_ms, verb, member, amount))
        if verb in (plan.END_MEMBER, plan.KILL_MEMBER):
            self._down.add(member)


def draw_mixed_group(random: NamedRandom, end_ms: int) -> tuple[PlannedOperation, ...]:
    """Draw the operations of the group until `end_ms`. All members start; then operations happen one at a time, with
    the changes of protocol between them."""
    migrates = bool(random.below(2))
    draw = _Draw(random, is_consumer_protocol=not migrates)
    for member in range(len(plan.MIXED_MEMBERS)):
        draw.start(random.below(PAUSE_MS[0]), member)
    draw.operations.sort(key=lambda operation: operation.at_ms)
    changes = _changes(random, end_ms) if migrates else []
    at_ms = between(random, *PAUSE_MS)
    while at_ms < end_ms:
        while changes and changes[0][0] <= at_ms:
            draw.change_protocol(*changes.pop(0))
        draw.disturb(at_ms)
        at_ms += between(random, *PAUSE_MS)
    return tuple(sorted(draw.operations, key=lambda operation: operation.at_ms))


def _changes(random: NamedRandom, end_ms: int) -> list[tuple[int, int]]:
    """Draw when each member changes its protocol: all in one third of the run, and back in another."""
    found = []
    for third in (1, 2):
        at_ms = end_ms * third // 3 + random.below(PAUSE_MS[1])
        for member in range(len(plan.MIXED_MEMBERS)):
            found.append((at_ms, member))
            at_ms += between(random, *ROLL_MS)
    return sorted(found)


def draw_coordinator_faults(random: NamedRandom, duration_ms: int, lane: int) -> Iterator[Fault]:
    """Draw crashes and pauses of the group's coordinator, each of which waits for a drawn moment. `lane` is the number
    of the sequence of faults, in which no two overlap."""
    for at_ms in sorted(random.below(duration_ms) for _ in range(1 + duration_ms // FAULT_PERIOD_MS)):
        kind = KINDS[random.below(len(KINDS))]
        yield Fault(
            at_ms=at_ms,
            kind=kind,
            lane=lane,
            role=plan.GROUP_ROLES[random.below(len(plan.GROUP_ROLES))],
            pick=random.below(PICKS),
            back_ms=0 if kind in (plan.PAUSE, plan.CLEAN_STOP) else between(random, *DOWN_MS),
            duration_ms=between(random, *PAUSED_MS) if kind == plan.PAUSE else 0,
        )
