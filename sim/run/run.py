"""One run of a simulated cluster: from a plan to a verdict with evidence.

The nodes start. Producers, a consumer, a group and an administrator work while the plan's faults happen. Then
everything is healed, and within a time limit the cluster must become healthy and every delivery must end. A new reader
reads all records. The checks observe the whole run.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import trio

from kraft.image import ConfigResourceType
from kraft.seam import sole_error
from kraft.sim.check.base import Check, Checks, Finding
from kraft.sim.cluster.altered_settings import SettingKey
from kraft.sim.cluster.chronicle import Chronicle
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.quiescent_checks import QuiescentChecks
from kraft.sim.cluster.sizes import small_sizes
from kraft.sim.cluster.stalls import StallWatch
from kraft.sim.nemesis.disturbances import Disturbances
from kraft.sim.nemesis.faults import FaultSettings, Nemesis
from kraft.sim.nemesis.plan import (
    ADMIN,
    CLOSED_LOOP,
    CONFIGURER,
    CONSUMER_GROUP,
    DIRECTORY_MOVER,
    ELECTOR,
    EXTRA,
    MIXED_GROUP,
    MOVER,
    RETAINER,
    SHARE_GROUP,
    TOPIC,
    TRANSACTOR,
    TRIMMER,
    VOTER_CHANGER,
    Plan,
    client_hosts_of,
)
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.fault_coverage import Cell, covered_by, transitions_taken
from kraft.sim.workload.admin_work import AdminWorker
from kraft.sim.workload.configurer_work import Configurer
from kraft.sim.workload.consumer_group import ConsumerGroup
from kraft.sim.workload.directory_work import move_directories
from kraft.sim.workload.elector_work import Elector
from kraft.sim.workload.group_work import GroupWork
from kraft.sim.workload.mixed_group import TOPICS as MIXED_TOPICS
from kraft.sim.workload.mixed_group import MixedGroup
from kraft.sim.workload.reassign_work import Mover
from kraft.sim.workload.registrar_work import Registrars
from kraft.sim.workload.retention_work import Retainer
from kraft.sim.workload.settings_ledger import SettingsLedger
from kraft.sim.workload.share_group import TOPICS as SHARED_TOPICS
from kraft.sim.workload.share_group import ShareGroupWork
from kraft.sim.workload.transaction_recorder import PARTITIONS as TRANSACTION_TOPICS
from kraft.sim.workload.transaction_work import TransactionWork
from kraft.sim.workload.trim_work import trim_topics
from kraft.sim.workload.voter_work import change_voters
from kraft.sim.workload.workload import ReaderRecords, Workload, write_extra
from kraft.sim.world.tripwires import NotOfThisWorld
from kraft.sim.world.world import Deadlock, Livelock, World

START_MS_MAX = 10_000
WHOLE_MS_MAX = 30_000
"""Maximum time after the last fault until the cluster is healthy: a session timeout, some heartbeats, and the time to
copy missing records."""
SETTLED_MS_MAX = 30_000
READ_BACK_MS_MAX = 20_000
QUIET_MS = 500
"""Time in ms after which the last high watermarks have reached the followers: the maximum wait of a fetch."""
TRACEBACK_PARTS = 6

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Signature:
    """Value that is equal for equal findings: the name of the check, and the text of the finding without numbers."""

    check: str
    text: str

    @classmethod
    def of(cls, finding: Finding) -> Signature:
        return cls(finding.check, _NUMBER.sub("#", finding.text))


class Stopped(Exception):
    """Raised to end a run that has produced the expected finding."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings that apply to all seeds of a campaign."""

    faults: FaultSettings = field(default_factory=FaultSettings)
    plan: Plan | None = None
    """Plan to carry out instead of the one that the seed draws."""
    trace_lines: int = 0
    stop_at: Signature | None = None
    """Signature of a finding at which the run ends."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run. `verdict` is "invalid" if there are findings. It is "unknown" if some check had no input that
    could have violated it, or the search in a history was abandoned. Otherwise it is "valid"."""

    plan: Plan
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]
    counters: Mapping[str, int]
    coverage: Mapping[Cell, int]
    history: tuple[str, ...]
    log_lines: tuple[str, ...]
    trace_hash: str
    trace_checkpoints: tuple[str, ...]
    virtual_ms: int
    began_ms: int
    """Time when faults and operations started; their times are counted from it."""

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def verdict(self) -> str:
        is_unknown = self.unseen or self.counters["undecided"]
        return "invalid" if self.findings else "unknown" if is_unknown else "valid"


class ClusterRun:
    """Carries out one run."""

    def __init__(self, seed: int, settings: RunSettings) -> None:
        self.plan = plan = settings.plan or draw_plan(seed, settings.faults)
        self.world = World(plan.seed, replace(plan.options, trace_lines=settings.trace_lines))
        self.report = Report(lambda: self.world.now_ns // 1_000_000)
        self.cluster = SimCluster(self.world, plan.shape, self.report)
        self.workload = Workload(self.cluster, plan)
        self.settings = SettingsLedger(self.cluster)
        self.admin = AdminWorker(self.cluster, self.settings)
        self.groups = GroupWork(self.cluster, self.workload.partitions, plan.work)
        self.consumers = ConsumerGroup(self.cluster, self.workload.partitions)
        self.mixed = MixedGroup(self.cluster)
        self.shared = ShareGroupWork(self.cluster)
        self.transactions = TransactionWork(self.cluster)
        self.registrars = Registrars(self.cluster, plan.work)
        self.configurer = Configurer(self.cluster, self.settings)
        self.elector = Elector(self.cluster)
        self.mover = Mover(self.cluster)
        self.retainer = Retainer(self.cluster, self.admin.living, self.settings)
        replaces_controllers = plan.shape.joins_by_itself and VOTER_CHANGER not in plan.work
        self.nemesis = Nemesis(self.cluster, is_quick=plan.is_quick, replaces_controllers=replaces_controllers)
        self.disturbances = Disturbances(self.nemesis, plan.faults, client_hosts_of(plan.work))
        self.quiescent_checks = QuiescentChecks(self.cluster)
        self._settings = settings
        self._whole_ms = 0
        self.final: ReaderRecords | None = None
        self._listen_to_findings()

    @property
    def chronicle(self) -> Chronicle:
        """The main events of the run, in order."""
        return self.cluster.watch.chronicle

    @property
    def checks(self) -> list[Check]:
        """All checks."""
        return [check for each in self._sets_of_checks for check in each.checks]

    @property
    def _sets_of_checks(self) -> tuple[Checks, ...]:
        """Yield the sets of checks: of nodes, of groups, of the groups whose members use pykraft's consumer, and of
        histories."""
        groups = (self.groups.checks, self.consumers.checks, self.mixed.checks)
        return self.cluster.watch.suite.checks, *groups, self.registrars.checks

    def _listen_to_findings(self) -> None:
        self.report.when_found = self._found
        for check in self.checks:
            check.when_found = self._found

    def _found(self, finding: Finding) -> None:
        """Handle a new finding. Findings during the teardown of a stopped run are ignored."""
        if self.chronicle.is_closed:
            return
        self.chronicle.findings.append(finding)
        if Signature.of(finding) == self._settings.stop_at:
            self.chronicle.is_closed = True
            self.world.stop(Stopped(str(finding)))

    def run(self) -> RunResult:
        with self.report.listening():
            try:
                with small_sizes(self.plan.small_sizes):
                    self.world.run(self._main)
            except (Deadlock, Livelock) as problem:
                self.report.fail("L13", str(problem))
            except Stopped:
                pass
            except NotOfThisWorld as problem:
                self.report.fail("N5", str(problem))
            except Exception as error:  # noqa: BLE001 - whatever ends a run is found in it, and the next run goes on
                cause = sole_error(error)
                where = "".join(traceback.format_exception(cause)[-TRACEBACK_PARTS:])
                self.report.fail("N1", f"the run ended with {cause!r}", where=where)
        return self._result()

    async def _main(self, world: World) -> None:
        cluster, workload, report, plan = self.cluster, self.workload, self.report, self.plan
        cluster.start_all()
        if not await cluster.wait_until(lambda: not cluster.trouble(), START_MS_MAX):
            report.fail("L3", "the cluster did not come up", trouble=cluster.trouble())
            return
        await self.admin.create(TOPIC, len(workload.partitions), plan.topic_configs)
        await cluster.wait_until(lambda: TOPIC in cluster.image.topics.names and not cluster.trouble(), START_MS_MAX)
        topics = {
            **(TRANSACTION_TOPICS if TRANSACTOR in plan.work else {}),
            **(MIXED_TOPICS if MIXED_GROUP in plan.work else {}),
            **(SHARED_TOPICS if SHARE_GROUP in plan.work else {}),
        }
        if topics:
            await self._create_topics(topics)
        if TRANSACTOR in plan.work:
            await self.transactions.set_version(plan.transaction_version)
        self.chronicle.began_ms = self.world.now_ns // 1_000_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(workload.run)
            nursery.start_soon(self.groups.run)
            nursery.start_soon(self.admin.run, plan.work.get(ADMIN, ()))
            for registrar in self.registrars.clients:
                nursery.start_soon(registrar.run)
            if MOVER in plan.work:
                nursery.start_soon(self.mover.carry_out, plan.work[MOVER])
            if DIRECTORY_MOVER in plan.work:
                nursery.start_soon(move_directories, cluster, plan.work[DIRECTORY_MOVER])
            if VOTER_CHANGER in plan.work:
                nursery.start_soon(change_voters, cluster, plan.work[VOTER_CHANGER])
            if TRIMMER in plan.work:
                nursery.start_soon(trim_topics, cluster, self.admin.living, plan.work[TRIMMER])
            if RETAINER in plan.work:
                nursery.start_soon(self.retainer.run, plan.work[RETAINER])
            if CONFIGURER in plan.work:
                nursery.start_soon(self.configurer.run, plan.work[CONFIGURER])
            if ELECTOR in plan.work:
                nursery.start_soon(self.elector.run, plan.work[ELECTOR])
            if CONSUMER_GROUP in plan.work:
                nursery.start_soon(self.consumers.run, plan.work[CONSUMER_GROUP])
            if MIXED_GROUP in plan.work:
                nursery.start_soon(self.mixed.run, plan.work[MIXED_GROUP])
            if SHARE_GROUP in plan.work:
                nursery.start_soon(self.shared.run, plan.work[SHARE_GROUP])
            if TRANSACTOR in plan.work:
                nursery.start_soon(self.transactions.run, plan.work[TRANSACTOR])
            if EXTRA in plan.work:
                nursery.start_soon(write_extra, cluster, self.admin.living, plan)
            nursery.start_soon(StallWatch(cluster, lambda: self.nemesis.disturbed_ms).run)
            await self._fault_phase()
            if not plan.ends_early:
                await self._heal()
            nursery.cancel_scope.cancel()
        if not plan.ends_early:
            await self._final_phase()
        self.registrars.judge()
        self.settings.judge(self.registrars.checks)

    async def _create_topics(self, topics: Mapping[str, int]) -> None:
        cluster = self.cluster
        for name, partitions in topics.items():
            await self.admin.create(name, partitions)
        names = set(topics)
        await cluster.wait_until(
            lambda: names <= set(cluster.image.topics.names) and not cluster.trouble(), START_MS_MAX
        )

    async def _fault_phase(self) -> None:
        end_ns = self.world.now_ns + self.plan.duration_ms * 1_000_000
        await self.disturbances.run()
        await self.world.sleep_until_ns(end_ns)

    async def _heal(self) -> None:
        """End all faults and wait until everything has recovered, while clients continue; then stop the clients."""
        cluster, workload, report = self.cluster, self.workload, self.report
        started_ns = self.world.now_ns
        self.disturbances.heal()
        for node_id in cluster.down:
            cluster.start(node_id)
        if not await cluster.wait_until(lambda: not cluster.loss(), WHOLE_MS_MAX):
            report.fail("L5", "the cluster did not get well", trouble=cluster.loss())
        self._whole_ms = (self.world.now_ns - started_ns) // 1_000_000
        await self.groups.wait_until_settled()
        workload.stop()
        if not await self._settle():
            report.fail("L7", "clients did not finish", acknowledged=workload.acknowledged)
        await self.consumers.finish()
        await self.mixed.finish()
        await self.shared.finish()
        await self.transactions.finish()

    async def _settle(self) -> bool:
        """Wait until all deliveries have ended; return whether they did in time. With slow disks and synced records the
        backlog may take longer than the time limit. Then the limit applies to the time without any acknowledgement."""
        workload, before = self.workload, -1
        while before < workload.acknowledged:
            before = workload.acknowledged
            if await self.cluster.wait_until(lambda: workload.is_settled, SETTLED_MS_MAX):
                return True
        return False

    async def _final_phase(self) -> None:
        cluster, report, suite = self.cluster, self.report, self.cluster.watch.suite
        await cluster.wait_until(lambda: not cluster.trouble(), WHOLE_MS_MAX)
        self.groups.compare_coordinators()  # only while they have members; afterwards nothing remains to compare
        await self.groups.leave()
        if not await cluster.wait_until(lambda: not cluster.trouble(), WHOLE_MS_MAX):
            report.fail("L6", "replicas are not equal", trouble=cluster.trouble())
        await self.world.sleep_ms(QUIET_MS)
        await self.registrars.read_all()
        self.final = await self.workload.read_back(READ_BACK_MS_MAX)
        self.workload.judge(self.final)
        await self.transactions.judge()
        self.admin.judge()
        self.settings.read_all(self._has)
        await self.configurer.judge()
        if RETAINER in self.plan.work:
            await self.retainer.judge()
        self.groups.compare_coordinators()
        self.admin.close()
        for topic in cluster.image.topics:
            for index, state in topic.partitions():
                log = (cluster.watch.labels.of(topic.topic_id, topic.name), index)
                begin = cluster.begin_of(state.leader, topic.name, index)
                if not suite.shadows.are_equal(log, state.replicas, begin):
                    ends = {broker: suite.shadows.log(broker, log).end_offset for broker in state.replicas}
                    report.fail("D2", "replicas differ at the end", partition=log, ends=ends)
                for broker in state.replicas:
                    suite.durability.check_log(broker, log, "replica at the end")
        await self.quiescent_checks.run()
        cluster.watch.fold.finish()
        folded, committed = cluster.watch.fold.end_offset, suite.ledger.end_offset
        if folded < committed:
            text = "the checks use stale metadata: no replica was observed with the next batches"
            report.fail("M1", text, folded=folded, committed=committed)
        suite.finish(cluster.watch.now_ms)

    def _has(self, setting: SettingKey) -> bool:
        """Return whether a setting belongs to a broker, or to a topic that certainly exists."""
        is_of_topic = setting.resource_type == ConfigResourceType.TOPIC
        return not is_of_topic or setting.resource == TOPIC or setting.resource in self.admin.living

    def _judged(self) -> dict[str, int]:
        """Return how much input the checks had that compare the state of clients and replicas at the end."""
        read = 0 if self.final is None else self.final.count
        histories = self.workload.judged
        return {
            **{check: histories[check] if read else 0 for check in ("L10", "C1", "T1", "C2", "D14", "D10")},
            "L7": self.workload.acknowledged if read else 0,
            "M11": self.admin.promises if read else 0,
            "M9": self.configurer.compared,
            "L11": self.retainer.judged,
            "M10": self.quiescent_checks.hosted,
            **dict.fromkeys(("D6", "D7", "D12"), self.quiescent_checks.compared),
            "T3": self.quiescent_checks.with_producers,
            "D13": self.quiescent_checks.indexed,
            "N3": self.quiescent_checks.parked,
            **dict.fromkeys(("T7", "T9", "L9"), self.transactions.judged),
            "T11": self.transactions.recorder.offsets_read,
        }

    def _result(self) -> RunResult:
        workload, plan = self.workload, self.plan
        findings = (*(found for each in self._sets_of_checks for found in each.findings), *self.report.findings)
        if self.chronicle.is_closed:
            findings = tuple(self.chronicle.findings)
        every = [(check.id, check.seen) for check in self.checks]
        seen = Counter({check: 0 for check, _ in every})
        for check, count in (*every, *self._judged().items()):
            seen[check] += count
        counters = {
            "acknowledged": workload.acknowledged,
            "admin": self.admin.done,
            "read_along": workload.read_along.count,
            "reread": workload.reread.count,
            "small topics": len(workload.small_topics.created),
            "sent in a closed loop": workload.acknowledged_of(CLOSED_LOOP),
            "dealt with by a group": self.consumers.processed,
            "dealt with by the mixed group": self.mixed.processed,
            "accepted by share groups": self.shared.accepted,
            "offsets of share groups changed": self.shared.offsets.done,
            "transactions committed": self.transactions.recorder.committed,
            "transactions aborted": self.transactions.recorder.aborted,
            "pipelined batches": self.transactions.recorder.pipelined,
            "broker settings": self.configurer.changed,
            "elected on request": self.elector.elected,
            "joined by themselves": self.cluster.watch.suite.membership.added if plan.shape.joins_by_itself else 0,
            "throttled moves": self.mover.throttles.begun,
            "deleted from the begin": self.retainer.deleted.total(),
            "refused": workload.refusals.count,
            "crashes": self.nemesis.crashes,
            **{f"moment: {role}": count for role, count in self.nemesis.moments.items()},
            **{f"fault: {kind}": count for kind, count in self.disturbances.met.items()},
            **{f"came across: {kind}": count for kind, count in self.disturbances.come_across.items()},
            **transitions_taken(self.cluster.watch.transitions),
            "compared": self.quiescent_checks.compared,
            "undecided": self.registrars.checks.undecided,
            "whole_ms": self._whole_ms,
            "events": self.world.events,
            **seen,
        }
        return RunResult(
            self.plan,
            tuple(sorted(findings, key=lambda finding: finding.at_ms)),
            tuple(check for check, count in seen.items() if not count),
            counters,
            covered_by(self.chronicle),
            self.nemesis.history,
            tuple(self.report.log_lines),
            self.world.trace_hash,
            tuple(self.world.trace_checkpoints),
            self.world.now_ns // 1_000_000,
            self.chronicle.began_ms,
        )


def run_seed(seed: int, settings: RunSettings | None = None) -> RunResult:
    """Run the plan that this seed draws."""
    return ClusterRun(seed, settings or RunSettings()).run()


def run_plan(plan: Plan, stop_at: Signature | None = None) -> RunResult:
    """Run this plan, which was drawn or written before."""
    return ClusterRun(plan.seed, RunSettings(plan=plan, stop_at=stop_at)).run()
