"""A schedule of faults for a quorum of cores: crashes, power losses, pauses and partitions; then everything is healed,
and the quorum must make progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kraft.sim.cores.checks import Checks
from kraft.sim.cores.driver import Odds
from kraft.sim.cores.world import World

APPEND_INTERVAL_MS = 15
HEALED_MS_MAX = 20_000
"""A leader is found, and everyone has caught up, within so much time after the last fault."""
PROGRESS_MS = 3_000
"""Something is committed in every so much time without faults."""
ALWAYS_SEEN = ("R1", "R3", "R7", "R8", "R9", "R12")
SEEN_WITH_OTHERS = ("R17", "R19")
"""Checks that no run may leave without input."""


class Stuck(AssertionError):
    """What must happen has not happened."""


def odds_of(seed: int) -> Odds:
    """How hard the world of this seed is."""
    return Odds(
        latency=(1, 1 + seed % 20),
        sync=(1, 1 + seed % 30),
        state_write=(1, 1 + seed % 15),
        loss=seed % 3 * 10,
        snapshot=seed % 4 * 15,
    )


def shape_of(seed: int) -> tuple[int, int]:
    """How many voters and observers the world of this seed has."""
    return (3, 5, 3, 1, 4, 2)[seed % 6], seed // 6 % 3


def run_chaos(
    seed: int, *, voters: int = 3, observers: int = 1, duration_ms: int = 20_000, world: World | None = None
) -> World:
    """So much time of faults, then the healed quorum's progress. Raises `Violation` or `Stuck`."""
    world = world or World(seed, voters, observers, odds=odds_of(seed))
    Chaos(world).run(duration_ms)
    return world


class Chaos:
    """One fault after the other; half of them hit the leader."""

    def __init__(self, world: World) -> None:
        self.faults: Counter[str] = Counter()
        self._world = world
        self._is_over = False

    def run(self, duration_ms: int) -> None:
        world = self._world
        world.start()
        world.append_every(APPEND_INTERVAL_MS)
        world.at(300, self._fault)
        world.run(duration_ms)
        self._is_over = True
        self._demand_progress()

    # faults

    def _fault(self) -> None:
        if self._is_over:
            return
        world, chance = self._world, self._world.chance
        up = [n for n in world.voters.ids if world.nodes[n].raft is not None]
        fault = _FAULTS[chance.below(len(_FAULTS))]
        victim = up[chance.below(len(up))] if up else 1
        leader = world.leader
        if leader is not None and chance.below(2):
            victim = leader.node_id
        if fault(self, victim):
            self.faults[fault.__name__.removeprefix("_")] += 1
        world.at(200 + chance.below(1500), self._fault)

    def _kill(self, victim: int) -> bool:
        return self._crash(victim, power=False)

    def _lose_power(self, victim: int) -> bool:
        return self._crash(victim, power=True)

    def _crash(self, victim: int, *, power: bool) -> bool:
        self._world.kill(victim, power=power)
        self._start_within(800, victim)
        return True

    def _start_within(self, limit_ms: int, node_id: int) -> None:
        self._world.at(1 + self._world.chance.below(limit_ms), self._world.start, node_id)

    def _split(self, victim: int) -> bool:
        world = self._world
        group = tuple(n for n in world.nodes if world.chance.below(2))
        world.partition(group, tuple(n for n in world.nodes if n not in group))
        world.at(1 + world.chance.below(4000), world.heal)
        return True

    def _pause(self, victim: int) -> bool:
        self._world.pause(victim, self._world.chance.below(4000))
        return True

    def _refuse(self, victim: int) -> bool:
        world = self._world
        world.refused.add((victim, 1 + world.chance.below(len(world.nodes))))
        world.at(world.chance.below(1500), world.heal)
        return True

    def _crash_observer(self, victim: int) -> bool:
        world, voters = self._world, len(self._world.voters)
        if len(world.nodes) == voters:
            return False
        observer = voters + 1 + world.chance.below(len(world.nodes) - voters)
        world.kill(observer, power=True)
        self._start_within(500, observer)
        return True

    def _crash_all(self, victim: int) -> bool:
        """All voters at once, if all are up; a minority of them must be able to be down."""
        world = self._world
        if len(world.voters) <= 2 or any(world.nodes[n].raft is None for n in world.voters.ids):
            return False
        for node_id in world.voters.ids:
            world.kill(node_id, power=bool(world.chance.below(2)))
            self._start_within(300, node_id)
        return True

    # after the faults

    def _demand_progress(self) -> None:
        """Heal, and demand progress on every node."""
        world = self._world
        world.heal()
        world.odds.loss = 0
        world.start()
        world.run(max(0, *(node.paused_until - world.now for node in world.nodes.values())))
        if not world.run_until(world.has_active_leader, HEALED_MS_MAX):
            raise Stuck("no leader after healing")
        before = world.committed_end
        world.run(PROGRESS_MS)
        if world.committed_end <= before:
            raise Stuck("no progress after healing")
        world.stop_appends()
        if not world.run_until(world.caught_up, HEALED_MS_MAX):
            raise Stuck("not everyone caught up")
        if isinstance(world.checks, Checks):
            needed = ALWAYS_SEEN + SEEN_WITH_OTHERS * (len(world.nodes) > 1)
            unseen = [name for name in needed if not world.checks.counts[name]]
            if unseen:
                raise Stuck(f"nothing was seen for {', '.join(unseen)}")


_FAULTS: tuple[Callable[[Chaos, int], bool], ...] = (
    Chaos._lose_power,
    Chaos._kill,
    Chaos._lose_power,
    Chaos._kill,
    Chaos._lose_power,
    Chaos._split,
    Chaos._pause,
    Chaos._refuse,
    Chaos._crash_observer,
    Chaos._crash_all,
)
"""What is drawn from: a fault that stands here twice is twice as frequent."""
