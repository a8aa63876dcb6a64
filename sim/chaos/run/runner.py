"""Run: a scenario on a cluster of processes. The cluster starts, clients work while faults happen, everything is
healed, and all records are read. The result is a run folder with the verdict and the report.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import trio

from kraft.seam import Seam, sole_error
from kraft.sim.chaos.application.application import Application
from kraft.sim.chaos.application.topics_observer import TopicsObserver
from kraft.sim.chaos.clients.libraries import library_of
from kraft.sim.chaos.history import HistoryRecorder
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.judge import RunVerdict
from kraft.sim.chaos.judge.verdict import decide_verdict, verdict_to_json
from kraft.sim.chaos.proxies.errors import ToxiproxyError
from kraft.sim.chaos.report import write_report
from kraft.sim.chaos.run.environment import environment_of
from kraft.sim.chaos.run.fault_driver import FaultDriver, require_faults
from kraft.sim.chaos.run.observer import Observer
from kraft.sim.chaos.run.run_clock import RunClock
from kraft.sim.chaos.run.run_folder import ClusterSample, RunFolder, RunInfo
from kraft.sim.chaos.run.work import ApplicationWork, ClientWork, RunResults, Work
from kraft.sim.chaos.scenarios.drawn_faults import faults_of_run
from kraft.sim.chaos.scenarios.scenario import TOPIC, Scenario, ScenarioFault, ScenarioWorkload
from kraft.sim.chaos.targets import ChaosTarget
from kraft.sim.chaos.workloads import ClientWorkload
from kraft.sim.shapes import ClusterError

AFTER_HEAL_MS = 6_000
"""Minimum time for which clients continue after the heal, so that each can make progress again."""
WHOLE_SECONDS_MAX = 45.0
WHOLE_POLL_SECONDS = 0.1
NO_CLIENTS = ScenarioWorkload(producers=0, readers=0)
"""Numbers of clients in a scenario whose workload is the user's program: all 0."""


class RunProgress(Protocol):
    """Receives a run's progress."""

    def phase(self, text: str) -> None: ...

    def line(self, time_ms: float, text: str) -> None: ...

    def sample(self, sample: ClusterSample, history: HistoryRecorder) -> None: ...

    def done(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRunSettings:
    """Settings of one run. `command` is the command line that repeats it; `application` is the user's own program, if
    one is the workload."""

    scenario: Scenario
    client: str = "kraft"
    seed: int = 1
    command: str = ""
    application: tuple[str, ...] = ()
    echo: bool = True
    """Whether the application's output is shown when it is printed."""
    keeps_data: bool = False
    """Whether the nodes' data is kept beside their logs."""
    raise_if_interrupted: Callable[[], None] = lambda: None
    """Callback that is called repeatedly and raises KeyboardInterrupt to end the run."""


class Run:
    """One run. `folder` is created. `make_target` receives the cleanup process (warden) for the cluster's resources."""

    def __init__(
        self,
        settings: ChaosRunSettings,
        folder: Path,
        make_target: Callable[[Warden], ChaosTarget],
        progress: RunProgress,
    ) -> None:
        self._settings = settings
        self._scenario = settings.scenario
        self._folder = RunFolder(folder)
        self._make_target = make_target
        self._progress = progress
        self._clock = RunClock(time.monotonic_ns)
        self._outcome = RunResults()
        self._is_working = False
        """Whether clients have started."""
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")

    def run(self) -> RunVerdict:
        """Execute the run and return its verdict. Raises ClusterError if the cluster does not start; then the folder
        holds only the nodes' logs."""
        self._folder.path.mkdir(parents=True)
        with Warden() as warden:
            self._warden = warden
            target = self._make_target(warden)
            with self._closing(target):
                self._progress.phase(f"starting {target.kind}")
                target.open()
                with self._folder.history.open("w") as file:
                    history = HistoryRecorder(self._clock.now_ns, file)
                    observer = Observer(
                        target.direct_servers,
                        tuple,
                        self._clock.now_ms,
                        target.running,
                        target.facts,
                        lambda sample: self._sampled(sample, history),
                    )
                    self._work_until_over(target, history, observer)
                info = self._info(target)
        if warden.leftovers:
            self._outcome.trouble.append(f"could not be cleaned: {', '.join(warden.leftovers)}")
        return self._judge(replace(info, trouble=tuple(self._outcome.trouble)), history, observer.samples)

    @contextmanager
    def _closing(self, target: ChaosTarget) -> Iterator[None]:
        """Keep the logs and close the target at the end of the block. The first error raised propagates; later errors
        are suppressed. A half-started cluster cannot provide its logs. The cleanup process (warden) removes what cannot
        be closed."""
        with ExitStack() as leaving:
            leaving.callback(target.close)
            leaving.callback(self._keep_logs, target)
            try:
                yield
            except BaseException:
                with suppress(Exception):
                    leaving.close()
                raise

    def _work_until_over(self, target: ChaosTarget, history: HistoryRecorder, observer: Observer) -> None:
        """Run everything that happens in trio. If the target fails while clients work, that is recorded as the run's
        trouble, and the verdict is derived from the data up to then."""
        try:
            try:
                trio.run(self._work, target, history, observer)
            except BaseExceptionGroup as group:
                raise _decisive(group) from None
            self._settings.raise_if_interrupted()
        except ClusterError as problem:
            if not self._is_working:
                raise
            self._outcome.trouble.append(f"The run was broken off after {self._clock.now_ms() / 1000:.1f} s: {problem}")
            self._outcome.healed_ms = self._outcome.duration_ms = self._clock.now_ms()

    # in trio

    async def _work(self, target: ChaosTarget, history: HistoryRecorder, observer: Observer) -> None:
        """Run the clients' work and the faults, with the observer beside them, and the final read."""
        begin = self._begin_application if self._settings.application else self._begin_workload
        faults = faults_of_run(self._scenario, target.cluster, self._settings.seed)
        require_faults(target.cluster, faults)
        async with target.client_seam() as seam, trio.open_nursery() as nursery:
            nursery.start_soon(observer.run)
            work = begin(target, history, observer, seam)
            try:
                await self._use(target, work, observer, faults)
            finally:
                if target.is_lasting:
                    await work.clean()
            nursery.cancel_scope.cancel()

    async def _use(self, target: ChaosTarget, work: Work, observer: Observer, faults: Sequence[ScenarioFault]) -> None:
        """Use the cluster from the first resource that is created in it to the final read."""
        await work.prepare()
        await observer.wait_for_answers()
        observer.reset()
        self._clock.begin()
        self._is_working = True
        self._progress.phase("clients work, faults happen")
        await self._work_beside_faults(target, work, faults)
        self._outcome.duration_ms = self._clock.now_ms()
        self._progress.phase("reading everything")
        await work.finish(self._outcome)

    def _sampled(self, sample: ClusterSample, history: HistoryRecorder) -> None:
        self._settings.raise_if_interrupted()
        self._progress.sample(sample, history)

    async def _work_beside_faults(self, target: ChaosTarget, work: Work, faults: Sequence[ScenarioFault]) -> None:
        until = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.run, until)
            await self._break_and_heal(target, faults)
            until.set()

    def _begin_workload(
        self, target: ChaosTarget, history: HistoryRecorder, observer: Observer, seam: Seam | None
    ) -> Work:
        library, random_source = library_of(self._settings.client, seam), random.Random(self._settings.seed)
        workload = ClientWorkload(
            library,
            target.bootstrap_servers,
            self._scenario,
            history,
            random_source,
            self._outcome.notes.append,
            is_lasting=target.is_lasting,
        )
        self._progress.phase("preparing the topic")
        observer.topics = lambda: (TOPIC,) if workload.is_ready else ()
        return ClientWork(workload, ",".join(target.direct_servers.values()), self._note)

    def _begin_application(
        self, target: ChaosTarget, history: HistoryRecorder, observer: Observer, seam: Seam | None
    ) -> Work:
        topics = TopicsObserver(target.bootstrap_servers, history, self._clock.now_ms)
        observer.topics = lambda: topics.known_topics
        command, servers = self._settings.application, target.bootstrap_servers
        application = Application(
            command,
            servers,
            self._clock.now_ms,
            environment=self._warden.environment,
            echo=self._settings.echo,
            warden=self._warden,
        )
        return ApplicationWork(application, topics)

    async def _break_and_heal(self, target: ChaosTarget, faults: Sequence[ScenarioFault]) -> None:
        """Inject the faults, each at its time, then heal everything, and wait until clients may end."""
        driver = FaultDriver(target.cluster, faults, self._clock, self._line)
        try:
            await driver.run()
        finally:
            self._outcome.faults = driver.records()
        self._progress.phase("healing")
        try:
            await trio.to_thread.run_sync(target.cluster.mend)
        except ToxiproxyError:
            raise
        except (
            ClusterError
        ) as problem:  # a node that does not come back: the verdict states whether the cluster is healthy without it
            self._outcome.trouble.append(f"Not everything could be healed: {problem}")
        self._outcome.healed_ms = self._clock.now_ms()
        self._line("everything is healed")
        await self._wait_whole(target)
        end_ms = max(float(self._scenario.duration_ms), self._outcome.healed_ms + AFTER_HEAL_MS)
        await trio.sleep(max(0.0, (end_ms - self._clock.now_ms()) / 1000))

    async def _wait_whole(self, target: ChaosTarget) -> None:
        """Wait until every replica is in sync, or until a timeout. The verdict states, from the samples, whether all
        replicas were in sync."""
        deadline = trio.current_time() + WHOLE_SECONDS_MAX
        is_whole = False
        while not is_whole and trio.current_time() < deadline:
            is_whole = await trio.to_thread.run_sync(target.cluster.is_whole)
            await trio.sleep(WHOLE_POLL_SECONDS)

    def _note(self, text: str) -> None:
        """Add a note for the report, and print it: an interrupted run may have no report."""
        self._outcome.notes.append(text)
        self._line(text)

    def _line(self, text: str) -> None:
        self._progress.line(self._clock.now_ms(), text)

    # after the run

    def _info(self, target: ChaosTarget) -> RunInfo:
        scenario, outcome = self._scenario, self._outcome
        library = library_of(self._settings.client)
        clients = NO_CLIENTS if self._settings.application else scenario.workload
        return RunInfo(
            scenario=scenario.name,
            title=scenario.title,
            about=scenario.about,
            text=scenario.text,
            cluster=target.kind,
            client=" ".join(self._settings.application) or library.name,
            seed=self._settings.seed,
            started_at=self._started_at,
            duration_ms=outcome.duration_ms,
            healed_ms=outcome.healed_ms,
            end_ms=self._clock.now_ms(),
            command=self._settings.command,
            partitions=scenario.topic.partitions,
            replicas=scenario.topic.replicas,
            producers=clients.producers,
            readers=clients.readers,
            group_members=clients.group_members,
            topic_churn=clients.topic_churn,
            versions=environment_of(**target.versions(), **{f"client {library.name}": library.version}),
            allowed=scenario.expects.allowed,
            must_find=scenario.expects.must_find,
            gap_ms_max=scenario.expects.gap_ms_max if target.enforces_max_gap else 0,
            notes=(*target.notes, *outcome.notes),
            trouble=tuple(outcome.trouble),
            application=self._settings.application,
            application_exit=outcome.application_exit,
        )

    def _judge(self, info: RunInfo, history: HistoryRecorder, samples: list[ClusterSample]) -> RunVerdict:
        self._progress.phase("judging")
        folder, faults = self._folder, self._outcome.faults
        folder.write_info(info)
        folder.write_rows("faults", faults)
        folder.write_rows("samples", samples)
        folder.write_rows("output", self._outcome.output)
        verdict = decide_verdict(info, history.events, faults, samples, self._outcome.output)
        folder.verdict.write_text(verdict_to_json(verdict))
        write_report(folder, verdict)
        return verdict

    def _keep_logs(self, target: ChaosTarget) -> None:
        logs = self._folder.path / "nodes"
        logs.mkdir(exist_ok=True)
        for name, path in target.logs().items():
            if path.exists():
                shutil.copyfile(path, logs / name)
        if self._settings.keeps_data:
            self._keep_data(target, logs)

    @staticmethod
    def _keep_data(target: ChaosTarget, into: Path) -> None:
        """Copy the data of nodes, killing those that still run: a copy of a running node's data would be torn."""
        for node, path in target.data().items():
            if target.cluster.is_running(node):
                target.cluster.kill(node)
            if path.exists():
                shutil.copytree(path, into / str(node), dirs_exist_ok=True)


def _decisive(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that explains the end of the run. An interrupt has precedence over an error of pykraft's code,
    and that over an error of the cluster."""
    found = [*_leaves(group)]
    interrupts = [one for one in found if isinstance(one, KeyboardInterrupt)]
    of_cluster = [one for one in found if isinstance(one, ClusterError)]
    if interrupts or len(of_cluster) == len(found):
        return [*interrupts, *of_cluster][0]
    return sole_error(group)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from _leaves(one)
