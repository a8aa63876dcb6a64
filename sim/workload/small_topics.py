"""A client that creates many small topics: tens of them in one request, with a few records each.

Topics of one request succeed or fail one by one, so those that do not exist yet are requested again. An acknowledged
topic must exist at the end (M11). Its records are checked with those of all producers.

Each topic has at least two replicas: a partition on a single broker would exclude that broker from faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kraft.client.cluster import Cluster, parse_bootstrap
from kraft.seam import Seam
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import SMALL_TOPICS
from kraft.sim.workload.single_requests import NoClearAnswer, ask_any_once
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 5_000
RETRY_MS = 200
REPLICATION_FACTORS = (2, 3, 4)
IS_THERE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
SMALL = "small-"


def name_of(target: int) -> str:
    """Return the name of the small topic with this number."""
    return f"{SMALL}{target}"


class SmallTopics:
    """Client that creates small topics. `created` are the names of the acknowledged topics, in order."""

    def __init__(self, cluster: SimCluster) -> None:
        self.created: dict[str, None] = {}
        self._cluster = cluster

    async def create(self, seam: Seam, wanted: Mapping[int, int], *, is_over: Callable[[], bool]) -> None:
        """Create these topics (number → value that selects the topic's replicas), all in one request. Topics that
        failed are requested again, until all exist or the run's work is over."""
        servers = parse_bootstrap(self._cluster.shape.bootstrap_servers)
        client = Cluster(servers, seam, client_id=SMALL_TOPICS)
        left = {name_of(target): self._replication_factor(amount) for target, amount in wanted.items()}
        try:
            while left and not is_over():
                for name in await self._ask_for(client, left):
                    self.created[name] = None
                    del left[name]
                if left:
                    await self._cluster.world.sleep_ms(RETRY_MS)
        finally:
            client.close()

    def _replication_factor(self, amount: int) -> int:
        return min(REPLICATION_FACTORS[amount % len(REPLICATION_FACTORS)], len(self._cluster.shape.broker_ids))

    async def _ask_for(self, client: Cluster, left: Mapping[str, int]) -> list[str]:
        """Send one request for all of these (name → replicas); return those that exist now."""
        topics: list[dict[str, Any]] = [
            {"name": name, "num_partitions": 1, "replication_factor": replicas} for name, replicas in left.items()
        ]
        told = self._cluster.watch.chronicle.begin_operation(SMALL_TOPICS, f"creates {len(left)} topics")
        try:
            answer = await ask_any_once(
                client,
                ApiKey.CREATE_TOPICS,
                timeout_ms=REQUEST_TIMEOUT_MS,
                topics=topics,
                timeout=messages.duration(REQUEST_TIMEOUT_MS),
            )
        except NoClearAnswer:
            self._cluster.watch.chronicle.end_operation(told, "no answer", None)
            return []
        there = [str(row.name) for row in answer.topics if ErrorCode(int(row.error_code)) in IS_THERE]
        self._cluster.watch.chronicle.end_operation(told, f"{len(there)} are there", len(there) == len(left))
        return there

    def existing(self) -> Iterator[str]:
        """Return the acknowledged topics that exist by committed metadata."""
        return (name for name in self.created if name in self._cluster.image.topics.names)

    def judge(self) -> None:
        """Compare the acknowledged topics with the committed metadata at the end."""
        for name in self.created:
            if name not in self._cluster.image.topics.names:
                self._cluster.report.fail("M11", "a topic that was created is not there", topic=name)
