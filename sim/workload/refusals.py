"""Check that a corrupt batch that readers reject is not served for long while another replica has it intact (L7).

A broker sends its bytes unchecked, and checks them when a reader has fetched them several times
(`repeated_read_checks`). This check counts how often a leader served one batch to the same reader, in one incarnation
and one fetch session. Any other fault of that leader, and any change of the partition, restarts the count. The broker's
check takes time, during which a reader may fetch again. So a finding needs both a minimum count and a minimum time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraft.broker.partition.repeated_reads import REPEATS_MAX
from kraft.image import PartitionState
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import ROT_KINDS

REFUSALS_MAX = 2 * REPEATS_MAX
"""Maximum number of rejections without a finding. The broker's check starts with rejection number REPEATS_MAX + 1, and
another request may be in flight by then."""
OFFERED_MS_MAX = 4_000
SESSION_SLOTS, SLOTS_MIN = "max.incremental.fetch.session.cache.slots", 10
"""Setting for the number of fetch sessions that a broker keeps, and the minimum value with which this check is made.
With fewer sessions a reader may have no fetch session, by which a broker recognises it."""


@dataclass(slots=True)
class _Offered:
    """A corrupt batch that was served to one reader `times` times since `since_ms`, with the state of the partition,
    which did not change meanwhile."""

    state: PartitionState
    since_ms: int
    times: int = 1


class Refusals:
    """Rejections of all readers of a run."""

    def __init__(self, cluster: SimCluster, places: Iterable[TopicPartition]) -> None:
        self._cluster = cluster
        self._places = tuple(places)
        self._offered: dict[tuple[str, TopicPartition], _Offered] = {}
        slots = int(cluster.shape.overrides.get(SESSION_SLOTS, SLOTS_MIN))
        self._may_be_noticed = slots >= SLOTS_MIN

    @property
    def count(self) -> int:
        """Number of times that a reader got a corrupt batch."""
        return self._cluster.refused.total()

    def begin(self, reader: str) -> None:
        """Record that a reader with this name starts; brokers have not seen it before."""
        for place in self._places:
            self._offered.pop((reader, place), None)

    def given(self, reader: str, places: Iterable[TopicPartition]) -> None:
        """Record that the reader received records of these partitions, so it has passed the batch that it rejected
        there."""
        for place in places:
            self._offered.pop((reader, place), None)

    def refused(self, reader: str, why: str) -> None:
        """Record that a reader got a corrupt batch. `why` is the client's error, which names the partition. If a broker
        answered with an error instead, nothing was served."""
        place = next((place for place in self._places if "{}-{}: ".format(*place) in why), None)
        if place is None:
            return
        self._cluster.refused[place] += 1
        state = self._must_be_noticed(place)
        if state is None:
            self._offered.pop((reader, place), None)
            return
        now_ms = self._cluster.watch.now_ms
        known = self._offered.get((reader, place))
        if known is None or known.state != state or self._is_disturbed(state.leader, known.since_ms):
            self._offered[reader, place] = _Offered(state, now_ms)
            return
        known.times += 1
        if known.times > REFUSALS_MAX and now_ms - known.since_ms > OFFERED_MS_MAX:
            text = "a corrupt batch is served endlessly, and other replicas have it whole"
            facts = {"reader": reader, "refusals": known.times, "leader": state.leader, "why": why}
            self._cluster.report.fail("L7", text, partition=place, **facts)
            del self._offered[reader, place]

    def _must_be_noticed(self, place: TopicPartition) -> PartitionState | None:
        """Return the partition's state if its leader must notice that readers reject its bytes. That requires another
        replica that could lead instead: in sync, active, and with an undamaged log."""
        cluster = self._cluster
        topic = cluster.image.topics.get(place[0])
        if topic is None or not self._may_be_noticed or cluster.loss():
            return None
        state = topic.partition(place[1])
        log = (cluster.watch.labels.of(topic.topic_id, topic.name), place[1])
        damage = cluster.watch.suite.damage
        others = (member for member in state.isr if member != state.leader)
        could_lead = any(cluster.image.is_active(member) and not damage.holds(member, log) for member in others)
        return state if could_lead else None

    def _is_disturbed(self, leader: int, since_ms: int) -> bool:
        """Return whether a fault has affected this broker since that time. The corruption itself does not count,
        because it began before any reader could reject it."""
        return any(
            leader in window.nodes
            and (window.end_ms is None or window.end_ms >= since_ms)
            and (window.kind not in ROT_KINDS or window.at_ms > since_ms)
            for window in self._cluster.watch.chronicle.windows
        )
