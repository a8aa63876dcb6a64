"""Synchronous: the partitions that a stream reads, and their end offsets as brokers report them.

Brokers together get at most one request per poll interval on average, however many leaders there are.
Source: SPARK-26267 (ends that decrease for a moment), KIP-207 (a new leader's high watermark).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from uuid import UUID

from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.spark.blocking.cluster import KnownTopic, OffsetAt, SyncCluster
from kraft.client.spark.blocking.retries import MISSING, Pause
from kraft.client.spark.settings import EARLIEST, LATEST, TopicSelection, TopicSettings
from kraft.client.spark.topics.positions import end_offsets, find_partitions, find_topics
from kraft.client.spark.topics.stream_offsets import StreamOffset, find_changes

FRESH_SECONDS = 1.0
"""Age in seconds below which metadata is not requested again, before a micro-batch with rows or while the stream has no
partitions."""
BELIEVED_MS = 2_000
"""Milliseconds for which a loss must be reported before it counts: an end below the offset already read, a missing
partition, or another topic id. A new leader, or a broker with old metadata, may report these for a moment."""


class StreamEnds:
    """The state of a stream's partitions as brokers last reported it. `latest`: the newest end of each partition; empty
    before the first response."""

    def __init__(self, cluster: SyncCluster, settings: TopicSettings) -> None:
        self.cluster = cluster
        self.partitions: list[TopicPartition] = []
        self.latest: dict[TopicPartition, OffsetAt] = {}
        self._settings = settings
        self._discovered_at = float("-inf")
        self._request_at = float("-inf")

    @property
    def wait_seconds(self) -> float:
        """Return the seconds until the next request to brokers may be sent; zero or negative: now."""
        return self._request_at - time.monotonic()

    def discover(self, *, is_first: bool) -> None:
        """Find the partitions of the stream. For a topic or partition that does not exist, raise KafkaError if
        `is_first`, otherwise leave it out."""
        selection = self._settings.topics
        try:
            topics = find_topics(self.cluster, selection)
        except KafkaError as problem:
            if is_first or problem.code not in MISSING:
                raise
            topics = {name: topic for name, topic in self.cluster.topics.items() if name in _names(selection)}
        self.partitions = find_partitions(topics, selection if is_first else _existing(selection, topics))
        self._discovered_at = time.monotonic()

    def request_ends(self, start: StreamOffset) -> None:
        """Request the ends now, and the topics if their next request is due. If the response shows a loss since
        `start`, request again until the loss disappears or has lasted for BELIEVED_MS. Raises KafkaError or
        ClusterUnreachable."""
        now = time.monotonic()
        due_seconds = self._settings.connection.metadata_max_age_ms / 1000
        if now - self._discovered_at >= (due_seconds if self.partitions else min(FRESH_SECONDS, due_seconds)):
            self.discover(is_first=False)
        self._list_all(start)
        self._confirm_low(start)
        if self._has_news(start):
            self._refresh_topics(start)
        self._confirm_gone(start)
        leaders = {self._leader(tp) for tp in self.latest}
        answered = time.monotonic()
        pause = self._settings.poll_interval_ms / 1000 * max(1, len(leaders))
        self._request_at = max(now + pause, answered + answered - now)  # at most half of the time passes in requests

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the earliest offset of each of these partitions."""
        found = self.cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {tp: at.offset for tp, at in found.items()}

    def ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID | None]:
        """Return the ids of the topics of these partitions."""
        names = {topic for topic, _ in partitions}
        return {name: self.cluster.topics[name].topic_id for name in names if name in self.cluster.topics}

    def _list_all(self, start: StreamOffset) -> None:
        try:
            self.latest = self._list_ends(start)
        except KafkaError as problem:
            if problem.code not in MISSING:
                raise
            self.discover(is_first=False)  # the topic or partition was deleted; continue with the others
            self.latest = self._list_ends(start)

    def _list_ends(self, start: StreamOffset) -> dict[TopicPartition, OffsetAt]:
        return end_offsets(
            self.cluster,
            self.partitions,
            self._settings.fetch,
            lambda tp, offset: self._is_low(start, tp, offset),
            read_committed=self._settings.fetch.read_committed,
        )

    def _is_low(self, start: StreamOffset, tp: TopicPartition, offset: int) -> bool:
        """Whether a reported end is below the offset already read, although the topic was not recreated."""
        topic = self.cluster.topics.get(tp[0])
        is_same = topic is None or start.ids.get(tp[0], topic.topic_id) == topic.topic_id
        return is_same and offset < start.ends.get(tp, 0)

    def _confirm_low(self, start: StreamOffset) -> None:
        """Request ends that are too low again until they are no longer too low, for at most BELIEVED_MS."""
        pause = Pause(BELIEVED_MS)
        low = self._low(start)
        while low and pause.once_more():
            self.cluster.refresh({topic for topic, _ in low})
            read_committed = self._settings.fetch.read_committed
            self.latest |= self.cluster.list_offsets(dict.fromkeys(low, LATEST), read_committed=read_committed)
            low = self._low(start)

    def _confirm_gone(self, start: StreamOffset) -> None:
        """Request metadata again while partitions already read are missing, or their topic has another id, for at most
        BELIEVED_MS."""
        pause = Pause(BELIEVED_MS)
        while self._is_gone(start) and pause.once_more():
            self.discover(is_first=False)
            self._list_all(start)

    def _is_gone(self, start: StreamOffset) -> bool:
        changes = find_changes(start, self.latest, self.ids(self.latest))
        return bool(changes.lost or changes.recreated)

    def _low(self, start: StreamOffset) -> list[TopicPartition]:
        return [tp for tp, at in self.latest.items() if self._is_low(start, tp, at.offset)]

    def _has_news(self, start: StreamOffset) -> bool:
        return any(at.offset != start.ends.get(tp) for tp, at in self.latest.items())

    def _refresh_topics(self, start: StreamOffset) -> None:
        """Request metadata of the topics with changed ends, before a micro-batch is planned, to find new leaders, new
        partitions and recreated topics."""
        if time.monotonic() - self.cluster.refreshed_at < FRESH_SECONDS:
            return
        names = {tp[0] for tp, at in self.latest.items() if at.offset != start.ends.get(tp)}
        before = {name: self._shape(name) for name in names}
        self.cluster.refresh(names)
        if any(self._shape(name) != shape for name, shape in before.items()):
            self.discover(is_first=False)
            self._list_all(start)

    def _shape(self, name: str) -> tuple[UUID | None, tuple[int, ...]] | None:
        topic = self.cluster.topics.get(name)
        return None if topic is None else (topic.topic_id, tuple(topic.leaders))

    def _leader(self, tp: TopicPartition) -> int:
        topic = self.cluster.topics.get(tp[0])
        leader = None if topic is None else topic.leaders.get(tp[1])
        return -1 if leader is None else leader.node_id


def _names(selection: TopicSelection) -> frozenset[str]:
    return frozenset(selection.assign or selection.subscribe or ())


def _existing(selection: TopicSelection, topics: Mapping[str, KnownTopic]) -> TopicSelection:
    """Return the selection without assigned partitions that do not exist."""
    if selection.assign is None:
        return selection
    return TopicSelection(
        assign={
            name: tuple(index for index in indexes if index in topics[name].leaders)
            for name, indexes in selection.assign.items()
            if name in topics
        }
    )
