"""The lag of each group over time, as far back as this console has watched."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kraft.client.admin import Admin
from kraft.client.admin.group_lag import find_lags, total_lag
from kraft.client.core.records import KafkaError
from kraft.deploy.console.snapshot import Snapshot

SAMPLES_MAX = 720
"""Of one group: an hour at one sample in five seconds."""
GROUPS_MAX = 200
"""So many groups, the first by name, are sampled."""


@dataclass(frozen=True, slots=True)
class LagSample:
    """The sum of a group's lags in records."""

    time_ms: int
    lag: int


class LagHistory:
    """Samples by group, the oldest first."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[LagSample]] = {}

    def of(self, group_id: str) -> tuple[LagSample, ...]:
        return tuple(self._samples.get(group_id, ()))

    def last(self, group_id: str) -> int | None:
        """The lag at the last sample."""
        samples = self._samples.get(group_id)
        return samples[-1].lag if samples else None

    async def sample(self, admin: Admin, snapshot: Snapshot, time_ms: int) -> None:
        """Ask for the lag of each group. One that cannot be asked for gets no sample."""
        wanted = sorted(one.group_id for one in snapshot.groups)[:GROUPS_MAX]
        for gone in self._samples.keys() - set(wanted):
            del self._samples[gone]
        for group_id in wanted:
            try:
                total = total_lag(await find_lags(admin, await admin.groups.describe(group_id)))
            except KafkaError:
                continue
            if total is not None:
                self._samples.setdefault(group_id, deque(maxlen=SAMPLES_MAX)).append(LagSample(time_ms, total))
