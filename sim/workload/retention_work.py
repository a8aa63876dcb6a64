"""A client that sets short retention by size for the topics of the administrator (extra topics), while all other
clients work.

Each broker then deletes all but the newest bytes, each at a different time.

No client is guaranteed the content of those topics. The checks observe the logs and their starts (D5, D9). At the end,
once retention has had time to run, no replica may keep what retention removes (L11). Retention by time is not used: it
empties logs, each by its replica's own clock, and the comparisons at the end do not support that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.image import ConfigResourceType
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import RETAINER, RETENTION_CHECK, PlannedOperation
from kraft.sim.workload.planned_requests import make_requests
from kraft.sim.workload.settings_ledger import SettingsLedger

SMALL_SEGMENTS = ("internal.segment.bytes", "1000")
BY_SIZE = "retention.bytes"
CHOICES = ("1000", "2000", "4000")
ROUNDS_MAX = 4
"""Maximum number of retention rounds until old segments must be deleted. A broker that restarted opens a log in its
first round, and may have just missed one round."""


class Retainer:
    """Client that sets short retention. `deleted`: extra topic → number of records that are deleted from the front of
    its replicas' logs at the end."""

    def __init__(self, cluster: SimCluster, living: Mapping[str, object], settings: SettingsLedger) -> None:
        self.deleted: Counter[str] = Counter()
        self.judged = 0
        """Number of replicas whose segments were checked."""
        self._cluster = cluster
        self._living = living
        self._settings = settings

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Send the plan's requests that set retention, each at its time."""
        await make_requests(self._cluster, RETAINER, work, self._retain)

    async def _retain(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        names = list(self._living)
        if not names:
            return
        name, kept = names[operation.target % len(names)], (BY_SIZE, CHOICES[operation.amount % len(CHOICES)])
        told = cluster.watch.chronicle.begin_operation(RETAINER, f"{name}: {kept[1]} bytes")
        values = (SMALL_SEGMENTS, kept)
        changes = [ConfigChange(ConfigOperation.SET, *setting) for setting in values]
        outcome, asked = "no answer", self._settings.ask(RETAINER, ConfigResourceType.TOPIC, name, dict(values))
        with suppress(KafkaError, ClusterUnreachable, *CONNECTION_FAILURES):
            await admin.configs.alter(ConfigResource(ResourceType.TOPIC, name), changes)
            outcome = "done"
            self._settings.acknowledge(asked)
        cluster.watch.chronicle.end_operation(told, outcome, outcome == "done" or None)

    async def judge(self) -> None:
        """Check that no replica keeps segments that retention must delete. Call it when all brokers are up and all
        writes have ended."""
        period_ms = self._cluster.shape.overrides.get(RETENTION_CHECK)
        if period_ms is None:
            return
        await self._cluster.wait_until(lambda: not any(self._too_long()), ROUNDS_MAX * int(period_ms))
        for broker, place in self._too_long():
            text = "a log keeps segments that its retention lets go"
            self._cluster.report.fail("L11", text, partition=place, node=broker)
        for topic in self._cluster.image.topics:
            if topic.name in self._living:
                for index, state in topic.partitions():
                    begins = [self._cluster.begin_of(each, topic.name, index) for each in state.replicas]
                    self.deleted[topic.name] += sum(begins)
                    self.judged += len(state.replicas) * (BY_SIZE in self._cluster.image.topic_configs(topic.name))

    def _too_long(self) -> Iterator[tuple[int, TopicPartition]]:
        """Return (broker, partition) of replicas whose oldest segment should have been deleted."""
        image = self._cluster.image
        for topic in image.topics:
            limit = image.topic_configs(topic.name).get(BY_SIZE)
            if limit is not None:
                for index, state in topic.partitions():
                    for broker in state.replicas:
                        sizes = self._cluster.segment_sizes(broker, topic.name, index)
                        if sum(sizes[1:]) >= int(limit) and len(sizes) > 1:
                            yield broker, (topic.name, index)
