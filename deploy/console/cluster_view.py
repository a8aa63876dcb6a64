"""The only client of a console process: it queries the cluster in the background, and keeps the latest responses.

Pages render from `snapshot`, so they appear at once, even while the cluster is down. If a round of requests fails, the
last snapshot stays, and `problem` has the reason. `changed` is an event that is replaced at the end of every round, so
each task that waits for it sees every round.
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
from kraft.deploy.console.snapshot import Alarm, ClusterSnapshot, find_alarms
from kraft.seam import WireError

FAILURES = (KafkaError, ClusterUnreachable, VersionMismatch, WireError, *CONNECTION_FAILURES)
"""Exceptions with which a request to the cluster may fail."""
COST_SHARE = 10
"""Minimum ratio of the pause after a round of requests to the duration of the round. It limits the rounds to about a
tenth of the time."""
ROUNDS_COMPARED = 4
"""Number of recent rounds that are compared. The duration of the shortest one counts as the cost of a round, because
longer rounds waited for a broker that is down."""
PAUSE_SECONDS_MAX = 10.0
FAST_POLL_MS = 500
"""Pause in ms after a round of requests while a page shows the effect of faults. Slow rounds lead to longer pauses."""
LAG_PAUSE_SECONDS_MAX = 60.0
REQUEST_SECONDS_MAX = 4.0
"""Timeout of a request in seconds. The next round sends the request to another broker."""
GROUPS_SECONDS_MAX = 1.5
"""Timeout in seconds of the request for groups. It is short because this request goes to every broker, and a broker
that has just died must not delay the round."""
FIRST_ROUND_MS_MAX = 3_000
"""Maximum milliseconds that the first page of the console waits for the first responses of the cluster."""
MIN_ISR = "min.insync.replicas"
MIN_ISR_MS = 30_000
"""Milliseconds between two requests for min.insync.replicas. For new topics it is requested at once."""


class ClusterView:
    """Background client of the console. `admin` is open while the console runs."""

    admin: Admin

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.snapshot = ClusterSnapshot(0, 0.0)
        self.alarms: tuple[Alarm, ...] = ()
        self.problem: str | None = "the cluster has not answered yet"
        self.version = 0
        self.changed = trio.Event()
        self.lags = LagHistory()
        self.metrics = NodeMetrics(settings)
        self._fast_polls = 0
        self._wanted = trio.Event()
        self._min_isr_ms = 0
        self._costs: deque[float] = deque(maxlen=ROUNDS_COMPARED)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Query the cluster while this context is open."""
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
        """Run a new round and wait for its end, for example after a change."""
        for _ in range(2):  # the current round may have started before the change
            ended = self.changed
            self._wanted.set()
            await ended.wait()

    @contextmanager
    def polling_faster(self) -> Iterator[None]:
        """Query the cluster more often while this context is open."""
        self._fast_polls += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._fast_polls -= 1

    @property
    def age_ms(self) -> int:
        """Age of the snapshot in ms."""
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
                self._costs.clear()  # the durations of these rounds include waits for failed requests
            with trio.move_on_after(pause_s(self._costs, FAST_POLL_MS if self._fast_polls else self.settings.poll_ms)):
                await self._wanted.wait()

    async def _round(self) -> None:
        """Run one round of requests. If a request fails, the others of the round are still sent."""
        admin, began = self.admin, trio.current_time()
        found: dict[str, Any] = {}
        problems: dict[str, str] = {}

        async def ask(
            name: str, question: Callable[[], Awaitable[Any]], seconds_max: float = REQUEST_SECONDS_MAX
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
        self.snapshot = ClusterSnapshot(now_ms(), cost_ms, **found, problems=problems)
        self.alarms = find_alarms(self.snapshot)
        self.problem = None

    async def _min_isr(self, topics: list[str], problems: dict[str, str]) -> dict[str, int]:
        """Return min.insync.replicas of each topic. If the request fails, return the values of earlier responses."""
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
        """Sample the lag of all groups periodically."""
        while True:
            await self.changed.wait()
            began = trio.current_time()
            with suppress(*FAILURES):
                await self.lags.sample(self.admin, self.snapshot, now_ms())
            cost = trio.current_time() - began
            await trio.sleep(max(self.settings.lag_sample_ms / 1_000, min(COST_SHARE * cost, LAG_PAUSE_SECONDS_MAX)))


def pause_s(costs_s: Iterable[float], least_ms: float) -> float:
    """Return the pause before the next round in seconds, given the durations of the recent rounds."""
    return max(least_ms / 1_000, min(COST_SHARE * min(costs_s, default=0.0), PAUSE_SECONDS_MAX))


def now_ms() -> int:
    """Current time in milliseconds since 1970."""
    return int(time.time() * 1000)
