"""PartitionTally: metrics over all partitions, updated with each published change so that the partitions are never
recounted.

Source: Kafka's ControllerMetricsChanges.
"""

from __future__ import annotations

from kraft.image import ImageDelta, MetadataImage, PartitionState
from kraft.image.delta import TopicDelta
from kraft.image.partitions import NO_LEADER, TopicImage


class PartitionTally:
    """Counts of partitions in the newest published image, and of elections since the node started. `published`
    subscribes to the publisher."""

    def __init__(self) -> None:
        self.partitions = 0
        self.offline = 0
        """Number of partitions without a leader."""
        self.not_preferred = 0
        """Number of partitions whose leader is not their preferred replica."""
        self.unclean_elections = 0
        """Number of elections of leaders that were neither in the ISR nor in the ELR."""
        self.eligible_elections = 0
        """Number of elections of leaders that were in the ELR instead of the ISR (KIP-966)."""

    def published(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> None:
        """Update the counts for a published change."""
        for topic_id in delta.deleted_topics:
            topic = old.topics.get_by_id(topic_id)
            if topic is not None:
                self._add_all(topic, -1)
        for topic_id, changed in delta.topics.items():
            topic, before = new.topics.get_by_id(topic_id), old.topics.get_by_id(topic_id)
            if topic is None:
                continue
            if before is None:
                self._add_all(topic, 1)
            else:
                self._change(before, topic, changed)

    def _add_all(self, topic: TopicImage, sign: int) -> None:
        self.partitions += sign * topic.partition_count
        for leaf in topic.leaves:
            for state in leaf:
                leader = state.leader
                if leader != state.replicas[0]:
                    self.not_preferred += sign
                    if leader == NO_LEADER:
                        self.offline += sign

    def _change(self, before: TopicImage, topic: TopicImage, changed: TopicDelta) -> None:
        self.partitions += topic.partition_count - before.partition_count
        for index in changed.partitions:
            then, now = before.find(index), topic.find(index)
            if then is not None:
                self._count(then, -1)
            if now is not None:
                self._count(now, 1)
                if then is not None and now.leader not in (then.leader, NO_LEADER):
                    self._elected(then, now)

    def _count(self, state: PartitionState, sign: int) -> None:
        self.offline += sign * (state.leader == NO_LEADER)
        self.not_preferred += sign * (state.leader != state.replicas[0])

    def _elected(self, then: PartitionState, now: PartitionState) -> None:
        if now.leader in then.isr:
            return
        if now.leader in then.elr:
            self.eligible_elections += 1
        else:
            self.unclean_elections += 1
