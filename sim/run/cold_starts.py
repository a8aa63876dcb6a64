"""Cold starts: the number of voting rounds until a new quorum has its first leader.

A round is one epoch with a candidate. Because of random election timeouts, voters that start at the same time rarely
become candidates at the same time. So no start may take more than three rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.world.world import World

ROUNDS_MAX = 3
LED_MS_MAX = 30_000
START_SPREADS_MS = (0, 5, 50)
"""Time ranges within which all voters are started: at the same time, or one after the other as a launcher does."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Result of one cold start. `rounds` is the epoch of the first leader; 0 if there was none in time."""

    seed: int
    voters: int
    rounds: int
    took_ms: int
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return 0 < self.rounds <= ROUNDS_MAX and not self.problems


def cold_start(seed: int, voters: int) -> ColdStart:
    """Start this many voters on empty disks, and wait for the first leader that all of them know."""
    world = World(seed)
    report = Report(lambda: world.now_ns // 1_000_000)
    cluster = SimCluster(world, ClusterShape(controllers=voters, brokers=0), report)

    def is_known() -> bool:
        observers = [cluster.watch.nodes.get(node) for node in cluster.shape.node_ids]
        return cluster.is_led and all(observer is not None and observer.quorum_state()[1] > 0 for observer in observers)

    async def main(world: World) -> int:
        random = world.random.stream("start")
        spread_ms = START_SPREADS_MS[random.below(len(START_SPREADS_MS))]
        for node in cluster.shape.node_ids:
            cluster.start(node)
            await world.sleep_ms(random.below(spread_ms // voters + 1))
        if not await cluster.wait_until(is_known, LED_MS_MAX):
            return 0
        leader = cluster.watch.nodes[cluster.watch.active_controller or 0]
        return leader.quorum_state()[0]

    with report.listening():
        rounds = world.run(main)
    problems = tuple(str(finding) for finding in (*cluster.watch.suite.findings, *report.findings))
    return ColdStart(seed, voters, rounds, world.now_ns // 1_000_000, problems)
