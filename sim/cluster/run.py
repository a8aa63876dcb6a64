"""One run: a seed in, a verdict with evidence out.

Three controllers and three brokers come up; producers, a consumer and an administrator work while the seed's faults
happen; then all is healed, and the cluster must become whole and settle every delivery within a bound; a fresh reader
gets everything. The checks watch throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from kraft.sim.check.base import Finding
from kraft.sim.cluster.admin_work import Admin
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.disturbances import Disturbances
from kraft.sim.cluster.faults import FaultSettings, Nemesis
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.group_work import GroupWork
from kraft.sim.cluster.last_look import LastLook
from kraft.sim.cluster.stalls import StallWatch
from kraft.sim.cluster.swarm import Plan, draw_plan
from kraft.sim.cluster.workload import TOPIC, Read, Workload, write_extra
from kraft.sim.world.world import Deadlock, World

START_MS_MAX = 10_000
WHOLE_MS_MAX = 30_000
"""After the last heal: session time-out, some heartbeats, and the time to copy what is missing."""
SETTLED_MS_MAX = 30_000
READ_BACK_MS_MAX = 20_000
QUIET_MS = 500
"""The last high watermarks reach the followers within a fetch's long poll."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What is the same for every seed."""

    faults: FaultSettings = field(default_factory=FaultSettings)
    plan: Plan | None = None
    """In the place of what the seed draws."""
    trace_lines: int = 0


@dataclass(frozen=True, slots=True)
class RunResult:
    """`verdict` is valid, invalid, or unknown (a check saw nothing that matters)."""

    seed: int
    verdict: str
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]
    counters: Mapping[str, int]
    history: tuple[str, ...]
    log_lines: tuple[str, ...]
    trace_hash: str
    trace_checkpoints: tuple[str, ...]
    virtual_ms: int


class ClusterRun:
    """Carries out one run."""

    def __init__(self, seed: int, settings: RunSettings) -> None:
        self.plan = plan = settings.plan or draw_plan(seed, settings.trace_lines)
        self.world = World(seed, plan.options)
        self.report = Report(lambda: self.world.now_ns // 1_000_000)
        self.cluster = SimCluster(self.world, plan.shape, self.report)
        self.workload = Workload(self.cluster, plan)
        self.admin = Admin(self.cluster)
        self.groups = GroupWork(self.cluster, self.workload.partitions)
        faults = settings.faults
        self.nemesis = Nemesis(self.cluster, faults, is_quick=plan.is_quick)
        count = max(plan.disturbances, faults.network_faults) if faults.network_faults else 0
        self.disturbances = Disturbances(self.nemesis, plan.kinds, count, faults.duration_ms)
        self.last_look = LastLook(self.cluster)
        self._seed = seed
        self._settings = settings
        self._whole_ms = 0
        self.final: Read | None = None

    def run(self) -> RunResult:
        with self.report.listening():
            try:
                self.world.run(self._main)
            except Deadlock as deadlock:
                self.report.fail("L13", str(deadlock))
        return self._result()

    async def _main(self, world: World) -> None:
        cluster, workload, report, plan = self.cluster, self.workload, self.report, self.plan
        cluster.start_all()
        if not await cluster.wait_until(lambda: not cluster.trouble(), START_MS_MAX):
            report.fail("L3", "the cluster did not come up", trouble=cluster.trouble())
            return
        await self.admin.create(TOPIC, len(workload.partitions), plan.topic_configs)
        await cluster.wait_until(lambda: TOPIC in cluster.image.topics.names and not cluster.trouble(), START_MS_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(workload.run)
            nursery.start_soon(self.admin.run)
            nursery.start_soon(self.groups.run)
            nursery.start_soon(write_extra, cluster, self.admin.living, plan)
            nursery.start_soon(StallWatch(cluster, lambda: self.nemesis.disturbed_ms).run)
            await self._fault_phase()
            await self._heal()
            nursery.cancel_scope.cancel()
        await self._final_phase()

    async def _fault_phase(self) -> None:
        end_ns = self.world.now_ns + self._settings.faults.duration_ms * 1_000_000
        async with trio.open_nursery() as nursery:
            for number in range(self.plan.streams):
                nursery.start_soon(self.nemesis.crash_nodes, number)
                nursery.start_soon(self.disturbances.run, number)
        await self.world.sleep_ms(max(0, end_ns - self.world.now_ns) / 1_000_000)

    async def _heal(self) -> None:
        """No more faults: from here on everything must get well, while clients go on; then they are stopped."""
        cluster, workload, report = self.cluster, self.workload, self.report
        started_ns = self.world.now_ns
        self.disturbances.heal()
        for node_id in cluster.down:
            cluster.start(node_id)
        if not await cluster.wait_until(lambda: not cluster.loss(), WHOLE_MS_MAX):
            report.fail("L5", "the cluster did not get well", trouble=cluster.loss())
        self._whole_ms = (self.world.now_ns - started_ns) // 1_000_000
        await self.groups.come_to_rest()
        workload.stop()
        if not await cluster.wait_until(lambda: workload.is_settled, SETTLED_MS_MAX):
            report.fail("L7", "clients did not finish", acknowledged=workload.acknowledged)

    async def _final_phase(self) -> None:
        cluster, report, suite = self.cluster, self.report, self.cluster.watch.suite
        if not await cluster.wait_until(lambda: not cluster.trouble(), WHOLE_MS_MAX):
            report.fail("L6", "replicas are not equal", trouble=cluster.trouble())
        await self.world.sleep_ms(QUIET_MS)
        self.final = await self.workload.read_back(READ_BACK_MS_MAX)
        self.workload.judge(self.final)
        self.admin.judge()
        self.groups.look_at_coordinators()
        self.admin.close()
        for topic in cluster.image.topics:
            for index, state in topic.partitions():
                log = (cluster.watch.labels.of(topic.topic_id, topic.name), index)
                held = {broker: suite.shadows.log(broker, log) for broker in state.replicas}
                if len({shadow.content() for shadow in held.values()}) != 1:
                    ends = {broker: shadow.end_offset for broker, shadow in held.items()}
                    report.fail("D2", "replicas differ at the end", partition=log, ends=ends)
                for broker in state.replicas:
                    suite.durability.check_log(broker, log, "replica at the end")
        await self.last_look.run()
        suite.finish(cluster.watch.now_ms)

    def _result(self) -> RunResult:
        suite, workload = self.cluster.watch.suite, self.workload
        findings = (*suite.findings, *self.groups.checks.findings, *self.report.findings)
        unseen = (*suite.checks.unseen(), *self.groups.checks.unseen())
        counters = {
            "acknowledged": workload.acknowledged,
            "admin": self.admin.done,
            "read_along": workload.read_along.count,
            "crashes": self.nemesis.crashes,
            **{f"fault: {kind}": count for kind, count in self.disturbances.met.items()},
            "compared": self.last_look.compared,
            "whole_ms": self._whole_ms,
            "events": self.world.events,
            **{check.id: check.seen for check in (*suite.checks.checks, *self.groups.checks.checks)},
        }
        return RunResult(
            self._seed,
            "invalid" if findings else "valid",
            tuple(sorted(findings, key=lambda finding: finding.at_ms)),
            unseen,
            counters,
            tuple(self.nemesis.history),
            tuple(self.report.log_lines),
            self.world.trace_hash,
            tuple(self.world.trace_checkpoints),
            self.world.now_ns // 1_000_000,
        )


def run_seed(seed: int, settings: RunSettings | None = None) -> RunResult:
    """One run of one seed."""
    return ClusterRun(seed, settings or RunSettings()).run()
