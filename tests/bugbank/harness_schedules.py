"""Requirements on the simulator and its checks: they find broken histories, no planted bug survives, and faults have
the effect that their names say. A mutation of the harness makes one of these requirements fail.
"""

from __future__ import annotations

from kraft.sim.check.groups import CommitEnded, CommitStarted, OffsetRead, group_checks
from kraft.sim.cluster.findings import Report
from kraft.sim.cores.core_alone import CoreAlone, OutsideFault
from kraft.sim.cores.node import CoreNode
from kraft.sim.cores.schedule import NoProgressMade
from kraft.sim.workload import group_work
from kraft.sim.world import World
from kraft.sim.world.world import Deadlock
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.judging import judge
from tests.bugbank.mutation import MUTATIONS, Violation, require
from tests.raft.test_fast_elections import settled
from tests.raft.test_majority_without_the_others import left_alone
from tests.sim.check.test_each_check_can_fail import CASES, run
from tests.sim.workload.test_final_reader import CANARIES, finished
from tests.sim.world import test_links_and_clocks
from tests.stages import world_scenario as scenario

PLACE = ("orders", 0)


def _commits(first: ErrorCode, second: ErrorCode, read: int) -> set[str]:
    """Return the checks that fail if commits of offsets 4 and 5 got these responses, and this offset is read
    afterwards."""
    checks = group_checks()
    story: list[object] = []
    for offset, error in ((4, first), (5, second)):
        outcome = group_work.commit_outcome(error)
        story += [CommitStarted("g", PLACE, 1, offset), CommitEnded("g", PLACE, 1, offset, outcome, 1)]
    for observation in (*story, OffsetRead("g", PLACE, read, 5)):
        checks.observe(observation, 0)
    return {finding.check for finding in checks.findings}


def an_open_outcome(seed: int) -> None:
    """Let a commit time out, so that its offset may have been written: a later read of the offset is correct."""
    fired = _commits(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE, 4)
    require("clean run", not fired, f"{fired} fire on a clean run")


def a_definite_outcome(seed: int) -> None:
    """Reject a commit: a later read of its offset is wrong."""
    fired = _commits(ErrorCode.ILLEGAL_GENERATION, ErrorCode.NONE, 4)
    require("canary", "G3" in fired, "a refused commit was read, and nothing fires")


def spoiled_histories(seed: int) -> None:
    """Break one guarantee at a time in the history of a good run. The check of the history must name this guarantee."""
    for check, spoil in CANARIES.items():
        workload, final = finished()
        spoil(workload, final)
        workload.judge(final)
        report: Report = workload.cluster.report
        require("canary", check in {one.check for one in report.findings}, f"{check} does not fire")


def every_check_fires(seed: int) -> None:
    """Give each check a good history, which it must accept, and a bad one, which it must reject."""
    for case, (good, bad) in CASES.items():
        check = case.split(" ")[0]
        require("clean run", check not in {one.check for one in run(good).findings}, f"{case} fires on a good history")
        require("canary", check in {one.check for one in run(good + bad).findings}, f"{case} does not fire")


def no_survivors_of_power_losses(seed: int) -> None:
    """Plant bugs that only a loss of unsynced bytes exposes. Their directed schedules must catch them."""
    for mutation in [one for one in MUTATIONS if one.id in ("B21", "B23")]:
        with mutation.planted():
            outcome = judge(mutation.directed, seed)
        require("kill matrix", outcome.is_caught, f"{mutation.id} survives")


def no_survivor_outside_the_core(seed: int) -> None:
    """Plant a pre-vote that raises epochs. It disturbs a working quorum only if the candidate never receives a message,
    and no safety check detects that."""
    (disruptive,) = [one for one in MUTATIONS if one.id == "B15"]
    alone = _follower_goes_deaf(seed)
    missing = ""
    with disruptive.planted():
        try:
            alone.demand()
        except NoProgressMade as stuck:
            missing = str(stuck)
    require("kill matrix", missing.startswith(("L1", "L2")), "B15 survives")


def _follower_goes_deaf(seed: int) -> CoreAlone:
    """Return a run in which one voter receives no messages, and the leader is one of the other voters."""
    for number in range(10):
        alone = left_alone(10 * seed + number, OutsideFault.DEAF)
        if alone.is_led():
            return alone
    raise Violation("clean run", "no leader is in the core")


def what_a_partition_holds(seed: int) -> None:
    """Send bytes over a cut link. They must arrive when the link heals."""
    try:
        test_links_and_clocks.test_a_partition_holds_bytes_and_delivers_them_in_order_after_it_heals()
    except (AssertionError, BaseExceptionGroup, Deadlock) as error:
        raise Violation("kill matrix", "nothing is delivered late") from error


def the_same_seed_twice(seed: int) -> None:
    hashes = {World(seed).run(scenario.main) for _ in range(2)}
    require("N6", len(hashes) == 1, f"one seed, two runs: {hashes}")


async def _one_is_isolated(world: World) -> str:
    names = [f"node-{number}" for number in range(1, 8)]
    for name in names:
        world.start(name, scenario.serve)
    await world.sleep_ms(10)
    world.isolate(names[0])
    return world.trace_hash


def the_same_seed_on_other_heaps(seed: int) -> None:
    """Run the same seed in worlds with different memory addresses: all earlier worlds are kept, so no address is
    reused."""
    worlds = [World(seed) for _ in range(8)]
    hashes = {world.run(_one_is_isolated) for world in worlds}
    require("N6", len(hashes) == 1, f"one seed, {len(hashes)} runs")


def two_leaders_coexist(seed: int) -> None:
    """Let a replaced leader that has not noticed its replacement exist beside the new leader. The newest epoch
    counts."""
    world = settled(seed, 3)
    old = world.leader
    assert old is not None
    world.pause(old.node_id, 20_000)
    leading: list[CoreNode] = []
    for _ in range(1_000):
        world.run(10)
        leading = [node for node in world.nodes.values() if node.raft is not None and node.raft.is_leader]
        if len(leading) == 2:
            break
    require("canary", len(leading) == 2, "no two leaders coexist")
    newest = max(node.raft.epoch for node in leading if node.raft is not None)
    seen = world.leader
    is_newest = seen is not None and seen.raft is not None and seen.raft.epoch == newest
    require("X10", is_newest, "the checks look at the leader of the older epoch")
