"""A scenario in virtual time: the same clients, faults, history and checks as on processes, on a simulated cluster.

Nodes, network, disks and clocks are those of the simulated world. The same seed gives the same history, event for
event, in any process. Invariant: nothing here reads a clock or draws random numbers except through the world and the
seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import trio

from kraft.seam import sole_error
from kraft.sim.chaos.clients.kraft_client import KraftLibrary
from kraft.sim.chaos.history import HistoryEvent, HistoryRecorder, line_of
from kraft.sim.chaos.judge import RunVerdict
from kraft.sim.chaos.judge.verdict import decide_verdict, verdict_to_json
from kraft.sim.chaos.run.fault_driver import records_of
from kraft.sim.chaos.run.run_clock import RunClock
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, RunFolder, RunInfo
from kraft.sim.chaos.run.simulated_observer import SimulatedObserver
from kraft.sim.chaos.scenarios.drawn_faults import faults_of_run
from kraft.sim.chaos.scenarios.scenario import Scenario, ScenarioError, ScenarioFault
from kraft.sim.chaos.workloads import ClientWorkload
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import FaultRun
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import SimulatedCluster

SIMULATED = "simulated"
"""Kind of cluster that RunInfo names for a run in virtual time."""
BEGAN_AT = "1970-01-01T00:00:00+00:00"
"""Start date of every run in virtual time. It is fixed so that repeated runs have equal files."""
AFTER_HEAL_MS = 6_000
"""Minimum time for which clients continue after the heal, so that each can make progress again."""
WHOLE_SECONDS_MAX = 45.0
FINAL_READ_SECONDS_MAX = 60.0
MOMENT_S = 1e-6
"""Seconds added to sleeps, so that rounding does not end a sleep too early."""
RUN_SECONDS_MAX = 3_600.0
"""Virtual seconds that a run may take in addition to its duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """Results of a run in virtual time: all data of a run folder."""

    info: RunInfo
    events: Sequence[HistoryEvent]
    faults: Sequence[FaultRecord]
    samples: Sequence[ClusterSample]
    verdict: RunVerdict
    trace_hash: str
    """Hash of the run's trace: equal for two runs that were identical, event for event."""

    def write_to(self, path: Path) -> RunFolder:
        """Create a run folder with all files, including the report."""
        from kraft.sim.chaos.report import write_report

        folder = RunFolder(path)
        path.mkdir(parents=True)
        folder.write_info(self.info)
        folder.history.write_text("".join(map(line_of, self.events)))
        folder.write_rows("faults", self.faults)
        folder.write_rows("samples", self.samples)
        folder.verdict.write_text(verdict_to_json(self.verdict))
        write_report(folder, self.verdict)
        return folder


def why_not_simulated(scenario: Scenario) -> str:
    """Return the reason why a scenario cannot run in virtual time because of its faults; "" if it can."""
    for fault in (one.fault for one in scenario.faults):
        if fault.kind in plan.TOXIC_KINDS:
            return f"kraft sim cannot have {fault.kind!r}: toxiproxy alone does that to links; use kraft chaos run"
        if fault.needs_toxics:
            return f"kraft sim cannot have toxicity_percent and stream ({fault.kind!r}): use kraft chaos run"
        if fault.manner not in ("", *SimulatedCluster.cut_manners):
            manners = ", ".join(SimulatedCluster.cut_manners)
            return f"links cannot be cut by {fault.manner!r} here: {manners} can be had"
    return ""


def run_simulated(scenario: Scenario, seed: int, *, command: str = "") -> SimulatedRun:
    """Run a scenario on a simulated cluster, and derive its verdict. Raises ScenarioError if it has a fault that such a
    cluster cannot have. Raises ClusterError if a node stops because of an error or violates an invariant."""
    if problem := why_not_simulated(scenario):
        raise ScenarioError(f"{scenario.name} cannot run in virtual time: {problem}")
    with cluster_of(scenario, seed) as cluster:
        course = _Course(scenario, seed, cluster)
        try:
            cluster.run(course.play, timeout_s=RUN_SECONDS_MAX + scenario.duration_ms / 1000)
        except BaseExceptionGroup as group:
            raise sole_error(group) from None
        info = course.info(command)
        verdict = decide_verdict(info, course.history.events, course.faults, course.samples)
        return SimulatedRun(
            info=info,
            events=course.history.events,
            faults=course.faults,
            samples=course.samples,
            verdict=verdict,
            trace_hash=cluster.trace_hash,
        )


def summary_lines(run: SimulatedRun) -> Iterator[str]:
    """Return lines of text with the verdict, its reasons, and how long clients had no success after each fault."""
    verdict = run.verdict
    yield f"{run.info.scenario}, seed {run.info.seed}: {verdict.verdict}"
    yield from (f"  {reason}" for reason in verdict.reasons)
    for name, count in verdict.anomaly_counts.items():
        first = next(one for one in verdict.anomalies if one.name == name)
        allowed = " (allowed)" if first.is_allowed else ""
        yield f"  {name}{allowed}, {count}: {first.text}"
    for number, fault in enumerate(run.faults):
        yield f"  {fault.begin_ms / 1000:.3f} s: {fault.text}{f' (missed: {fault.missed})' if fault.missed else ''}"
        for gap in verdict.gaps:
            if gap.fault == number:
                ended = "and none after it" if gap.first_success_ms is None else ""
                yield f"    longest time without {gap.f}: {gap.gap_ms / 1000:.3f} s {ended}".rstrip()
    acknowledged = verdict.counts.get("send", {}).get("ok", 0)
    yield f"  {acknowledged} records acknowledged in {run.info.duration_ms / 1000:.1f} virtual seconds"


def cluster_of(scenario: Scenario, seed: int) -> SimulatedCluster:
    """Return the cluster that a scenario requires. Raises ScenarioError."""
    asked = scenario.cluster
    try:
        return SimulatedCluster(
            seed=seed,
            controllers=None if asked.combined else asked.controllers,
            brokers=None if asked.combined else asked.brokers,
            combined=asked.combined or None,
            settings=asked.settings,
            dynamic_voters=asked.dynamic_voters,
        )
    except ClusterError as problem:
        raise ScenarioError(f"{scenario.name} cannot run in virtual time: {problem}") from problem


@dataclass(slots=True)
class _Course:
    """Execution of one run within its simulated world."""

    scenario: Scenario
    seed: int
    cluster: SimulatedCluster
    faults: list[FaultRecord] = field(default_factory=list)
    samples: list[ClusterSample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    healed_ms: float = 0.0
    duration_ms: float = 0.0
    end_ms: float = 0.0
    clock: RunClock = field(init=False)
    history: HistoryRecorder = field(init=False)

    async def play(self) -> None:
        """Execute the run in virtual time."""
        self.clock = RunClock(lambda: self.cluster.now_ns)
        self.history = HistoryRecorder(self.clock.now_ns)
        chance = random.Random(self.seed)
        library = KraftLibrary()
        servers = self.cluster.bootstrap_servers
        workload = ClientWorkload(library, servers, self.scenario, self.history, chance, self.notes.append)
        await workload.prepare()
        observer = SimulatedObserver(self.cluster, self.clock.now_ms, self.samples)
        until = trio.Event()
        async with trio.open_nursery() as nursery:
            self.clock.begin()
            nursery.start_soon(observer.run)
            async with trio.open_nursery() as clients:
                clients.start_soon(workload.run, until)
                await self._break_and_heal()
                until.set()
            self.duration_ms = self.clock.now_ms()
            if not await workload.read_everything(FINAL_READ_SECONDS_MAX):
                self.trouble.append("the final reader did not reach the end of every partition")
            nursery.cancel_scope.cancel()
        self.end_ms = self.clock.now_ms()

    async def _break_and_heal(self) -> None:
        """Inject the faults, each at its time, then heal everything, and wait until clients may end."""
        await self._carry_out(faults_of_run(self.scenario, self.cluster, self.seed))
        self.cluster.mend()
        self.healed_ms = self.clock.now_ms()
        with trio.move_on_after(WHOLE_SECONDS_MAX):
            await self.cluster.wait_until(self.cluster.is_whole, timeout_s=2 * WHOLE_SECONDS_MAX)
        end_ms = max(float(self.scenario.duration_ms), self.healed_ms + AFTER_HEAL_MS)
        await trio.sleep(max(0.0, end_ms - self.clock.now_ms()) / 1000)

    async def _carry_out(self, faults: Sequence[ScenarioFault]) -> None:
        try:
            run = FaultRun(self.cluster, [one.fault for one in faults], lambda: int(self.clock.now_ms()))
        except ClusterError as problem:
            raise ScenarioError(f"{self.scenario.name} cannot run in virtual time: {problem}") from problem
        try:
            with closing(run.steps()) as steps:
                for at_ms in steps:
                    await trio.sleep(max(0.0, at_ms - self.clock.now_ms()) / 1000 + MOMENT_S)
        finally:
            self.faults = records_of(run.windows, {id(one.fault): one.evidence for one in faults})

    def info(self, command: str) -> RunInfo:
        """Return the description of the run."""
        scenario, expects = self.scenario, self.scenario.expects
        return RunInfo(
            scenario=scenario.name,
            title=scenario.title,
            about=scenario.about,
            text=scenario.text,
            cluster=SIMULATED,
            client=KraftLibrary.name,
            seed=self.seed,
            started_at=BEGAN_AT,
            duration_ms=self.duration_ms,
            healed_ms=self.healed_ms,
            end_ms=self.end_ms,
            command=command,
            partitions=scenario.topic.partitions,
            replicas=scenario.topic.replicas,
            producers=scenario.workload.producers,
            readers=scenario.workload.readers,
            group_members=scenario.workload.group_members,
            topic_churn=scenario.workload.topic_churn,
            versions={"pykraft": version("pykraft")},
            allowed=expects.allowed,
            must_find=expects.must_find,
            gap_ms_max=expects.gap_ms_max,
            notes=("Virtual time: nodes, network, disks and clocks are simulated.", *self.notes),
            trouble=tuple(self.trouble),
        )
