"""TopicsObserver: what the user's own program did to its topics, as far as an outside client can observe it.

    observer = TopicsObserver(bootstrap, history, now_ms, ignored={"chaos"})
    nursery.start_soon(observer.follow)        # while the program runs: finds topics and reads their records
    …
    findings = await observer.finish()         # when the program has ended and everything is healed

It writes the reads of three kinds of processes to the history. `outside-reader` read while the program ran. `replica-N`
read the replicas of broker N directly, leader or follower. The final reader read everything at the end. From these
reads the checker of sends and polls finds replicas that disagree, records that were read and later vanished, and
readers that skipped a record.

The acknowledgements that the program received are not known here. So the loss of a record that no reader saw cannot be
detected. Records are identified by a hash of key, value, headers and timestamp.

Reads of the outside reader are compared only where their records must still exist. Topics that were deleted, recreated
or compacted are excluded, and so are offsets before the log start offset. Because that is known only at the end,
`finish` writes the outside reader's events to the history; `read_ms` is the time of each poll.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import trio

from kraft.client import Consumer
from kraft.client.admin import EARLIEST, LATEST, Admin, ConfigResource, ResourceType, TopicDescription
from kraft.client.cluster import Cluster, ClusterUnreachable, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import ConsumerRecord, KafkaError, TopicPartition
from kraft.client.default_seam import default_seam
from kraft.seam import WireError, sole_error
from kraft.sim.chaos.application.replica_reader import Extent, read_replica
from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType, HistoryRecorder

OUTSIDE_READER = "outside-reader"
REPLICA = "replica-{}"
"""Process name of the reads from one broker's replicas."""
NOT_KNOWN = (
    "Which records were acknowledged to the application is not known: the loss of a record that "
    "no reader had read cannot be detected."
)

LOOK_EVERY_MS = 1_000
"""Milliseconds between two searches for new topics."""
LOOK_TIMEOUT_MS = 3_000
POLL_MS = 200
REST_MS = 200
"""Milliseconds for which the outside reader backs off after a failure."""
RECORDS_MAX = 200_000
"""Maximum number of records kept from the outside reader. Also the maximum number of records that are read from each
partition at the end."""
FINISH_TIMEOUT_MS = 60_000
"""Timeout of each of the two last reads: from the replicas, and by the final reader."""
QUIET_MS = 1_200
"""Milliseconds without a record after which the final reader counts as having reached the end."""
SHOWN_BYTES_MAX = 60

_FAILURES = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError, WireError)
_Records = dict[TopicPartition, list[tuple[int, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsFindings:
    """How much was observed. `records`: number read by the final reader. `replicas`: number of replicas that were read
    to their end. `trouble`: why this is not enough for a verdict. `notes`: what was excluded, and why."""

    topics: tuple[str, ...] = ()
    records: int = 0
    read_along: int = 0
    replicas: int = 0
    notes: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()


@dataclass(slots=True)
class _Polled:
    """One event of the outside reader: it began to read the partitions `places`, or it received records."""

    at_ms: float
    places: tuple[TopicPartition, ...] = ()
    records: _Records = field(default_factory=dict)


@dataclass(slots=True)
class _Ends:
    """Start and end offsets of each partition when the run is over."""

    topics: tuple[TopicDescription, ...] = ()
    extents: dict[TopicPartition, Extent] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()


def text_of(record: ConsumerRecord) -> str:
    """Return a record as it is written to the history: the first characters of its value, and a hash of the whole
    record."""
    parts = (record.key, record.value, *(part for name, value in record.headers for part in (name.encode(), value)))
    digest = hashlib.blake2b(repr((parts, record.timestamp_ms)).encode(), digest_size=8).hexdigest()
    shown = (record.value or b"")[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
    return f"{shown} #{digest}"


class TopicsObserver:
    """Observes topics of a program; see the module. `ignored` are topics that are not the program's. Kafka's internal
    topics are always ignored."""

    def __init__(
        self, bootstrap: str, history: HistoryRecorder, now_ms: Callable[[], float], *, ignored: Collection[str] = ()
    ) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._now_ms = now_ms
        self._ignored = frozenset(ignored)
        self._ids: dict[str, UUID | None] = {}
        """Topic → its topic id when it was first seen."""
        self._renewed: set[str] = set()
        """Topics that were deleted and recreated."""
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._next: dict[TopicPartition, int] = {}
        self._polled: list[_Polled] = []
        self.read_along = 0
        """Number of records that the outside reader has received while the program ran."""
        self._notes: list[str] = []
        self._trouble: list[str] = []

    @property
    def known_topics(self) -> tuple[str, ...]:
        """Names of the topics found so far."""
        return tuple(self._ids)

    # while the program runs

    async def follow(self) -> None:
        """Find topics and read them, until cancelled. Failures are expected and retried."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_for_topics)
            while self.read_along < RECORDS_MAX:
                try:
                    await self._read_along()
                except (*_FAILURES, BaseExceptionGroup) as problem:
                    if not isinstance(sole_error(problem), _FAILURES):
                        raise
                await trio.sleep(REST_MS / 1000)
            self._notes.append(f"Only the first {RECORDS_MAX} records of the application were read during the run.")

    async def _look_for_topics(self) -> None:
        while True:
            try:
                async with self._admin() as admin:
                    while True:
                        self._learn(await admin.topics.list())
                        await trio.sleep(LOOK_EVERY_MS / 1000)
            except _FAILURES:
                await trio.sleep(REST_MS / 1000)

    def _learn(self, topics: Sequence[TopicDescription]) -> None:
        there = [topic for topic in topics if self._is_looked_at(topic)]
        for topic in there:
            known = self._ids.setdefault(topic.name, topic.topic_id)
            if known != topic.topic_id:
                self._ids[topic.name] = topic.topic_id
                self._renewed.add(topic.name)
        self._wanted = frozenset(
            (topic.name, part.index) for topic in there if topic.name not in self._renewed for part in topic.partitions
        )

    def _is_looked_at(self, topic: TopicDescription) -> bool:
        return not topic.is_internal and not topic.name.startswith("__") and topic.name not in self._ignored

    async def _read_along(self) -> None:
        """Read the requested partitions from where the last read stopped. Returns when no partition is requested, or
        RECORDS_MAX is reached."""
        assigned: frozenset[TopicPartition] = frozenset()
        async with self._consumer(OUTSIDE_READER) as consumer:
            while self._wanted and self.read_along < RECORDS_MAX:
                if self._wanted != assigned:
                    assigned = self._wanted
                    self._polled.append(_Polled(self._now_ms(), tuple(sorted(assigned))))
                    await consumer.assign(assigned, at={tp: self._next.get(tp, 0) for tp in assigned})
                records = await consumer.poll(timeout_ms=POLL_MS)
                if records:
                    self.read_along += len(records)
                    self._polled.append(_Polled(self._now_ms(), records=_grouped(records)))
                    self._next.update({(each.topic, each.partition): each.offset + 1 for each in records})

    # when the run is over

    async def finish(self) -> TopicsFindings:
        """Read all partitions from every replica, then as an ordinary consumer. Call it when `follow` is cancelled,
        nothing writes any more and the cluster is healed. Never raises because of the cluster."""
        replicas = records = 0
        ends = _Ends()
        try:
            with trio.fail_after(FINISH_TIMEOUT_MS / 1000):
                ends = await self._find_ends()
            self._write_read_along(ends)
            replicas = await self._read_replicas(ends)
            records = await self._read_at_last(ends)
        except (*_FAILURES, trio.TooSlowError, BaseExceptionGroup) as problem:
            cause = sole_error(problem)
            if not isinstance(cause, (*_FAILURES, trio.TooSlowError)):
                raise
            why = "there was no answer in time" if isinstance(cause, trio.TooSlowError) else str(cause)
            self._trouble.append(f"The application's topics could not be read at the end: {why}")
        if not ends.extents and not self._trouble:
            self._notes.append("No topic of the application remained to be checked.")
        return TopicsFindings(
            topics=tuple(sorted({topic.name for topic in ends.topics})),
            records=records,
            read_along=self.read_along,
            replicas=replicas,
            notes=(NOT_KNOWN, *self._notes),
            trouble=tuple(self._trouble),
        )

    async def _find_ends(self) -> _Ends:
        async with self._admin() as admin:
            listed = await admin.topics.list()
            self._learn(listed)
            topics = tuple(topic for topic in listed if self._is_looked_at(topic))
            compacted = set()
            for topic in topics:
                for entry in await admin.configs.describe(ConfigResource(ResourceType.TOPIC, topic.name)):
                    if entry.name == "cleanup.policy" and "compact" in (entry.value or ""):
                        compacted.add(topic.name)
            every = {(part.topic, part.index) for topic in topics for part in topic.partitions}
            first = await admin.partitions.offsets(dict.fromkeys(every, EARLIEST)) if every else {}
            last = await admin.partitions.offsets(dict.fromkeys(every, LATEST)) if every else {}
        extents = {tp: Extent(first[tp].offset, last[tp].offset) for tp in sorted(every)}
        for tp, extent in extents.items():
            if extent.end - extent.start > RECORDS_MAX:
                extents[tp] = Extent(extent.start, extent.start + RECORDS_MAX)
                count = extent.end - extent.start
                self._notes.append(f"{tp[0]}-{tp[1]} has {count} records: only {RECORDS_MAX} are compared.")
        self._note_left_out({topic.name for topic in topics}, compacted)
        return _Ends(topics, extents, frozenset(compacted))

    def _note_left_out(self, there: Collection[str], compacted: Collection[str]) -> None:
        gone = sorted(self._ids.keys() - there)
        for names, why in (
            (gone, "was deleted, so records read during the run are not compared"),
            (sorted(self._renewed), "was deleted and recreated, so records read during the run are not compared"),
            (sorted(compacted), "is compacted, so neither records read during the run nor its replicas are compared"),
        ):
            self._notes += [f"Topic {name} {why}." for name in names]

    def _write_read_along(self, ends: _Ends) -> None:
        """Write the outside reader's events, without records that may have been deleted."""
        removed = 0
        for polled in self._polled:
            if polled.places:
                places = [list(tp) for tp in polled.places if self._is_compared(tp, ends)]
                self._write(OUTSIDE_READER, Function.ASSIGN, read_ms=polled.at_ms, places=places)
                continue
            kept: _Records = {}
            for tp, records in polled.records.items():
                if not self._is_compared(tp, ends):
                    continue
                extent = ends.extents[tp]
                # A read at or after the final end offset must still exist; only offsets before the log start may be
                # missing.
                bound = extent.end if extent.end - extent.start == RECORDS_MAX else float("inf")
                kept[tp] = [record for record in records if extent.start <= record[0] < bound]
                removed += sum(offset < extent.start for offset, _ in records)
            if any(kept.values()):
                self._write(OUTSIDE_READER, Function.POLL, read_ms=polled.at_ms, records=_as_json(kept))
        if removed:
            self._notes.append(
                f"{removed} records read during the run lie before the start of their logs now: they were deleted, or "
                "expired by retention."
            )

    def _is_compared(self, tp: TopicPartition, ends: _Ends) -> bool:
        return tp in ends.extents and tp[0] not in self._renewed and tp[0] not in ends.compacted

    async def _read_replicas(self, ends: _Ends) -> int:
        """Read each replica directly; return the number of replicas read to their end."""
        by_node: dict[int, dict[TopicPartition, Extent]] = defaultdict(dict)
        for topic in ends.topics:
            for part in topic.partitions if topic.name not in ends.compacted else ():
                for node in part.replicas:
                    by_node[node][(part.topic, part.index)] = ends.extents[(part.topic, part.index)]
        count = 0
        async with default_seam() as seam:
            cluster = Cluster(
                parse_bootstrap(self._bootstrap), seam, client_id=REPLICA.format("reader"), may_create_topics=False
            )
            try:
                await cluster.refresh([topic.name for topic in ends.topics], timeout_ms=FINISH_TIMEOUT_MS)
                for node, extents in sorted(by_node.items()):
                    count += await self._read_replica(cluster, node, extents)
            finally:
                cluster.close()
        return count

    async def _read_replica(self, cluster: Cluster, node: int, extents: dict[TopicPartition, Extent]) -> int:
        read: _Records = defaultdict(list)

        def take(tp: TopicPartition, records: list[ConsumerRecord]) -> None:
            bound = extents[tp].end
            read[tp] += [(record.offset, text_of(record)) for record in records if record.offset < bound]

        problems = await read_replica(cluster, node, extents, take, timeout_ms=FINISH_TIMEOUT_MS)
        self._trouble += problems.values()
        if any(read.values()):
            self._write(REPLICA.format(node), Function.POLL, records=_as_json(read))
        return len(extents) - len(problems)

    async def _read_at_last(self, ends: _Ends) -> int:
        """Read everything as an ordinary consumer until no more records come; return the number of records."""
        count = 0
        if not ends.extents:
            return 0
        async with self._consumer(FINAL_READER) as consumer:
            starts = {tp: extent.start for tp, extent in ends.extents.items()}
            self._write(FINAL_READER, Function.ASSIGN, places=[list(tp) for tp in starts])
            await consumer.assign(starts, at=starts)
            reached, behind = dict(starts), list(starts)
            with trio.move_on_after(FINISH_TIMEOUT_MS / 1000):
                while True:
                    records = await self._poll_at_last(consumer, ends)
                    for record in records:
                        reached[(record.topic, record.partition)] = record.offset + 1
                    count += len(records)
                    reached.update({tp: max(reached[tp], consumer.position(tp)) for tp in starts})
                    behind = [tp for tp in starts if reached[tp] < ends.extents[tp].end]
                    if not records and not behind:
                        return count
        places = ", ".join(f"{topic}-{partition}" for topic, partition in behind)
        self._trouble.append(f"The final reader did not reach the end of {places or 'what still grows'}.")
        return count

    async def _poll_at_last(self, consumer: Consumer, ends: _Ends) -> list[ConsumerRecord]:
        """Poll once as the final reader, and record it in the history."""
        invocation = self._history.invoke(FINAL_READER, Function.POLL)
        try:
            polled = await consumer.poll(timeout_ms=QUIET_MS)
        except BaseException as problem:
            self._history.complete(invocation, HistoryEventType.INFO, error=str(problem) or type(problem).__name__)
            raise
        records = [
            record
            for record in polled
            if record.offset < ends.extents[(record.topic, record.partition)].start + RECORDS_MAX
        ]
        self._history.complete(invocation, HistoryEventType.OK, records=_as_json(_grouped(records)))
        return records

    def _write(self, process: str, f: Function, **values: Any) -> None:
        """Write an operation that was carried out earlier to the history."""
        self._history.complete(self._history.invoke(process, f), HistoryEventType.OK, **values)

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._bootstrap, client_id=OUTSIDE_READER, timeout_ms=LOOK_TIMEOUT_MS)

    def _consumer(self, name: str) -> Consumer:
        return Consumer(
            bootstrap_servers=self._bootstrap,
            client_id=name,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            default_api_timeout_ms=LOOK_TIMEOUT_MS,
            max_poll_records=5_000,
        )


def _grouped(records: Sequence[ConsumerRecord]) -> _Records:
    grouped: _Records = {}
    for record in records:
        grouped.setdefault((record.topic, record.partition), []).append((record.offset, text_of(record)))
    return grouped


def _as_json(records: _Records) -> list[Any]:
    """Return records in the format of Function.POLL."""
    return [[topic, partition, [list(one) for one in of]] for (topic, partition), of in records.items() if of]
