"""A topic with very many new partitions, decided in steps with no other command in between (`FollowUp.at_once`). It is
created, or grows, as a whole and in one batch, and yet no step takes long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from kraft.control.decision import EVENTS_PER_SLICE, Context
from kraft.control.topics.assignment import (
    Assigned,
    BrokerSurvey,
    Refusal,
    assign_manually,
    assign_replicas,
    partition_events,
)
from kraft.control.topics.draw import Draw
from kraft.image import MetadataImage
from kraft.image.events import Event
from kraft.image.partitions import NO_COUNTS, TopicCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDraft:
    """A partly decided topic: `placed` of the requested `partitions` have replicas. `held` counts the replicas per
    broker. `events` create the parts of the topic that do not exist yet: topic, configs, and those partitions.
    `by_hand` maps partition number → replicas, if the request assigns them."""

    topic_id: UUID
    configs: Mapping[str, str]
    partitions: int
    replication_factor: int
    events: tuple[Event, ...]
    placed: int = 0
    held: TopicCounts = NO_COUNTS
    by_hand: Mapping[int, tuple[int, ...]] | None = None

    @property
    def is_complete(self) -> bool:
        return self.placed == self.partitions


def extend_draft(
    image: MetadataImage, context: Context, brokers: BrokerSurvey, draft: TopicDraft, draw: Draw
) -> TopicDraft | Refusal:
    """Return the draft with more partitions placed: as many as one step may place."""
    more = min(EVENTS_PER_SLICE, draft.partitions - draft.placed)
    if draft.by_hand is None:
        assigned = assign_replicas(brokers, more, draft.replication_factor, draw, draft.held)
    else:
        numbers = range(draft.placed, draft.placed + more)
        assigned = assign_manually(image, context, draft.by_hand, numbers, replication_factor=draft.replication_factor)
    if isinstance(assigned, Refusal):
        return assigned
    return replace(
        draft,
        events=draft.events + tuple(partition_events(brokers, draft.topic_id, draft.placed, assigned, draw)),
        placed=draft.placed + more,
        held=_with(draft.held, assigned),
    )


def _with(held: TopicCounts, assigned: list[Assigned]) -> TopicCounts:
    replicas, preferred = dict(held.replicas), dict(held.preferred)
    for one in assigned:
        preferred[one.replicas[0]] = preferred.get(one.replicas[0], 0) + 1
        for broker_id in one.replicas:
            replicas[broker_id] = replicas.get(broker_id, 0) + 1
    return TopicCounts(replicas, preferred, 0)
