"""A schedule of faults for a quorum of cores: crashes, power losses, pauses and partitions; then everything is healed,
and the quorum must make progress."""

from __future__ import annotations

from collections.abc import Callable

from kraft.sim.cores.checks import Checks
from kraft.sim.cores.core_alone import CoreAlone
from kraft.sim.cores.driver import Odds
from kraft.sim.cores.schedule import FaultSchedule, Stuck
from kraft.sim.cores.world import World

APPEND_INTERVAL_MS = 15
VOTERS_INTERVAL_MS = 200
VOTERS_CHANGE_ONE_IN = 5
CORE_ALONE_ONE_IN = 3
MINORITY_VOTERS = 2
"""Of so many voters none may be missing."""
HEALED_MS_MAX = 20_000
"""A leader is found, something is committed, and everyone has caught up, each within so much time after the last fault:
a fetch that a cut link has swallowed is missed after two seconds, and its leader may have resigned by then."""
PROGRESS_MS = 3_000
"""Then something is committed in every so much time."""
ALWAYS_SEEN = ("R1", "R3", "R7", "R8", "R9", "R12")
SEEN_WITH_OTHERS = ("R17", "R19")
"""Checks that no run may leave without input."""


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


def changes_voters_in(seed: int) -> bool:
    """Whether voters come and go in the world of this seed."""
    return seed % VOTERS_CHANGE_ONE_IN == VOTERS_CHANGE_ONE_IN - 1


def run_chaos(
    seed: int,
    *,
    voters: int = 3,
    observers: int = 1,
    duration_ms: int = 20_000,
    world: World | None = None,
    changes_voters: bool = False,
) -> World:
    """So much time of faults, then the healed quorum's progress. Raises `Violation` or `Stuck`."""
    world = world or World(seed, voters, observers, odds=odds_of(seed))
    Chaos(world, changes_voters=changes_voters).run(duration_ms)
    return world


class Chaos(FaultSchedule[World]):
    """One fault after the other; half of them hit the leader. `changes_voters`: while voters come and go (KIP-853)."""

    PAUSE_MS = (200, 1500)

    def __init__(self, world: World, *, changes_voters: bool = False) -> None:
        super().__init__(world)
        self._changes_voters = changes_voters

    def _begin(self) -> None:
        self._world.start()
        self._world.append_every(APPEND_INTERVAL_MS)
        if self._changes_voters:
            self._world.change_voters_every(VOTERS_INTERVAL_MS)

    def _victims(self) -> list[int]:
        world = self._world
        return [n for n in world.voters.ids if world.nodes[n].raft is not None]

    def _leader(self) -> int | None:
        leader = self._world.leader
        return None if leader is None else leader.node_id

    # faults

    def _kill(self, victim: int) -> bool:
        return self._crash(victim, power=False)

    def _lose_power(self, victim: int) -> bool:
        return self._crash(victim, power=True)

    def _crash(self, victim: int, *, power: bool) -> bool:
        self._world.kill(victim, power=power)
        self._start_within(800, victim)
        return True

    def _split(self, victim: int) -> bool:
        return self._split_for(4000, tuple(self._world.nodes))

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

    FAULTS = (
        _lose_power,
        _kill,
        _lose_power,
        _kill,
        _lose_power,
        _split,
        _pause,
        _refuse,
        _crash_observer,
        _crash_all,
    )

    # after the faults

    def _has_progress(self) -> Callable[[], bool]:
        """Whether something has been committed since now."""
        before = self._world.committed_end
        return lambda: self._world.committed_end > before

    def _leaves_core_alone(self) -> bool:
        """In one of so many runs, if a minority may be missing. Where voters come and go, it is another question of
        whom a core is a majority."""
        world = self._world
        if self._changes_voters or len(world.voters) <= MINORITY_VOTERS:
            return False
        return not world.chance.below(CORE_ALONE_ONE_IN)

    def _demand_progress(self) -> None:
        """Heal, and demand progress on every node."""
        world = self._world
        world.stop_voter_changes()
        world.odds.loss = 0
        if self._leaves_core_alone():
            alone = CoreAlone(world)
            self.faults.update(f"left {kind.value}" for kind in alone.outside.values())
            alone.demand()
            world.append_every(APPEND_INTERVAL_MS)
        world.heal()
        world.start()
        world.run(max(0, *(node.paused_until - world.now for node in world.nodes.values())))
        if not world.run_until(world.has_active_leader, HEALED_MS_MAX):
            raise Stuck("no leader after healing")
        if not world.run_until(self._has_progress(), HEALED_MS_MAX):
            raise Stuck("no progress after healing")
        goes_on = self._has_progress()
        world.run(PROGRESS_MS)
        if not goes_on():
            raise Stuck("progress ended after healing")
        world.stop_appends()
        if not world.run_until(world.caught_up, HEALED_MS_MAX):
            raise Stuck("not everyone caught up")
        if isinstance(world.checks, Checks):
            needed = ALWAYS_SEEN + SEEN_WITH_OTHERS * (len(world.nodes) > 1)
            unseen = [name for name in needed if not world.checks.counts[name]]
            if unseen:
                raise Stuck(f"nothing was seen for {', '.join(unseen)}")
