"""Pure: the latest state of the cluster as the console received it, and the alarms that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kraft.client.admin import (
    ClusterDescription,
    GroupListing,
    PartitionDescription,
    QuorumDescription,
    Reassignment,
    TopicDescription,
)

EXAMPLES_MAX = 5
TopicPartition = tuple[str, int]


class Severity(Enum):
    """Severity of an alarm."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A problem of the cluster. `link` is the address of a page with details."""

    severity: Severity
    title: str
    text: str
    link: str


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Responses of one round of requests. If a request failed, `problems` names its part. The part is then None or
    empty; only `groups` keeps the groups of the previous round. `min_isr` has the known min.insync.replicas by topic.
    """

    taken_ms: int
    cost_ms: float
    cluster: ClusterDescription | None = None
    quorum: QuorumDescription | None = None
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    groups: tuple[GroupListing, ...] = ()
    reassignments: Mapping[TopicPartition, Reassignment] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def partitions(self) -> Iterator[PartitionDescription]:
        for topic in self.topics.values():
            yield from topic.partitions

    def is_under_min_isr(self, partition: PartitionDescription) -> bool:
        return len(partition.isr) < self.min_isr.get(partition.topic, 0)

    def _is_healthy(self, partition: PartitionDescription) -> bool:
        replicas, in_sync = partition.replicas, len(partition.isr)
        return (
            in_sync == len(replicas)
            and replicas[:1] == (partition.leader,)
            and not self.reassignments
            and in_sync >= self.min_isr.get(partition.topic, 0)
        )

    def states(self, partition: PartitionDescription) -> tuple[str, ...]:
        """Return the states of this partition, such as under-replicated; each is one of STATES."""
        if self._is_healthy(partition):  # true for nearly all partitions
            return ()
        found = [
            ("offline", partition.leader is None),
            ("under-min-isr", self.is_under_min_isr(partition)),
            ("under-replicated", partition.is_under_replicated),
            ("not-preferred", partition.leader not in (None, *partition.replicas[:1])),
            ("moving", (partition.topic, partition.index) in self.reassignments),
        ]
        return tuple(name for name, holds in found if holds)


STATES = ("offline", "under-min-isr", "under-replicated", "not-preferred", "moving")
"""States of partitions, by which users can filter."""


def find_alarms(snapshot: ClusterSnapshot) -> tuple[Alarm, ...]:
    """Return the problems of the cluster, worst first."""
    return tuple(
        sorted(
            [*_alarms_of_nodes(snapshot), *_alarms_of_partitions(snapshot)],
            key=lambda alarm: alarm.severity is Severity.WARNING,
        )
    )


def _alarms_of_nodes(snapshot: ClusterSnapshot) -> Iterator[Alarm]:
    quorum, cluster = snapshot.quorum, snapshot.cluster
    if quorum is not None and quorum.leader is None:
        yield Alarm(Severity.ERROR, "No controller", "the metadata quorum has no leader: nothing can change", "/nodes")
    if quorum is None and snapshot.cluster is not None and "quorum" in snapshot.problems:
        why = snapshot.problems["quorum"]
        yield Alarm(Severity.WARNING, "Quorum unknown", f"the metadata quorum does not answer: {why}", "/nodes")
    if quorum is not None and quorum.leader is not None:
        late = [one.node_id for one in quorum.voters if is_late(one.last_caught_up_ms, snapshot.taken_ms)]
        if late:
            yield Alarm(Severity.WARNING, "Voters behind", f"{_nodes(late)} not caught up with the quorum", "/nodes")
    if cluster is not None:
        fenced = [one.node_id for one in cluster.brokers if one.is_fenced]
        gone = sorted(assigned_brokers(snapshot) - {one.node_id for one in cluster.brokers})
        if fenced:
            yield Alarm(Severity.WARNING, "Brokers fenced", f"{_nodes(fenced)} registered, but not serving", "/nodes")
        if gone:
            yield Alarm(Severity.ERROR, "Brokers missing", f"{_nodes(gone)} missing, but with replicas", "/nodes")


LATE_MS = 10_000
"""Milliseconds without catching up after which a voter counts as late."""


def is_late(last_caught_up_ms: int | None, now_ms: int) -> bool:
    """Whether a voter is late. False for the leader, and if the leader reports no time."""
    return last_caught_up_ms is not None and last_caught_up_ms > 0 and now_ms - last_caught_up_ms > LATE_MS


def assigned_brokers(snapshot: ClusterSnapshot) -> set[int]:
    """Return the ids of the brokers to which a replica is assigned."""
    return {replica for partition in snapshot.partitions() for replica in partition.replicas}


_PARTITION_ALARMS = (
    ("offline", Severity.ERROR, "Offline partitions", "without a leader: they cannot be read or written"),
    ("under-min-isr", Severity.ERROR, "Under min ISR", "with fewer replicas in sync than acks=all needs"),
    ("under-replicated", Severity.WARNING, "Under-replicated", "with replicas that are not in sync"),
)


def _alarms_of_partitions(snapshot: ClusterSnapshot) -> Iterator[Alarm]:
    found: dict[str, list[str]] = {}
    for partition in snapshot.partitions():
        for state in snapshot.states(partition):
            found.setdefault(state, []).append(f"{partition.topic}-{partition.index}")
    for state, severity, title, text in _PARTITION_ALARMS:
        names = found.get(state, [])
        if names:
            shown = ", ".join(names[:EXAMPLES_MAX]) + (" …" if len(names) > EXAMPLES_MAX else "")
            count = "1 partition" if len(names) == 1 else f"{len(names):,} partitions"
            yield Alarm(severity, title, f"{count} {text}: {shown}", f"/partitions?state={state}")


def _nodes(ids: list[int]) -> str:
    return f"node {ids[0]} is" if len(ids) == 1 else f"nodes {', '.join(map(str, ids))} are"
