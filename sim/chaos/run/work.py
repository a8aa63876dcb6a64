"""What works while faults happen: our workloads, or the user's own program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import trio

from kraft.sim.chaos.application.application import Application
from kraft.sim.chaos.application.topics_observer import TopicsObserver
from kraft.sim.chaos.judge.application import application_reasons
from kraft.sim.chaos.run.run_folder import FaultRecord, OutputLine
from kraft.sim.chaos.workloads import Workload

FINAL_READ_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Outcome:
    """What a run learns on its way; times are on its clock, in ms."""

    healed_ms: float = 0.0
    duration_ms: float = 0.0
    trouble: list[str] = field(default_factory=list)
    """Why the run cannot be judged, each a sentence."""
    notes: list[str] = field(default_factory=list)
    faults: list[FaultRecord] = field(default_factory=list)
    output: list[OutputLine] = field(default_factory=list)
    application_exit: int | None = None


class Work(Protocol):
    """Something that uses the cluster."""

    async def run(self, until: trio.Event) -> None:
        """Work until that is set; then end, and return."""
        ...

    async def finish(self, outcome: Outcome) -> None:
        """Everything is healed and nobody writes: read all of it, and add to `outcome` what was learned."""
        ...

    async def clean(self) -> None:
        """Remove what was made in a cluster that goes on."""
        ...


@dataclass(slots=True)
class ClientWork:
    """The workloads of a scenario."""

    workload: Workload

    async def run(self, until: trio.Event) -> None:
        await self.workload.run(until)

    async def finish(self, outcome: Outcome) -> None:
        if not await self.workload.read_everything(FINAL_READ_SECONDS_MAX):
            outcome.trouble.append("The final reader did not reach the end of every partition.")

    async def clean(self) -> None:
        await self.workload.delete_topic()


@dataclass(slots=True)
class ApplicationWork:
    """The user's own program, and those who read along what it does to its topics."""

    application: Application
    topics: TopicsObserver

    async def run(self, until: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.topics.follow)
            async with self.application:
                await until.wait()
            nursery.cancel_scope.cancel()

    async def finish(self, outcome: Outcome) -> None:
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
        """What the program made is its own."""
