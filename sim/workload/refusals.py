"""What readers refuse (L7): a damaged batch is offered for a while only, where another replica has it whole.

A broker sends its bytes without a look, and looks when a reader has come back for them some times (`refused_reads`).
What counts is how often the same reader, in one life and in one session, was offered the same batch by a leader that
could look: whatever else happens to that leader, and each change of the partition, makes the count begin anew. A look
takes time, and a reader may come back quickly meanwhile, so a finding needs both, so many refusals and so long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraft.broker.partition.repeated_reads import AGAIN_MAX
from kraft.image import PartitionState
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import ROT_KINDS

REFUSALS_MAX = 2 * AGAIN_MAX
"""The look begins with the refusal that has the number AGAIN_MAX + 1, and a request may be under way by then."""
OFFERED_MS_MAX = 4_000
SESSION_SLOTS, SLOTS_MIN = "max.incremental.fetch.session.cache.slots", 10
"""With fewer slots a reader may be without a session, by which a broker knows it again."""


@dataclass(slots=True)
class _Offered:
    """A batch that a reader was offered `times` times, since when, and what the partition was like all the time."""

    state: PartitionState
    since_ms: int
    times: int = 1


class Refusals:
    """Of all readers of a run."""

    def __init__(self, cluster: SimCluster, places: Iterable[TopicPartition]) -> None:
        self._cluster = cluster
        self._places = tuple(places)
        self._offered: dict[tuple[str, TopicPartition], _Offered] = {}
        slots = int(cluster.shape.overrides.get(SESSION_SLOTS, SLOTS_MIN))
        self._may_be_noticed = slots >= SLOTS_MIN

    @property
    def count(self) -> int:
        """How often a reader was told of a damaged batch."""
        return self._cluster.refused.total()

    def begin(self, reader: str) -> None:
        """Somebody begins to read under this name: brokers have not seen it before."""
        for place in self._places:
            self._offered.pop((reader, place), None)

    def given(self, reader: str, places: Iterable[TopicPartition]) -> None:
        """It was given records of these: whatever was refused there is behind it."""
        for place in places:
            self._offered.pop((reader, place), None)

    def refused(self, reader: str, why: str) -> None:
        """A reader was told of a damaged batch, in the words of the client, which name the partition; where a broker
        answered an error, nothing was offered."""
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
            text = "a damaged batch is offered on and on, and other replicas have it whole"
            facts = {"reader": reader, "refusals": known.times, "leader": state.leader, "why": why}
            self._cluster.report.fail("L7", text, partition=place, **facts)
            del self._offered[reader, place]

    def _must_be_noticed(self, place: TopicPartition) -> PartitionState | None:
        """The partition, if its leader must notice that readers refuse its bytes, and somebody else could lead then:
        another replica is in sync, active, and has the log whole."""
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
        """Whether a fault has hit this broker since then, or lasted still: but for the rot itself, which was there
        before anybody could refuse it."""
        return any(
            leader in window.nodes
            and (window.end_ms is None or window.end_ms >= since_ms)
            and (window.kind not in ROT_KINDS or window.at_ms > since_ms)
            for window in self._cluster.watch.chronicle.windows
        )
