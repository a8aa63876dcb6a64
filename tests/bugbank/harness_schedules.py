"""What the simulator and its checks must be able to do: spoiled histories are found, planted bugs do not survive, and
faults do what they are named after. A mutation of the harness makes one of these fail."""

from __future__ import annotations

from kraft.sim.check.groups import CommitBegun, CommitEnded, OffsetRead, group_checks
from kraft.sim.cluster.findings import Report
from kraft.sim.cores.core_alone import CoreAlone, Outside
from kraft.sim.cores.node import Node
from kraft.sim.cores.schedule import Stuck
from kraft.sim.workload import group_work
from kraft.sim.world import World
from kraft.sim.world.world import Deadlock
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.judging import judge
from tests.bugbank.mutation import MUTATIONS, Violation, require
from tests.raft.test_core_alone import left_alone
from tests.raft.test_fast_elections import settled
from tests.sim.check.test_each_check_can_fail import CASES, run
from tests.sim.workload.test_judge import CANARIES, finished
from tests.sim.world import test_links_and_clocks
from tests.stages import world_scenario as scenario

PLACE = ("orders", 0)


def _commits(first: ErrorCode, second: ErrorCode, read: int) -> set[str]:
    """Checks that fire when commits of 4 and of 5 were answered like this, and this offset is read."""
    checks = group_checks()
    story: list[object] = []
    for offset, error in ((4, first), (5, second)):
        outcome = group_work.commit_outcome(error)
        story += [CommitBegun("g", PLACE, 1, offset), CommitEnded("g", PLACE, 1, offset, outcome, 1)]
    for observation in (*story, OffsetRead("g", PLACE, read, 5)):
        checks.observe(observation, 0)
    return {finding.check for finding in checks.findings}


def an_open_outcome(seed: int) -> None:
    """A commit that timed out may have been written: reading it is no fault."""
    fired = _commits(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE, 4)
    require("clean run", not fired, f"{fired} fire on a clean run")


def a_definite_outcome(seed: int) -> None:
    """A commit that was refused must not be read."""
    fired = _commits(ErrorCode.ILLEGAL_GENERATION, ErrorCode.NONE, 4)
    require("canary", "G3" in fired, "a refused commit was read, and nothing fires")


def spoiled_histories(seed: int) -> None:
    """Of a run that was good, one promise is broken at a time, and the final reader's judge must say which."""
    for check, spoil in CANARIES.items():
        workload, final = finished()
        spoil(workload, final)
        workload.judge(final)
        report: Report = workload.cluster.report
        require("canary", check in {one.check for one in report.findings}, f"{check} does not fire")


def every_check_fires(seed: int) -> None:
    """The good history of each check passes it, and the bad one does not."""
    for case, (good, bad) in CASES.items():
        check = case.split(" ")[0]
        require("clean run", check not in {one.check for one in run(good).findings}, f"{case} fires on a good history")
        require("canary", check in {one.check for one in run(good + bad).findings}, f"{case} does not fire")


def no_survivors_of_power_losses(seed: int) -> None:
    """Bugs that only a loss of unsynced bytes exposes are caught by their directed schedules."""
    for mutation in [one for one in MUTATIONS if one.id in ("B21", "B23")]:
        with mutation.planted():
            outcome = judge(mutation.directed, seed)
        require("kill matrix", outcome.is_caught, f"{mutation.id} survives")


def no_survivor_outside_the_core(seed: int) -> None:
    """A pre-vote that raises epochs disturbs a settled quorum only if who asks hears nobody for good. No safety check
    looks."""
    (disruptive,) = [one for one in MUTATIONS if one.id == "B15"]
    alone = _follower_goes_deaf(seed)
    missing = ""
    with disruptive.planted():
        try:
            alone.demand()
        except Stuck as stuck:
            missing = str(stuck)
    require("kill matrix", missing.startswith(("L1", "L2")), "B15 survives")


def _follower_goes_deaf(seed: int) -> CoreAlone:
    """A quorum of which the leader is in the core."""
    for number in range(10):
        alone = left_alone(10 * seed + number, Outside.DEAF)
        if alone.is_led():
            return alone
    raise Violation("clean run", "no leader is in the core")


def what_a_partition_holds(seed: int) -> None:
    """Bytes that were sent into a cut link arrive when it heals."""
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
    """Each world stands where none of those before it stood: all of them are kept."""
    worlds = [World(seed) for _ in range(8)]
    hashes = {world.run(_one_is_isolated) for world in worlds}
    require("N6", len(hashes) == 1, f"one seed, {len(hashes)} runs")


def two_leaders_coexist(seed: int) -> None:
    """An old leader that does not know yet, and the new one: the newest epoch counts."""
    world = settled(seed, 3)
    old = world.leader
    assert old is not None
    world.pause(old.node_id, 20_000)
    leading: list[Node] = []
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
