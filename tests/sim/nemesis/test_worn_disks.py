"""Tests of worn-out disks: a run tolerates corrupt bytes and failing reads, and checks catch a broker that does not
tolerate them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kraft.broker.partition.repeated_reads import REPEATS_MAX, RepeatedReads
from kraft.sim.check.base import Finding
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.faults import Nemesis
from kraft.sim.nemesis.plan import (
    BIT_ROT,
    BLACKOUT,
    CONSUMER,
    KILL,
    MISDIRECTED,
    OVERRIDES,
    PLAIN,
    POWER_LOSS,
    READ_AGAIN,
    READ_ERROR,
    REREADER,
    ROT_KINDS,
    SEND,
    TOPIC,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.worn_disks import BYTES_MAX, CRC_COVERS, HEADER_FIELDS, Corruption, WornDisks
from kraft.sim.run.run import RunResult, run_plan
from kraft.sim.workload.refusals import OFFERED_MS_MAX, REFUSALS_MAX, Refusals
from kraft.sim.world.filesystem import Inode
from kraft.storage.follower_append import FollowerBatches
from kraft.wire.records import check_crc, iter_headers
from tests.bugbank.originals import plant
from tests.stages.checked_cluster import checks_of, kill_and_settle, play, produce, state_of, wait_whole

WORK = {
    PLAIN: tuple(PlannedOperation(at_ms, SEND, at_ms % 3, 0) for at_ms in range(0, 5_000, 5)),
    CONSUMER: (),
    REREADER: tuple(PlannedOperation(at_ms, READ_AGAIN, at_ms // 100 % 3) for at_ms in range(0, 8_000, 100)),
}


def carry_out(*faults: Fault, duration_ms: int = 6_000, log_dirs: int = 1, seed: int = 5) -> RunResult:
    shape = ClusterShape(overrides=OVERRIDES, log_dirs=log_dirs)
    return run_plan(Plan(seed=seed, duration_ms=duration_ms, faults=faults, work=WORK, shape=shape))


@pytest.mark.parametrize("kind", ROT_KINDS)
@pytest.mark.parametrize("amount", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_tolerates_corrupt_bytes_and_repairs_the_log(amount: int, kind: str) -> None:
    rots = [
        Fault(at_ms=500 + 1_500 * number, kind=kind, node=number + 1, pick=number, duration_ms=1_000, amount=amount)
        for number in range(3)
    ]
    result = carry_out(*rots)
    assert not result.findings, result.findings[0]
    assert result.counters[f"fault: {kind}"] == 3
    assert result.counters["refused"] > 0
    assert result.counters["reread"] > 0
    assert 1 <= result.counters[f"came across: {kind}"] <= 3
    mended = "removed" if amount else "restored"
    assert sum(f"is {mended} meanwhile" in line for line in result.history) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("log_dirs", "seed"), [(1, 5), (2, 3)])
def test_a_run_tolerates_failing_disk_reads(log_dirs: int, seed: int) -> None:
    faults = [
        Fault(at_ms=500 + 2_500 * number, kind=READ_ERROR, node=number + 1, duration_ms=2_000, back_ms=100)
        for number in range(3)
    ]
    result = carry_out(*faults, log_dirs=log_dirs, duration_ms=8_000, seed=seed)
    assert not result.findings, result.findings[0]
    assert result.counters[f"fault: {READ_ERROR}"] == 3
    assert any("log directory is offline" in line for line in result.log_lines), "they were noticed"


async def leader_with_damaged_batch(cluster: SimCluster, kind: str = BIT_ROT) -> Corruption:
    """Run a leader whose log has a corrupt batch that all other replicas have intact."""
    await produce(cluster, 20)
    await wait_whole(cluster)
    worn = WornDisks(Nemesis(cluster))
    rots = (worn.find(Fault(at_ms=pick, kind=kind, node=state_of(cluster).leader, pick=pick)) for pick in range(99))
    rot = next(rot for rot in rots if rot is not None and min(rot.changes) % 100 > CRC_COVERS)
    worn.begin(rot)
    assert worn.find(Fault(at_ms=1, kind=BIT_ROT, node=rot.node)) is None, "one log at a time"
    return rot


async def an_emptied_follower_copies_a_corrupt_leader(cluster: SimCluster, kind: str = BIT_ROT) -> None:
    rot = await leader_with_damaged_batch(cluster, kind)
    follower = next(broker for broker in cluster.shape.broker_ids if broker != rot.node)
    await kill_and_settle(cluster, follower)
    cluster.delete_folder(follower, rot.log)
    cluster.start(follower)
    assert await cluster.wait_until(lambda: follower in state_of(cluster).isr, 15_000)
    cluster.watch.suite.durability.check_log(follower, rot.log, "replica at the end")  # as every run does


def planted(patch: pytest.MonkeyPatch, kind: str) -> list[Finding]:
    original = FollowerBatches.verify

    def twin(data: Any, **settings: Any) -> FollowerBatches:
        """Planted bug: CRCs are not checked, because each is made to fit."""
        copy = bytearray(data)
        for position, header in iter_headers(copy):
            if not check_crc(copy, position, header):
                return FollowerBatches(memoryview(data), list(iter_headers(data)))
        return original(data, **settings)

    def bug() -> None:
        plant(patch, FollowerBatches, "verify", staticmethod(twin))

    return play(partial(an_emptied_follower_copies_a_corrupt_leader, kind=kind), bug=bug)


@pytest.mark.parametrize("kind", ROT_KINDS)
def test_checks_catch_a_follower_that_copies_a_batch_with_a_wrong_crc(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert not play(partial(an_emptied_follower_copies_a_corrupt_leader, kind=kind))
    assert "D1" in checks_of(planted(monkeypatch, kind))


def test_a_misdirected_write_has_another_batchs_bytes_and_a_wrong_crc() -> None:
    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        await wait_whole(cluster)
        worn, sizes = WornDisks(Nemesis(cluster)), set()
        for pick in range(40):
            rot = worn.find(Fault(at_ms=0, kind=MISDIRECTED, node=1, pick=pick))
            assert rot is not None
            before, first = bytes(rot.inode.data), min(rot.changes)
            sizes.add(len(rot.changes))
            rot.set_in()
            after = bytes(rot.inode.data)
            (broken,) = [position for position, header in iter_headers(after) if not check_crc(after, position, header)]
            assert all(broken + CRC_COVERS <= position for position in rot.changes)
            starts = [position for position, _ in iter_headers(before)]
            landed = range(max(broken + CRC_COVERS, first - 8), first + 1)  # a batch begins with its base offset
            assert any(
                all(before[start + position - at] == byte for position, byte in rot.changes.items())
                for at in landed
                for start in starts
            )
            rot.restore()
            assert bytes(rot.inode.data) == before
        assert max(sizes) > BYTES_MAX

    assert not play(story)


@pytest.mark.slow
def test_checks_catch_a_broker_that_serves_a_corrupt_batch_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    rot = Fault(at_ms=500, kind=BIT_ROT, node=1, pick=1, duration_ms=9_000)
    assert not carry_out(rot, duration_ms=10_000).findings
    plant(monkeypatch, RepeatedReads, "is_suspicious", lambda *_: False)
    assert {finding.check for finding in carry_out(rot, duration_ms=10_000).findings} == {"L7"}


def test_a_leader_frozen_between_rejections_of_its_corrupt_batch_is_no_finding() -> None:
    rot = Fault(at_ms=500, kind=BIT_ROT, node=1, pick=2, duration_ms=9_000)
    pause = Fault(at_ms=1_800, kind="pause", node=1, lane=1, duration_ms=4_000)
    result = carry_out(rot, pause, duration_ms=10_000)
    assert not result.findings, result.findings[0]
    assert 3 <= result.counters["refused"] < 2 * REPEATS_MAX, "some came before the pause, and one after it"


WHY = f"CORRUPT_MESSAGE: {TOPIC}-0: the batch at offset 3 fails its CRC-32C"


async def refuse(cluster: SimCluster, refusals: Refusals, times: int) -> None:
    """Let a reader reject the batch this often, and for long enough."""
    for _ in range(times):
        refusals.refused("reader", WHY)
        await cluster.world.sleep_ms(OFFERED_MS_MAX / REFUSALS_MAX + 1)


def refused_in(between: Callable[[SimCluster, Refusals, Corruption], Awaitable[None]]) -> set[str]:
    """Let a reader be served a corrupt batch until its broker should check it, and again after something has happened
    in between. Return the findings."""

    async def story(cluster: SimCluster) -> None:
        rot = await leader_with_damaged_batch(cluster)
        refusals = Refusals(cluster, [rot.log])
        await refuse(cluster, refusals, REFUSALS_MAX)
        await between(cluster, refusals, rot)
        await refuse(cluster, refusals, REFUSALS_MAX)

    return checks_of(play(story))


async def nothing(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    """Do nothing in between: the broker continues to serve the batch."""


async def another_fault_of_its_leader(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    with Nemesis(cluster).fault("slow disk", (rot.node,), "a slow disk"):
        await cluster.world.sleep_ms(10)


async def a_fault_of_another_broker(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    with Nemesis(cluster).fault("slow disk", (rot.node % 3 + 1,), "a slow disk"):
        await cluster.world.sleep_ms(10)


async def a_new_reader(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    refusals.begin("reader")


async def records_at_last(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    refusals.given("reader", {rot.log})


async def records_of_another_partition(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    refusals.given("reader", {(TOPIC, 1)})


async def no_other_replica_in_sync_for_a_while(cluster: SimCluster, refusals: Refusals, rot: Corruption) -> None:
    others = [broker for broker in cluster.shape.broker_ids if broker != rot.node]
    for broker in others:
        await kill_and_settle(cluster, broker)
    for broker in others:
        cluster.start(broker)
    await wait_whole(cluster)


@pytest.mark.parametrize("between", [nothing, a_fault_of_another_broker, records_of_another_partition])
def test_checks_catch_too_many_rejections_by_one_reader(
    between: Callable[[SimCluster, Refusals, Corruption], Awaitable[None]],
) -> None:
    assert refused_in(between) == {"L7"}


@pytest.mark.parametrize(
    "between", [another_fault_of_its_leader, a_new_reader, records_at_last, no_other_replica_in_sync_for_a_while]
)
def test_the_count_of_rejections_by_a_reader_restarts_when_the_broker_restarts_its_count(
    between: Callable[[SimCluster, Refusals, Corruption], Awaitable[None]],
) -> None:
    assert not refused_in(between)


def test_many_rejections_in_a_short_time_are_no_finding_because_the_brokers_check_takes_time() -> None:
    async def story(cluster: SimCluster) -> None:
        rot = await leader_with_damaged_batch(cluster)
        refusals = Refusals(cluster, [rot.log])
        for _ in range(10 * REFUSALS_MAX):
            refusals.refused("reader", WHY)
        assert refusals.count == 10 * REFUSALS_MAX

    assert not play(story)


def test_an_error_response_does_not_count_as_serving_a_corrupt_batch() -> None:
    async def story(cluster: SimCluster) -> None:
        rot = await leader_with_damaged_batch(cluster)
        refusals = Refusals(cluster, [rot.log])
        refusals.refused("reader", f"CORRUPT_MESSAGE: fetching {TOPIC}-0")
        assert not refusals.count

    assert not play(story)


@pytest.mark.slow
def test_a_planned_power_loss_that_exceeds_the_budget_of_damaged_replicas_becomes_a_kill() -> None:
    rot = Fault(at_ms=500, kind=BIT_ROT, node=1, duration_ms=2_000)
    loss = Fault(at_ms=600, kind=POWER_LOSS, node=2, lane=1, back_ms=50)
    result = carry_out(rot, loss, duration_ms=3_000)
    assert not result.findings, result.findings[0]
    assert f"fault: {POWER_LOSS}" not in result.counters
    assert result.counters[f"fault: {KILL}"] == 1
    assert not any(count for (kind, _), count in result.coverage.items() if kind == POWER_LOSS)
    assert any(count for (kind, _), count in result.coverage.items() if kind == KILL)


@pytest.mark.slow
def test_corruption_that_nothing_notices_counts_as_a_fault_without_effect() -> None:
    rot = Fault(at_ms=500, kind=BIT_ROT, node=1, pick=1, duration_ms=500)
    met = carry_out(rot, duration_ms=3_000)
    unmet = run_plan(Plan(seed=5, duration_ms=3_000, faults=(rot,), work={PLAIN: WORK[PLAIN]}))
    for result, times in (met, 1), (unmet, 0):
        assert not result.findings, result.findings[0]
        assert result.counters[f"fault: {BIT_ROT}"] == 1
        assert result.counters.get(f"came across: {BIT_ROT}", 0) == times
        assert any(count for (kind, _), count in result.coverage.items() if kind == BIT_ROT) == bool(times)


def test_the_time_of_a_corruption_does_not_change_its_bytes() -> None:
    """If the time changed the bytes, shrinking a plan by starting its faults sooner would change the fault."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        await wait_whole(cluster)
        worn = WornDisks(Nemesis(cluster))
        rots = [worn.find(Fault(at_ms=at_ms, kind=BIT_ROT, node=1, pick=7)) for at_ms in (0, 500)]
        assert rots[0] == rots[1] != worn.find(Fault(at_ms=0, kind=BIT_ROT, node=1, pick=8))

    assert not play(story)


def test_repairing_a_corrupt_log_does_not_change_truncated_and_rewritten_bytes() -> None:
    inode = Inode()
    inode.append(b"abcdef", 0)
    rot = Corruption(1, (TOPIC, 0), inode, 0, 1, {1: ord("x"), 4: ord("y")})
    rot.set_in()
    inode.truncate(3, 1)
    inode.append(b"zyz", 2)  # which has the corrupt byte's value at that position
    rot.restore()
    assert bytes(inode.data) == b"abczyz"


def test_corruption_changes_only_protected_bytes_and_can_be_restored() -> None:
    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        await wait_whole(cluster)
        worn = WornDisks(Nemesis(cluster))
        kinds: set[bool] = set()
        for pick in range(40):
            rot = worn.find(Fault(at_ms=0, kind=BIT_ROT, node=1, pick=pick))
            assert rot is not None
            before = bytes(rot.inode.data)
            starts = [position for position, _ in iter_headers(before)]
            for position in rot.changes:
                at = position - max(start for start in starts if start <= position)
                assert at in HEADER_FIELDS or at >= CRC_COVERS
                kinds.add(at >= CRC_COVERS)
            rot.set_in()
            assert bytes(rot.inode.data) != before
            rot.restore()
            assert bytes(rot.inode.data) == before
        assert kinds == {True, False}

    assert not play(story)


def test_no_corruption_is_injected_into_a_log_without_another_in_sync_replica() -> None:
    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 5)
        leader = state_of(cluster).leader
        for other in cluster.shape.broker_ids:
            if other != leader:
                await kill_and_settle(cluster, other)
        assert state_of(cluster).isr == (leader,)
        assert WornDisks(Nemesis(cluster)).find(Fault(at_ms=0, kind=BIT_ROT, node=leader)) is None

    assert not play(story)


def test_no_corruption_is_injected_after_a_blackout_until_all_brokers_are_registered_again() -> None:
    """By committed metadata brokers are in sync until they register again. Then those that lost power are removed, and
    the corrupt replica would be the last one."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        await wait_whole(cluster)
        rot = Fault(at_ms=0, kind=BIT_ROT, node=1)
        worn = WornDisks(Nemesis(cluster))
        for node in cluster.shape.node_ids:
            cluster.crash(node, lose_power=True, is_noticed=False)
        for node in cluster.shape.node_ids:
            cluster.start(node)
        assert all(len(state.isr) == 3 for topic in cluster.image.topics for _, state in topic.partitions())
        assert worn.find(rot) is None
        assert not cluster.can_lose(1, with_logs=True)
        await wait_whole(cluster)
        assert worn.find(rot) is not None
        assert cluster.can_lose(1, with_logs=True)

    assert not play(story, overrides={"log.flush.interval.messages": "1"})


@pytest.mark.slow
def test_no_blackout_happens_while_a_log_is_corrupt() -> None:
    """If the last replica that is known to be complete finds its log damaged, an operator must choose the leader."""
    shape = ClusterShape(overrides={**OVERRIDES, "log.flush.interval.messages": "1"})
    faults = (
        Fault(at_ms=500, kind=BIT_ROT, node=1, duration_ms=1_000),
        Fault(at_ms=600, kind=BLACKOUT, lane=1, back_ms=50),
        Fault(at_ms=3_000, kind=BLACKOUT, lane=1, back_ms=50),
    )
    result = run_plan(Plan(seed=5, duration_ms=4_000, faults=faults, work=WORK, shape=shape, ends_early=True))
    assert [line.split(":")[1][:10] for line in result.history] == [" 3 bytes o", " kill of n", " all nodes"]
