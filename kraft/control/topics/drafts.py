"""A topic with very many new partitions, decided in steps with no other command in between (`FollowUp.at_once`): it is
created, or grows, as a whole, in one batch, and yet no step is long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from kraft.control.decision import EVENTS_PER_SLICE, Context
from kraft.control.topics.assignment import (
    Assigned,
    Refused,
    Survey,
    assign_manually,
    assign_replicas,
    partition_events,
)
from kraft.control.topics.draw import Draw
from kraft.image import MetadataImage
from kraft.image.events import Event
from kraft.image.partitions import NOTHING_HELD, Holdings


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDraft:
    """The topic so far. `partitions` are wanted, `placed` of them have replicas; `held` is what brokers have of these;
    `events` create what there is not yet of the topic, its configs and those partitions. `by_hand`: partition number →
    replicas, if the request says so."""

    topic_id: UUID
    configs: Mapping[str, str]
    partitions: int
    replication_factor: int
    events: tuple[Event, ...]
    placed: int = 0
    held: Holdings = NOTHING_HELD
    by_hand: Mapping[int, tuple[int, ...]] | None = None

    @property
    def is_complete(self) -> bool:
        return self.placed == self.partitions


def extend_draft(
    image: MetadataImage, context: Context, brokers: Survey, draft: TopicDraft, draw: Draw
) -> TopicDraft | Refused:
    """The draft with as many more partitions as a step takes."""
    more = min(EVENTS_PER_SLICE, draft.partitions - draft.placed)
    if draft.by_hand is None:
        assigned = assign_replicas(brokers, more, draft.replication_factor, draw, draft.held)
    else:
        numbers = range(draft.placed, draft.placed + more)
        assigned = assign_manually(image, context, draft.by_hand, numbers, replication_factor=draft.replication_factor)
    if isinstance(assigned, Refused):
        return assigned
    return replace(
        draft,
        events=draft.events + tuple(partition_events(brokers, draft.topic_id, draft.placed, assigned, draw)),
        placed=draft.placed + more,
        held=_with(draft.held, assigned),
    )


def _with(held: Holdings, assigned: list[Assigned]) -> Holdings:
    replicas, preferred = dict(held.replicas), dict(held.preferred)
    for one in assigned:
        preferred[one.replicas[0]] = preferred.get(one.replicas[0], 0) + 1
        for broker_id in one.replicas:
            replicas[broker_id] = replicas.get(broker_id, 0) + 1
    return Holdings(replicas, preferred, 0)
