"""The one client of a console's process: asks the cluster in the background, and keeps the last answers.

Pages render from `snapshot`, so that they are there at once, also while the cluster is not. A round that fails leaves
the last snapshot and says why in `problem`. `changed` is replaced at every round's end: whoever waits on it sees all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import trio

from kraft.client.admin import Admin, ConfigResource, ResourceType
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.deploy.console.lag_history import LagHistory
from kraft.deploy.console.node_metrics import NodeMetrics
from kraft.deploy.console.settings import ConsoleSettings
from kraft.deploy.console.snapshot import Alarm, Snapshot, find_alarms
from kraft.seam import WireError

FAILURES = (KafkaError, ClusterUnreachable, VersionMismatch, WireError, *CONNECTION_FAILURES)
"""How a question to the cluster may fail."""
COST_SHARE = 10
"""A round is followed by a pause of at least so many times what it costs, so that it costs a tenth of the time."""
ROUNDS_COMPARED = 4
"""What a round costs the cluster is what the cheapest of so many took: the others waited for a broker that is gone."""
PAUSE_SECONDS_MAX = 10.0
HURRIED_MS = 500
"""The pause after a round while a page shows the effect of faults, if the rounds are cheap."""
LAG_PAUSE_SECONDS_MAX = 60.0
QUESTION_SECONDS_MAX = 4.0
"""A question that takes longer has failed: the next round asks another broker."""
GROUPS_SECONDS_MAX = 1.5
"""The same for groups, which each broker is asked for: one that has just died must not hold up the rest."""
FIRST_ROUND_MS_MAX = 3_000
"""How long the first page waits for the first answers."""
MIN_ISR = "min.insync.replicas"
MIN_ISR_MS = 30_000
"""min.insync.replicas is asked for again after so long, and for new topics at once."""


class ClusterView:
    """See the module. `admin` is open while the console runs."""

    admin: Admin

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.snapshot = Snapshot(0, 0.0)
        self.alarms: tuple[Alarm, ...] = ()
        self.problem: str | None = "the cluster has not answered yet"
        self.version = 0
        self.changed = trio.Event()
        self.lags = LagHistory()
        self.metrics = NodeMetrics(settings)
        self._hurried = 0
        self._wanted = trio.Event()
        self._min_isr_ms = 0
        self._costs: deque[float] = deque(maxlen=ROUNDS_COMPARED)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ask the cluster as long as the context lives."""
        async with self.settings.admin() as self.admin, trio.open_nursery() as nursery:
            nursery.start_soon(self._poll)
            nursery.start_soon(self._sample_lags)
            nursery.start_soon(self.metrics.poll)
            with trio.move_on_after(FIRST_ROUND_MS_MAX / 1000):
                await self.changed.wait()
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def refresh(self) -> None:
        """Ask anew, and wait for the end of that round: after a change."""
        for _ in range(2):  # the round under way may have begun before the change
            ended = self.changed
            self._wanted.set()
            await ended.wait()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Ask more often while the context lives."""
        self._hurried += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._hurried -= 1

    @property
    def age_ms(self) -> int:
        """How old the snapshot is."""
        return now_ms() - self.snapshot.taken_ms

    async def _poll(self) -> None:
        while True:
            began = trio.current_time()
            await self._round()
            self._costs.append(trio.current_time() - began)
            self.version += 1
            ended, self.changed, self._wanted = self.changed, trio.Event(), trio.Event()
            ended.set()
            if self.problem or self.snapshot.problems:
                self._costs.clear()  # they waited for an answer in vain
            with trio.move_on_after(pause_s(self._costs, HURRIED_MS if self._hurried else self.settings.poll_ms)):
                await self._wanted.wait()

    async def _round(self) -> None:
        """One round of questions; a part that fails does not keep the others from being asked."""
        admin, began = self.admin, trio.current_time()
        found: dict[str, Any] = {}
        problems: dict[str, str] = {}

        async def ask(
            name: str, question: Callable[[], Awaitable[Any]], seconds_max: float = QUESTION_SECONDS_MAX
        ) -> None:
            try:
                with trio.fail_after(seconds_max):
                    found[name] = await question()
            except FAILURES as failure:
                problems[name] = str(failure)
            except trio.TooSlowError:
                problems[name] = f"no answer within {seconds_max:g} s"

        await ask("topics", admin.topics.list)
        if "topics" in problems:
            self.problem = problems["topics"]
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "cluster", admin.nodes.cluster)
            nursery.start_soon(ask, "quorum", admin.nodes.quorum)
            nursery.start_soon(ask, "groups", admin.groups.list, GROUPS_SECONDS_MAX)
            nursery.start_soon(ask, "reassignments", admin.partitions.reassignments)
        found.setdefault("groups", self.snapshot.groups)
        found["topics"] = {topic.name: topic for topic in found["topics"]}
        found["min_isr"] = await self._min_isr(list(found["topics"]), problems)
        cost_ms = (trio.current_time() - began) * 1000
        self.snapshot = Snapshot(now_ms(), cost_ms, **found, problems=problems)
        self.alarms = find_alarms(self.snapshot)
        self.problem = None

    async def _min_isr(self, topics: list[str], problems: dict[str, str]) -> dict[str, int]:
        """min.insync.replicas of each topic; of those known from before, where the question fails."""
        known = self.snapshot.min_isr
        is_old = now_ms() - self._min_isr_ms > MIN_ISR_MS
        missing = [name for name in topics if is_old or name not in known]
        if not missing:
            return {name: known[name] for name in topics}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in missing]
        try:
            answers = await self.admin.configs.describe_each(resources, names=[MIN_ISR])
        except FAILURES as failure:
            problems[MIN_ISR] = str(failure)
            return dict(known)
        if is_old:
            self._min_isr_ms = now_ms()
        told = {
            resource.name: int(entry.value or 0)
            for resource, entries in answers.items()
            if not isinstance(entries, KafkaError)
            for entry in entries
            if entry.name == MIN_ISR
        }
        return {name: told.get(name, known.get(name, 0)) for name in topics}

    async def _sample_lags(self) -> None:
        """Sample the lag of all groups now and then."""
        while True:
            await self.changed.wait()
            began = trio.current_time()
            with suppress(*FAILURES):
                await self.lags.sample(self.admin, self.snapshot, now_ms())
            cost = trio.current_time() - began
            await trio.sleep(max(self.settings.lag_sample_ms / 1_000, min(COST_SHARE * cost, LAG_PAUSE_SECONDS_MAX)))


def pause_s(costs_s: Iterable[float], least_ms: float) -> float:
    """How long to wait after rounds of questions that took so long."""
    return max(least_ms / 1_000, min(COST_SHARE * min(costs_s, default=0.0), PAUSE_SECONDS_MAX))


def now_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)
