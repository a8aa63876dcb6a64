"""Lag of each consumer group over time, since this console was started."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kraft.client.admin import Admin
from kraft.client.admin.group_lag import find_progress, total_lag
from kraft.client.core.records import KafkaError
from kraft.deploy.console.snapshot import ClusterSnapshot

SAMPLES_MAX = 720
"""Maximum number of samples per group: one hour, with a sample every five seconds."""
GROUPS_MAX = 200
"""Maximum number of groups that are sampled. If there are more groups, the first ones by name are sampled."""


@dataclass(frozen=True, slots=True)
class LagSample:
    """Sum of a group's lag over its partitions, in records."""

    time_ms: int
    lag: int


class LagHistory:
    """Samples by group; those of a group are in the order of time."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[LagSample]] = {}

    def of(self, group_id: str) -> tuple[LagSample, ...]:
        return tuple(self._samples.get(group_id, ()))

    def last(self, group_id: str) -> int | None:
        """Sum of the group's lag at the last sample."""
        samples = self._samples.get(group_id)
        return samples[-1].lag if samples else None

    async def sample(self, admin: Admin, snapshot: ClusterSnapshot, time_ms: int) -> None:
        """Request the lag of each group. A group whose request fails gets no sample."""
        wanted = sorted(one.group_id for one in snapshot.groups)[:GROUPS_MAX]
        for gone in self._samples.keys() - set(wanted):
            del self._samples[gone]
        for group_id in wanted:
            try:
                total = total_lag(await find_progress(admin, await admin.groups.describe(group_id)))
            except KafkaError:
                continue
            if total is not None:
                self._samples.setdefault(group_id, deque(maxlen=SAMPLES_MAX)).append(LagSample(time_ms, total))
