"""The work on the cluster while faults happen: the workloads of a scenario, or the user's own program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.sim.chaos.application.application import Application
from kraft.sim.chaos.application.topics_observer import TopicsObserver
from kraft.sim.chaos.clusters.cluster_queries import delete_group
from kraft.sim.chaos.judge.application import application_reasons
from kraft.sim.chaos.run.run_folder import FaultRecord, OutputLine
from kraft.sim.chaos.workloads import ClientWorkload
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ONLOOKER_CLIENT_ID

FINAL_READ_SECONDS_MAX = 60.0
CLEAN_TIMEOUT_MS = 10_000
CLEAN_SECONDS_MAX = 30.0
_FAILURES = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError)


@dataclass(slots=True)
class RunResults:
    """Data collected during a run. Times are in ms on the run's clock."""

    healed_ms: float = 0.0
    duration_ms: float = 0.0
    trouble: list[str] = field(default_factory=list)
    """Reasons why the run cannot have a verdict, each a sentence."""
    notes: list[str] = field(default_factory=list)
    faults: list[FaultRecord] = field(default_factory=list)
    output: list[OutputLine] = field(default_factory=list)
    application_exit: int | None = None


class Work(Protocol):
    """Work that uses the cluster during a run: workloads or the user's program."""

    async def prepare(self) -> None:
        """Prepare before the clock starts. ClusterError if the cluster is not in the required state."""
        ...

    async def run(self, until: trio.Event) -> None:
        """Work until the event is set, then finish the operations in progress and return."""
        ...

    async def finish(self, outcome: RunResults) -> None:
        """Read everything after the heal, when no client writes any more, and add the results to `outcome`."""
        ...

    async def clean(self) -> None:
        """Delete what the work created, in a cluster that continues to exist. Called also after any other call has
        failed. Takes up to CLEAN_SECONDS_MAX, even if the run is cancelled."""
        ...


@dataclass(slots=True)
class ClientWork:
    """The workloads of a scenario. `servers` are the addresses of the brokers themselves, not of the proxies before
    them. `notes` receives sentences for the report."""

    workload: ClientWorkload
    servers: str
    notes: Callable[[str], None]

    async def prepare(self) -> None:
        await self.workload.prepare()

    async def run(self, until: trio.Event) -> None:
        await self.workload.run(until)

    async def finish(self, outcome: RunResults) -> None:
        if not await self.workload.read_everything(FINAL_READ_SECONDS_MAX):
            outcome.trouble.append("The final reader did not reach the end of every partition.")

    async def clean(self) -> None:
        with trio.move_on_after(CLEAN_SECONDS_MAX) as scope:
            scope.shield = True
            try:
                await self._delete()
            except _FAILURES as problem:
                self.notes(f"What the run created could not be deleted from the cluster: {problem}.")
        if scope.cancelled_caught:
            self.notes(f"What the run created could not be deleted from the cluster within {CLEAN_SECONDS_MAX:g} s.")

    async def _delete(self) -> None:
        """Delete the topics and groups of this run."""
        topics, groups = self.workload.made_topics, self.workload.made_groups
        if not topics:
            return
        async with Admin(
            bootstrap_servers=self.servers, client_id=ONLOOKER_CLIENT_ID, timeout_ms=CLEAN_TIMEOUT_MS
        ) as admin:
            for topic in sorted({one.name for one in await admin.topics.list()} & topics):
                try:
                    await admin.topics.delete(topic)
                except KafkaError as problem:  # a request of the run that was still on its way may have deleted it
                    if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
            for group in groups:
                await delete_group(admin, group)


@dataclass(slots=True)
class ApplicationWork:
    """The user's own program, and the observer that reads its topics."""

    application: Application
    topics: TopicsObserver

    async def prepare(self) -> None:
        """Do nothing: the user's program creates what it needs."""

    async def run(self, until: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.topics.follow)
            async with self.application:
                await until.wait()
            nursery.cancel_scope.cancel()

    async def finish(self, outcome: RunResults) -> None:
        findings = await self.topics.finish()
        end = self.application.end
        outcome.output = self.application.output
        outcome.notes += findings.notes
        outcome.trouble += findings.trouble
        if end is not None:
            outcome.application_exit = end.counted_exit
            outcome.trouble += [end.trouble] if end.trouble else []
            outcome.trouble += application_reasons(end.at_ms, outcome.faults)

    async def clean(self) -> None:
        """Do nothing: what the user's program created is not deleted."""
