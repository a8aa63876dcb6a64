"""Draws the operations of the optional clients, and redirects most records to one partition (the hot partition). Each
client has a separate random stream, so that all other draws are the same with and without the client.

The cost of a run is its number of requests, so each client has a maximum number of operations besides the run's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.drawn_mixed_group import draw_mixed_group
from kraft.sim.nemesis.drawn_share_group import draw_share_group
from kraft.sim.nemesis.drawn_transactions import draw_transactions
from kraft.sim.nemesis.plan import PlannedOperation
from kraft.sim.world.chance import NamedRandom, between

SMALL_TOPICS_COUNT = (12, 24)
SMALL_RECORDS = (1, 4)
SMALL_TOPICS_BEGIN_MS_MAX = 2_000
SMALL_VALUE_BYTES_MAX = 60
CLOSED_LOOP_PERIOD_MS = (2_000, 12_000)
"""Period in ms in which the closed-loop producer runs once."""
CLOSED_LOOP_RECORDS = (4, 24)
"""Number of records that one run of the closed-loop producer sends; each is sent as soon as the one before is answered.
"""
CONFIG_PAUSE_MS = (500, 5_000)
ELECTION_PAUSE_MS = (500, 5_000)
RETENTION_PAUSE_MS = (500, 4_000)
GROUP_PAUSE_MS = (1_000, 6_000)
"""Pause between two events of the consumer group's members."""
PICKS = 1_000
"""Number of values of a draw that selects one of the objects that exist when the operation is carried out."""
DELETE_CONFIG_ONE_IN = 3
WAYS_COUNT = 4
"""Number of ways in which group members commit. The amount of a start operation modulo this selects one; the quotient
selects the assignor."""
HEAT = 4
"""One burst in this many does not go to the hot partition, which gets all other bursts."""

Work = tuple[PlannedOperation, ...]


def heated(random: NamedRandom, work: Mapping[str, Work]) -> dict[str, Work]:
    """Return the same bursts of producers, most of them redirected to one partition."""
    hot = random.below(plan.PARTITIONS)
    return {client: _to_one_partition(random, operations, hot) for client, operations in work.items()}


def _to_one_partition(random: NamedRandom, operations: Work, hot: int) -> Work:
    moved: list[PlannedOperation] = []
    at_ms, is_hot = -1, False
    for each in operations:
        if each.at_ms != at_ms:
            at_ms, is_hot = each.at_ms, not random.one_in(HEAT)
        moved.append(PlannedOperation(each.at_ms, each.verb, hot if is_hot else each.target, each.amount))
    return tuple(moved)


def _draw_small_topics(random: NamedRandom, end_ms: int) -> Work:
    """Draw the operations of the client of small topics: it creates all topics together, and then sends records to
    each, in random order."""
    count, begin_ms = between(random, *SMALL_TOPICS_COUNT), random.below(SMALL_TOPICS_BEGIN_MS_MAX)
    created = [PlannedOperation(begin_ms, plan.CREATE_SMALL, topic, random.below(PICKS)) for topic in range(count)]
    sends = [
        PlannedOperation(begin_ms + random.below(end_ms), plan.SEND, topic, random.below(SMALL_VALUE_BYTES_MAX))
        for topic in range(count)
        for _ in range(between(random, *SMALL_RECORDS))
    ]
    return (*created, *sorted(sends, key=lambda send: send.at_ms))


def _draw_closed_loop(random: NamedRandom, end_ms: int) -> Work:
    operations: list[PlannedOperation] = []
    at_ms = random.below(CLOSED_LOOP_PERIOD_MS[0])
    while at_ms < end_ms:
        target = random.below(plan.PARTITIONS)
        operations += [PlannedOperation(at_ms, plan.SEND, target)] * between(random, *CLOSED_LOOP_RECORDS)
        at_ms += between(random, *CLOSED_LOOP_PERIOD_MS)
    return tuple(operations)


def paused_times(random: NamedRandom, pause_ms: tuple[int, int], end_ms: int) -> Iterator[int]:
    """Yield the times of a client's operations, with a random pause before each. A pause is drawn only when the
    previous time has been used."""
    at_ms = between(random, *pause_ms)
    while at_ms < end_ms:
        yield at_ms
        at_ms += between(random, *pause_ms)


def _draw_configurations(random: NamedRandom, end_ms: int) -> Work:
    def verb() -> str:
        return plan.DELETE_BROKER_CONFIG if random.one_in(DELETE_CONFIG_ONE_IN) else plan.SET_BROKER_CONFIG

    times = paused_times(random, CONFIG_PAUSE_MS, end_ms)
    return tuple(PlannedOperation(at_ms, verb(), random.below(PICKS), random.below(PICKS)) for at_ms in times)


def _draw_elections(random: NamedRandom, end_ms: int) -> Work:
    times = paused_times(random, ELECTION_PAUSE_MS, end_ms)
    return tuple(PlannedOperation(at_ms, plan.ELECT_PREFERRED, random.below(PICKS)) for at_ms in times)


def _draw_retention(random: NamedRandom, end_ms: int) -> Work:
    times = paused_times(random, RETENTION_PAUSE_MS, end_ms)
    return tuple(
        PlannedOperation(at_ms, plan.SET_RETENTION, random.below(PICKS), random.below(PICKS)) for at_ms in times
    )


def _draw_consumer_group(random: NamedRandom, end_ms: int) -> Work:
    """Draw the operations of the consumer group. All members start, with one assignor; then events happen one at a
    time, each to one member. The next event of a member that is down starts it again."""
    count, assignor = len(plan.CONSUMERS), random.below(PICKS)

    def started(at_ms: int, member: int) -> PlannedOperation:
        return PlannedOperation(at_ms, plan.START_MEMBER, member, WAYS_COUNT * assignor + random.below(WAYS_COUNT))

    operations = [started(random.below(GROUP_PAUSE_MS[0]), member) for member in range(count)]
    operations.sort(key=lambda operation: operation.at_ms)
    down: set[int] = set()
    for at_ms in paused_times(random, GROUP_PAUSE_MS, end_ms):
        member, verb = random.below(count), plan.GROUP_VERBS[random.below(len(plan.GROUP_VERBS))]
        if verb == plan.START_MEMBER or member in down:
            operations.append(started(at_ms, member))
            down.discard(member)
            continue
        operations.append(PlannedOperation(at_ms, verb, member))
        if verb in (plan.END_MEMBER, plan.KILL_MEMBER):
            down.add(member)
    return tuple(operations)


RARE_CLIENTS: Mapping[str, Callable[[NamedRandom, int], Work]] = MappingProxyType(
    {
        plan.SMALL_TOPICS: _draw_small_topics,
        plan.CLOSED_LOOP: _draw_closed_loop,
        plan.CONFIGURER: _draw_configurations,
        plan.ELECTOR: _draw_elections,
        plan.RETAINER: _draw_retention,
        plan.CONSUMER_GROUP: _draw_consumer_group,
        plan.TRANSACTOR: draw_transactions,
        plan.MIXED_GROUP: draw_mixed_group,
        plan.SHARE_GROUP: draw_share_group,
    }
)
"""Optional client → function that draws its work, from its stream and an end time."""
