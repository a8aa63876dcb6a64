"""Tests of random reassignments while brokers and the controller crash and producers write. No acknowledged record is
lost, every reassignment completes, and all checks pass.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.client import Consumer, Producer
from kraft.client.admin import Admin, NewTopic
from kraft.client.core.records import KafkaError
from kraft.control.partitions import partition_change
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.workload.reassign_work import Mover
from kraft.sim.world import World
from tests.stages.admin_client import SETTINGS

UP_MS_MAX = 10_000
WELL_MS_MAX = 40_000
CRASHES = 5
PARTITIONS = 3


class Moves:
    """One run with random reassignments."""

    def __init__(self, seed: int, log_dirs: int) -> None:
        self.world = World(seed)
        self.report = Report(lambda: self.world.now_ns // 1_000_000)
        settings = {**SETTINGS, "min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}
        self.cluster = SimCluster(self.world, ClusterShape(1, 4, settings, log_dirs=log_dirs), self.report)
        self.sent: dict[int, set[int]] = {at: set() for at in range(PARTITIONS)}
        self.mover = Mover(self.cluster)
        self.is_over = False

    @property
    def servers(self) -> str:
        return self.cluster.shape.bootstrap_servers

    async def main(self, world: World) -> None:
        cluster = self.cluster
        cluster.start_all()
        assert await cluster.wait_until(lambda: not cluster.trouble(), UP_MS_MAX), cluster.trouble()
        async with Admin(bootstrap_servers=self.servers, timeout_ms=30_000, seam=world.node("admin")) as admin:
            await admin.topics.create(NewTopic("t", PARTITIONS, 3))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.mover.run)
                async with trio.open_nursery() as writers:
                    for at in range(PARTITIONS):
                        writers.start_soon(self.write, at)
                    await self.crash_at_random()
                    self.is_over = True
                nursery.cancel_scope.cancel()
            assert await cluster.wait_until(lambda: not cluster.trouble(), WELL_MS_MAX), cluster.trouble()
            assert await admin.partitions.reassignments() == {}
        for at, sent in self.sent.items():
            assert await self.read(at) >= sent
            assert sent

    async def crash_at_random(self) -> None:
        cluster, random = self.cluster, self.world.random.stream("crashes")
        for _ in range(CRASHES):
            await self.world.sleep_ms(500 + random.below(2_000))
            node = cluster.shape.node_ids[random.below(len(cluster.shape.node_ids))]
            if node in cluster.shape.broker_ids and not cluster.can_lose(node):
                continue
            cluster.crash(node, lose_power=not random.below(3), is_noticed=False)
            await self.world.sleep_ms(random.below(2_000))
            cluster.start(node)
            await cluster.wait_until(lambda at=node: cluster.is_in_sync(at), WELL_MS_MAX)

    async def write(self, at: int) -> None:
        number = 0
        async with Producer(bootstrap_servers=self.servers, seam=self.world.node(f"producer-{at}")) as producer:
            while not self.is_over:
                try:
                    await producer.send("t", b"%d" % number, partition=at)
                except KafkaError:
                    await self.world.sleep_ms(100)
                else:
                    self.sent[at].add(number)
                number += 1
                await self.world.sleep_ms(10)

    async def read(self, at: int) -> set[int]:
        settings = {"bootstrap_servers": self.servers, "auto_offset_reset": "earliest"}
        async with Consumer(**settings, seam=self.world.node("consumer")) as consumer:
            await consumer.assign([("t", at)])
            found: list[int] = []
            while records := await consumer.poll(timeout_ms=1_000):
                found += [int(record.value or b"") for record in records]
        assert len(found) == len(set(found)), "a record stands twice"
        return set(found)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "log_dirs"), [(1, 1), (2, 2)])
def test_reassignments_under_faults_keep_acknowledged_records(seed: int, log_dirs: int) -> None:
    run = Moves(seed, log_dirs)
    with run.report.listening():
        run.world.run(run.main)
    assert run.mover.moved >= 3
    findings = [*run.report.findings, *run.cluster.watch.suite.findings]
    assert not findings, findings[0]


@pytest.mark.slow
def test_checks_catch_a_controller_that_removes_replicas_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete_early(draft: Any) -> None:
        isr = tuple(replica for replica in draft.isr if replica not in draft.removing)
        kept = [at for at, replica in enumerate(draft.replicas) if replica not in draft.removing]
        if not isr:
            return
        draft.directories = tuple(draft.directories[at] for at in kept) if draft.directories else ()
        draft.replicas = tuple(draft.replicas[at] for at in kept)
        draft.isr, draft.removing, draft.adding = isr, (), ()

    monkeypatch.setattr(partition_change, "_complete_reassignment", complete_early)
    run = Moves(1, 1)
    with run.report.listening():
        run.world.run(run.main)
    assert "M15" in {finding.check for finding in run.cluster.watch.suite.findings}
