"""A schedule of faults for a quorum of cores: crashes, power losses, pauses and partitions. Then everything is healed,
and the quorum must make progress.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.sim.cores.checks import CoreChecks
from kraft.sim.cores.core_alone import CoreAlone
from kraft.sim.cores.driver import Odds
from kraft.sim.cores.schedule import FaultSchedule, NoProgressMade
from kraft.sim.cores.world import CoreWorld

APPEND_INTERVAL_MS = 15
VOTERS_INTERVAL_MS = 200
VOTERS_CHANGE_ONE_IN = 5
CORE_ALONE_ONE_IN = 3
MINORITY_VOTERS = 2
"""Maximum number of voters of a quorum in which no voter may be down."""
HEALED_MS_MAX = 20_000
"""Maximum time after the last fault until a leader is found, then until a record is committed, and at the end until all
nodes have caught up. A fetch lost on a cut link times out after two seconds, and its leader may have resigned by then.
"""
PROGRESS_MS = 3_000
"""Time after the first commit on the healed quorum in which a further record must be committed."""
ALWAYS_SEEN = ("R1", "R3", "R7", "R8", "R9", "R12")
SEEN_WITH_OTHERS = ("R17", "R19")
"""Checks that must have input in every run."""


def odds_of(seed: int) -> Odds:
    """Return the odds of faults in the world of this seed."""
    return Odds(
        latency=(1, 1 + seed % 20),
        sync=(1, 1 + seed % 30),
        state_write=(1, 1 + seed % 15),
        loss=seed % 3 * 10,
        snapshot=seed % 4 * 15,
    )


def shape_of(seed: int) -> tuple[int, int]:
    """Return the numbers of voters and observers in the world of this seed."""
    return (3, 5, 3, 1, 4, 2)[seed % 6], seed // 6 % 3


def changes_voters_in(seed: int) -> bool:
    """Return whether voters are added and removed in the world of this seed."""
    return seed % VOTERS_CHANGE_ONE_IN == VOTERS_CHANGE_ONE_IN - 1


def run_chaos(
    seed: int,
    *,
    voters: int = 3,
    observers: int = 1,
    duration_ms: int = 20_000,
    world: CoreWorld | None = None,
    changes_voters: bool = False,
) -> CoreWorld:
    """Inject faults for the given time, then heal the quorum and require progress. Raises `Violation` or
    `NoProgressMade`."""
    world = world or CoreWorld(seed, voters, observers, odds=odds_of(seed))
    CoreChaos(world, changes_voters=changes_voters).run(duration_ms)
    return world


class CoreChaos(FaultSchedule[CoreWorld]):
    """Schedule of faults for a quorum: one fault after the other, half of them at the leader. `changes_voters`: voters
    are added and removed meanwhile (KIP-853)."""

    PAUSE_MS = (200, 1500)

    def __init__(self, world: CoreWorld, *, changes_voters: bool = False) -> None:
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
        """Crash all voters at once, if all are up. Return False for quorums of one or two voters, which never crash
        completely."""
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
        """Return a condition that becomes true when a record has been committed after this call."""
        before = self._world.committed_end
        return lambda: self._world.committed_end > before

    def _leaves_core_alone(self) -> bool:
        """Return whether to test that a majority of the voters makes progress without the other voters. This is done in
        some runs, if a minority may be down. It is not done while voters change, because then the majority is not
        fixed."""
        world = self._world
        if self._changes_voters or len(world.voters) <= MINORITY_VOTERS:
            return False
        return not world.chance.below(CORE_ALONE_ONE_IN)

    def _demand_progress(self) -> None:
        """Heal everything and require progress on every node."""
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
            raise NoProgressMade("no leader after healing")
        if not world.run_until(self._has_progress(), HEALED_MS_MAX):
            raise NoProgressMade("no progress after healing")
        goes_on = self._has_progress()
        world.run(PROGRESS_MS)
        if not goes_on():
            raise NoProgressMade("progress ended after healing")
        world.stop_appends()
        if not world.run_until(world.caught_up, HEALED_MS_MAX):
            raise NoProgressMade("not everyone caught up")
        if isinstance(world.checks, CoreChecks):
            needed = ALWAYS_SEEN + SEEN_WITH_OTHERS * (len(world.nodes) > 1)
            unseen = [name for name in needed if not world.checks.counts[name]]
            if unseen:
                raise NoProgressMade(f"nothing was seen for {', '.join(unseen)}")
