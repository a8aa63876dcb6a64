"""A schedule of faults for the replicas of a partition.

Faults are kills, power losses, clean stops, pauses, network partitions, and changes of the controller. Then everything
is healed, and all replicas must become in sync and equal.
"""

from __future__ import annotations

from kraft.sim.cores.replicas.checks import ReplicaChecks
from kraft.sim.cores.replicas.core_alone import ReplicasAlone
from kraft.sim.cores.replicas.links import ReplicaOdds
from kraft.sim.cores.replicas.witness import ReplicaWitness
from kraft.sim.cores.replicas.world import ReplicaSettings, ReplicaWorld
from kraft.sim.cores.schedule import FaultSchedule, NoProgressMade

WRITE_INTERVAL_MS = 8
CORE_ALONE_ONE_IN = 3
HEALED_MS_MAX = 20_000
"""Maximum time after the last fault until all replicas are in sync, and then until their logs are equal."""
PROGRESS_MS = 1_000
"""Maximum time without faults in which a batch must be acknowledged."""
ALWAYS_SEEN = ("D2", "D3", "D4", "D5", "D6", "D8", "D11", "K7", "M3", "M5", "M6", "M7", "M9")
"""Checks that must have input in every run."""


def replica_odds_of(seed: int) -> ReplicaOdds:
    """Return the odds of faults in the world of this seed."""
    return ReplicaOdds(
        latency=(1, 1 + seed % 11),
        sync=(1, 1 + seed % 40),
        commit=(1, 1 + seed % 17),
        loss=seed % 4 * 5,
        twice=seed % 3 * 10,
        trim=seed % 2 * 30,
        waits_for_disk=seed % 5 == 0,
    )


def replica_shape_of(seed: int) -> tuple[int, int]:
    """Return the number of replicas in the world of this seed, and min.insync.replicas."""
    return ((3, 2), (3, 1), (5, 3), (4, 2), (2, 1), (1, 1), (3, 2), (2, 2))[seed % 8]


def world_of(seed: int, witness: ReplicaWitness | None = None) -> ReplicaWorld:
    """Return the world of this seed, with all checks by default."""
    replicas, min_isr = replica_shape_of(seed)
    settings = ReplicaSettings(min_isr=min_isr, lag_ms_max=400 + seed % 3 * 300)
    return ReplicaWorld(
        seed,
        replicas,
        odds=replica_odds_of(seed),
        settings=settings,
        witness=ReplicaChecks() if witness is None else witness,
    )


class ReplicaChaos(FaultSchedule[ReplicaWorld]):
    """Schedule of faults for the replicas of a partition: one fault after the other, half of them at the leader."""

    PAUSE_MS = (50, 700)

    def _begin(self) -> None:
        self._world.controller.start()
        self._world.start()
        self._world.write_every(WRITE_INTERVAL_MS)

    def _victims(self) -> list[int]:
        return [one for one, broker in self._world.brokers.items() if broker.is_up]

    def _leader(self) -> int | None:
        leader = self._world.state.leader
        return leader if leader in self._victims() else None

    # faults

    def _kill(self, victim: int) -> bool:
        self._world.kill(victim)
        self._start_within(1500, victim)
        return True

    def _lose_power(self, victim: int) -> bool:
        self._world.lose_power(victim)
        self._start_within(1500, victim)
        return True

    def _stop(self, victim: int) -> bool:
        world = self._world
        world.stop(victim)
        world.at(500 + world.chance.below(1500), world.start, victim)
        return True

    def _pause(self, victim: int) -> bool:
        world = self._world
        world.pause(world.brokers[victim], 1 + world.chance.below(2500))
        return True

    def _split(self, victim: int) -> bool:
        return self._split_for(2000, (0, *self._world.brokers))

    def _mute(self, victim: int) -> bool:
        """Cut some outgoing links of a broker: its messages do not arrive at their targets."""
        world = self._world
        world.cut |= {(victim, one) for one in (0, *world.brokers) if one != victim and world.chance.below(2)}
        world.at(1 + world.chance.below(2000), world.heal)
        return True

    def _fail_over(self, victim: int) -> bool:
        world = self._world
        world.controller.fail_over(1 + world.chance.below(800), keeps_appended=bool(world.chance.below(2)))
        return True

    def _kill_all(self, victim: int) -> bool:
        """Kill all brokers at once; some of them by power loss."""
        world = self._world
        for one in world.brokers:
            if world.chance.below(3):
                world.kill(one)
            else:
                world.lose_power(one)
            self._start_within(600, one)
        return True

    def _flap(self, victim: int) -> bool:
        """Kill a broker and restart it at once."""
        self._world.kill(victim)
        self._start_within(40, victim)
        return True

    FAULTS = (
        _kill,
        _lose_power,
        _lose_power,
        _stop,
        _pause,
        _pause,
        _split,
        _mute,
        _fail_over,
        _kill_all,
        _flap,
    )

    # after the faults

    def _leave_core_alone(self) -> None:
        """Test, in some runs, that the in-sync replicas make progress without one broker, if enough replicas remain."""
        world = self._world
        if len(world.brokers) <= world.settings.min_isr or world.chance.below(CORE_ALONE_ONE_IN):
            return
        alone = ReplicasAlone(world)
        self.faults[f"left {alone.kind.value}"] += 1
        alone.demand()
        world.heal()
        world.start()

    def _demand_progress(self) -> None:
        """Heal everything. Require that all replicas are in sync, that producers are served, and that all logs become
        equal."""
        world = self._world
        world.heal()
        world.odds.loss = world.odds.twice = 0
        world.run(max(0, *(broker.paused_until - world.now for broker in world.brokers.values())))
        for broker in world.brokers.values():
            broker.wants_stop = False
        world.start()
        if not world.run_until(world.is_whole, HEALED_MS_MAX):
            raise NoProgressMade(f"not whole after healing: {world.state}")
        before = world.happened["acknowledged"]
        world.run(PROGRESS_MS)
        if world.happened["acknowledged"] <= before:
            raise NoProgressMade("nothing is acknowledged after healing")
        self._leave_core_alone()
        world.stop_writing()
        if not world.run_until(lambda: world.is_whole() and world.is_equal(), HEALED_MS_MAX):
            raise NoProgressMade("the replicas do not become equal")
        if isinstance(world.witness, ReplicaChecks):
            world.witness.finish(world)
            unseen = [name for name in ALWAYS_SEEN if not world.witness.counts[name]]
            if unseen:
                raise NoProgressMade(f"nothing was seen for {', '.join(unseen)}")
