"""Synchronous: plan where the micro-batches of a topic stream begin and end. One planner lives as long as its query.

Invariants: a micro-batch depends only on its start and end offsets. A new partition first appears in an end offset,
with its earliest offset, so that the next micro-batch reads all of it. If there is nothing to read, the given offset is
returned unchanged.
Source: Spark's MicroBatchStream, SupportsAdmissionControl, SupportsTriggerAvailableNow.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kraft.client.core.records import TopicPartition
from kraft.client.spark.blocking.cluster import OffsetAt, SyncCluster
from kraft.client.spark.settings import Position, TopicSettings
from kraft.client.spark.topics.data_loss import report_loss
from kraft.client.spark.topics.group_commits import GroupCommits
from kraft.client.spark.topics.positions import reject_unread, resolve_position
from kraft.client.spark.topics.ranges import OffsetRange, split_ranges
from kraft.client.spark.topics.stream_ends import StreamEnds
from kraft.client.spark.topics.stream_limits import OffsetsMinimum, RecordBytes, limit_ends, strictest_limit
from kraft.client.spark.topics.stream_offsets import (
    Changes,
    CommitTarget,
    JsonOffset,
    StreamOffset,
    find_changes,
    offset_json,
    parse_offset,
    read_ranges,
)

SAMPLED_MAX = 8
"""Maximum partitions per micro-batch of which a batch is sampled to estimate record sizes."""
COMMIT_NOTE = "spark"
"""Metadata of the planner's offset commits. It is constant, because Spark gives the planner neither the query's id nor
the micro-batch's."""
_LATEST = Position(kind="latest")
_NOTHING = StreamOffset(ends={})


class StreamPlanner:
    """Plans the micro-batches of one query."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._cluster = SyncCluster(settings.connection)
        self._ends = StreamEnds(self._cluster, settings)
        self._targets: dict[TopicPartition, OffsetAt] | None = None
        self._initial: JsonOffset | None = None
        self._hold = OffsetsMinimum(settings.offsets_per_trigger_min, settings.trigger_delay_max_ms)
        self._record_bytes = RecordBytes()
        self._commits: GroupCommits | None = None
        self._commit_target: CommitTarget | None = None
        if settings.commit_group is not None:
            self._commits = GroupCommits(self._cluster, settings.commit_group)
            bootstrap = settings.connection.bootstrap_servers
            self._commit_target = CommitTarget(group_id=settings.commit_group, bootstrap=bootstrap)

    def initial_offset(self) -> JsonOffset:
        """Return the offset at which a query without a checkpoint begins, which is resolved only once. Raises
        OptionError for a position that does not fit the topics, KafkaError for a topic that does not exist,
        ClusterUnreachable."""
        if self._initial is None:
            self._ends.discover(is_first=True)
            position = self._settings.starting or _LATEST
            reject_unread(position, self._ends.partitions)
            found = self._targets
            if found is None or position.kind != "latest":
                found = resolve_position(
                    self._cluster,
                    position,
                    self._ends.partitions if found is None else found,
                    fail_on_missing_timestamp=self._settings.fail_on_missing_timestamp,
                    read_committed=self._settings.fetch.read_committed,
                )
            self._initial = self._json({tp: at.offset for tp, at in found.items()})
        return self._initial

    def fix_targets(self) -> None:
        """Store the present ends as targets: the end of this run. Later partitions and records are read by the next
        run."""
        self._ends.request_ends(_NOTHING)
        self._targets = dict(self._ends.latest)

    def next_offset(self, start: Mapping[str, Any], *, unlimited: bool) -> JsonOffset:
        """Return the end of the micro-batch that begins at `start`. If there is nothing to read yet, return `start`
        itself, after a pause.

        Raises DataLost if a topic or records that should be read are gone and failOnDataLoss is set;
        ClusterUnreachable."""
        if self._commits is not None:
            self._commits.commit_waiting()
        begun = parse_offset(start)
        found: JsonOffset | None = None
        wait = self._ends.wait_seconds
        if self._targets is not None:
            found = self._next(begun, self._confirmed_targets(begun), unlimited)
        else:
            if wait > 0:
                found = self._next(begun, self._ends.latest, unlimited)
            if found is None:
                time.sleep(max(0.0, wait))
                self._ends.request_ends(begun)
                found = self._next(begun, self._ends.latest, unlimited)
        return dict(start) if found is None else found

    def known_offset(self) -> JsonOffset | None:
        """Return the last known ends of the partitions without a request; None before the first response."""
        latest = self._ends.latest if self._targets is None else self._targets
        return self._json({tp: at.offset for tp, at in latest.items()}) if latest else None

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
        """Return the ranges that the tasks of a micro-batch read. Requests are sent only to find unknown leaders."""
        first, last = parse_offset(start), parse_offset(end)
        bounds = read_ranges(first, last)
        unknown = {topic for topic, _ in bounds if topic not in self._cluster.topics}
        if unknown:
            self._cluster.refresh(unknown)
        settings = self._settings
        return split_ranges(
            [self._range(tp, bounds[tp], first, last) for tp in bounds],
            partitions_min=settings.partitions_min,
            records_max=settings.records_per_partition_max,
        )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit the end of a micro-batch to the group of option `commitGroup`. A failure is only logged."""
        if self._commits is not None:
            self._commits.offer(parse_offset(end), COMMIT_NOTE)

    def close(self) -> None:
        """Close all sockets."""
        self._cluster.close()

    def _confirmed_targets(self, start: StreamOffset) -> dict[TopicPartition, OffsetAt]:
        """Return the targets. If they lack a partition that was already read, first request the ends again."""
        targets = self._targets or {}
        changes = find_changes(start, targets, self._ends.ids(targets))
        if changes.lost or changes.recreated:
            self._ends.request_ends(start)
            targets = self._targets = dict(self._ends.latest)
        return targets

    # the next end

    def _next(
        self, start: StreamOffset, latest: Mapping[TopicPartition, OffsetAt], unlimited: bool
    ) -> JsonOffset | None:
        """Return the end of the next micro-batch; None if there is nothing to read, or less than the
        required minimum."""
        changes = find_changes(start, latest, self._ends.ids(latest))
        ends = self._kept_ends(start, {tp: latest[tp].offset for tp in changes.kept})
        is_lossy = bool(changes.lost or changes.recreated) or any(end < start.ends[tp] for tp, end in ends.items())
        if not is_lossy and not changes.new:
            if all(end == start.ends[tp] for tp, end in ends.items()):
                return None
            if not unlimited and self._waits_for_more(start, ends):
                return None
        self._report_losses(start, changes, ends)
        if not unlimited:
            ends = limit_ends(start.ends, ends, self._offsets_max(start, ends))
        epochs = {tp: latest[tp].leader_epoch for tp, end in ends.items() if end == latest[tp].offset}
        epochs |= {tp: start.epochs[tp] for tp, end in ends.items() if end == start.ends[tp] and tp in start.epochs}
        return self._json({**ends, **self._ends.earliest(changes.new)}, epochs)

    def _kept_ends(self, start: StreamOffset, latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the latest offset of each partition. If a target is below the query's position because it is old,
        return a newer offset, so that this does not count as a loss."""
        ends = dict(latest)
        low = [tp for tp, end in latest.items() if end < start.ends[tp]]
        if low and self._targets is not None:
            self._ends.request_ends(start)
            for tp in low:
                now = self._ends.latest.get(tp)
                ends[tp] = ends[tp] if now is None else min(now.offset, start.ends[tp])
        return ends

    def _report_losses(self, start: StreamOffset, changes: Changes, ends: Mapping[TopicPartition, int]) -> None:
        """Report records that should be read but no longer exist: raise DataLost, or log a warning."""
        gone = [(tp, "the topic or partition no longer exists", "nothing", -1) for tp in changes.lost]
        gone += [(tp, "the topic was deleted and recreated", "the new topic", -1) for tp in changes.recreated]
        gone += [
            (tp, "the log ends before what was read", f"offsets below {end}", start.ends[tp] - end)
            for tp, end in ends.items()
            if end < start.ends[tp]
        ]
        for (topic, partition), why, available, count in gone:
            report_loss(
                fail=self._settings.fail_on_data_loss,
                topic=topic,
                partition=partition,
                wanted=f"offset {start.ends[topic, partition]} on",
                available=available,
                count=count,
                why=why,
            )

    def _waits_for_more(self, start: StreamOffset, ends: Mapping[TopicPartition, int]) -> bool:
        if self._targets is not None:
            return False
        offsets = sum(end - start.ends[tp] for tp, end in ends.items())
        self._hold, waits = self._hold.next(offsets, time.monotonic() * 1000)
        return waits

    def _offsets_max(self, start: StreamOffset, ends: Mapping[TopicPartition, int]) -> int | None:
        """Return the maximum number of offsets of a micro-batch, by the limits on offsets and on bytes; None:
        no limit."""
        bytes_max = self._settings.bytes_per_trigger_max
        if bytes_max is None:
            return self._settings.offsets_per_trigger_max
        lags = {tp: end - start.ends[tp] for tp, end in ends.items() if end > start.ends[tp]}
        self._sample(start, lags)
        return strictest_limit(self._settings.offsets_per_trigger_max, self._record_bytes.offsets_within(bytes_max))

    def _sample(self, start: StreamOffset, lags: Mapping[TopicPartition, int]) -> None:
        """Sample the next batch of the partitions with the largest lag, and update the estimated record size."""
        # imported only here, because it loads numpy and few streams need it
        from kraft.client.spark.topics.record_sampling import sample_batch

        seen = [
            sample_batch(self._cluster, self._settings, OffsetRange(*tp, start.ends[tp], start.ends[tp] + 1))
            for tp in sorted(lags, key=lambda one: (-lags[one], one))[:SAMPLED_MAX]
        ]
        self._record_bytes = self._record_bytes.seen(sum(one[0] for one in seen), sum(one[1] for one in seen))

    def _json(
        self, ends: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None
    ) -> JsonOffset:
        """Return the offset as JSON, with its topics' ids and the group to which it is committed."""
        ids = {name: topic_id for name, topic_id in self._ends.ids(ends).items() if topic_id is not None}
        known = {tp: epoch for tp, epoch in (epochs or {}).items() if epoch >= 0}
        return offset_json(StreamOffset(ends=ends, ids=ids, epochs=known, commit=self._commit_target))

    def _range(
        self, tp: TopicPartition, bounds: tuple[int, int], first: StreamOffset, last: StreamOffset
    ) -> OffsetRange:
        topic = self._cluster.topics.get(tp[0])
        topic_id = last.ids.get(tp[0])
        leader = topic.leaders.get(tp[1]) if topic is not None and topic.topic_id == topic_id else None
        return OffsetRange(
            topic=tp[0],
            partition=tp[1],
            start=bounds[0],
            end=bounds[1],
            topic_id=topic_id,
            start_epoch=first.epochs.get(tp, -1),
            leader=None if leader is None else self._cluster.brokers.get(leader.node_id),
            leader_epoch=-1 if leader is None else leader.epoch,
        )
