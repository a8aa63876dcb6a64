"""Tests of faults that overlap in time: each ends only what it began, and none makes a run without a bug fail."""

from __future__ import annotations

import pytest
import trio

from kraft.sim.check.observations import Observation, Restarted
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import ClusterShape, host_name
from kraft.sim.nemesis import faults
from kraft.sim.nemesis.disturbances import Disturbances
from kraft.sim.nemesis.faults import Nemesis
from kraft.sim.nemesis.plan import (
    BLACKOUT,
    CLEAN_STOP,
    DIRECTORY,
    OVERRIDES,
    PLAIN,
    SEND,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.run.run import RunResult, run_plan
from tests.stages.checked_cluster import play, wait_whole

WORK = {PLAIN: tuple(PlannedOperation(at_ms, SEND, at_ms % 3, 0) for at_ms in range(0, 5_000, 5))}
TWO_DIRECTORIES = ClusterShape(overrides={**OVERRIDES, "log.flush.interval.messages": "1"}, log_dirs=2)


def carry_out(*faults: Fault, duration_ms: int = 8_000, shape: ClusterShape | None = None) -> RunResult:
    shape = shape or ClusterShape(overrides=OVERRIDES)
    plan = Plan(seed=5, duration_ms=duration_ms, faults=faults, work=WORK, shape=shape, ends_early=True)
    return run_plan(plan)


PAUSE = Fault(at_ms=500, kind="pause", lane=1, node=2, duration_ms=6_000)
FULL = Fault(at_ms=500, kind="full disk", lane=1, node=2, duration_ms=1_500, back_ms=300)
FAILING = Fault(at_ms=500, kind=DIRECTORY, lane=1, node=2, duration_ms=2_500, back_ms=300)
EMPTY = Fault(at_ms=600, kind="empty disk", lane=3, node=2, back_ms=50)


def test_a_paused_node_stays_excused_when_a_shorter_overlapping_fault_ends() -> None:
    cut = Fault(at_ms=600, kind="cut one way", lane=3, node=101, other=102, duration_ms=100)
    assert not carry_out(PAUSE, cut).findings


@pytest.mark.parametrize(
    ("first", "second", "shape"),
    [
        (FULL, Fault(at_ms=600, kind="failing sync", lane=3, node=2, duration_ms=50, back_ms=50), None),
        (FULL, Fault(at_ms=600, kind="full disk", lane=3, node=2, duration_ms=50, back_ms=50), None),
        (FULL, EMPTY, None),
        (FAILING, EMPTY, TWO_DIRECTORIES),
        (FAILING, Fault(at_ms=600, kind="kill", lane=3, node=2, back_ms=50), TWO_DIRECTORIES),
        (FAILING, Fault(at_ms=600, kind=BLACKOUT, lane=3, back_ms=50), TWO_DIRECTORIES),
    ],
)
def test_a_node_with_a_failing_disk_is_not_crashed_by_another_fault(
    first: Fault, second: Fault, shape: ClusterShape | None
) -> None:
    result = carry_out(first, second, duration_ms=4_000, shape=shape)
    assert not result.findings, result.findings[0]
    assert all("node 2," not in line or int(line.split()[0]) > 1_900 for line in result.history), result.history


def cut_and_frozen(*faults: Fault, at_ms: int) -> tuple[list[tuple[int, int]], bool]:
    """Return the ordered links that are cut this long after these faults began, and whether node 2 is frozen."""
    cuts: list[tuple[int, int]] = []
    paused: list[bool] = []

    async def story(cluster: SimCluster) -> None:
        world, nodes = cluster.world, cluster.shape.node_ids
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Disturbances(Nemesis(cluster), faults).run)
            await world.sleep_ms(at_ms)
            cuts.extend((a, b) for a in nodes for b in nodes if a != b and world.is_cut(host_name(a), host_name(b)))
            paused.append(world.is_paused(host_name(2)))

    assert not play(story)
    return cuts, paused[0]


CUT = Fault(at_ms=0, kind="cut", lane=1, node=1, other=2, duration_ms=1_000)


def test_the_end_of_one_link_cut_does_not_end_other_cuts() -> None:
    short = Fault(at_ms=100, kind="cut one way", lane=3, node=101, other=3, duration_ms=200)
    assert cut_and_frozen(CUT, short, at_ms=200) == ([(101, 3), (1, 2), (2, 1)], False)
    assert cut_and_frozen(CUT, short, at_ms=600) == ([(1, 2), (2, 1)], False)
    assert cut_and_frozen(CUT, short, at_ms=1_100) == ([], False)


def test_a_link_that_is_cut_already_is_not_cut_again() -> None:
    isolated = Fault(at_ms=100, kind="isolate", lane=3, node=2, duration_ms=200)
    assert cut_and_frozen(CUT, isolated, at_ms=200) == ([(1, 2), (2, 1)], False)
    cuts, _ = cut_and_frozen(isolated, at_ms=200)
    assert len(cuts) == 10
    assert cut_and_frozen(isolated, at_ms=400) == ([], False)


def test_a_node_stays_frozen_for_the_duration_of_the_fault() -> None:
    long = Fault(at_ms=0, kind="pause", lane=1, node=2, duration_ms=1_000)
    short = Fault(at_ms=100, kind="pause", lane=3, node=2, duration_ms=100)
    assert cut_and_frozen(long, short, at_ms=500) == ([], True)
    assert cut_and_frozen(long, short, at_ms=1_100) == ([], False)


@pytest.mark.parametrize(
    ("stop_ms_max", "begins_rotten", "ends_rotten", "is_clean"),
    [(5_000, False, False, True), (0, False, False, False), (5_000, True, False, False), (5_000, False, True, False)],
)
def test_a_node_stop_counts_as_clean_only_if_it_ends_in_time_and_no_log_of_the_node_is_corrupt(
    monkeypatch: pytest.MonkeyPatch, stop_ms_max: int, begins_rotten: bool, ends_rotten: bool, is_clean: bool
) -> None:
    """The checks use this result; the controller uses the broker's own report."""
    told: list[bool] = []

    async def story(cluster: SimCluster) -> None:
        tell, stop = cluster.watch.tell, cluster.stop

        def spy(seen: Observation) -> None:
            told.extend([seen.clean] if isinstance(seen, Restarted) else [])
            tell(seen)

        async def stop_meanwhile(node: int, *, timeout_ms: int) -> bool:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(corrupt_or_mend, node)
                return await stop(node, timeout_ms=timeout_ms)

        async def corrupt_or_mend(node: int) -> None:
            await cluster.world.sleep_ms(1)
            (cluster.corrupt.add if ends_rotten else cluster.corrupt.discard)(node)

        monkeypatch.setattr(cluster.watch, "tell", spy)
        monkeypatch.setattr(cluster, "stop", stop_meanwhile)
        monkeypatch.setattr(faults, "STOP_MS_MAX", stop_ms_max)
        if begins_rotten:
            cluster.corrupt.add(2)
        assert await Nemesis(cluster).stop_one(Fault(at_ms=0, kind=CLEAN_STOP, node=2))
        await wait_whole(cluster)

    assert not play(story)
    assert told == [is_clean]
