"""CreatePartitions: add partitions to a topic. Existing partitions do not move.

A topic grows as a whole or not at all. A large request is decided in slices of whole topics, with other commands in
between. A topic that is too large for one slice is decided in steps, with no other command between them (`drafts`).
Source: CreatePartitionsRequest, KIP-195.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kraft.control.commands import AdminRequest, CreatePartitionsSlice
from kraft.control.decision import EVENTS_PER_COMMAND_MAX, EVENTS_PER_SLICE, Context, Decision, FollowUp
from kraft.control.topics.assignment import (
    BrokerSurvey,
    Refusal,
    assign_manually,
    assign_replicas,
    partition_events,
    survey_brokers,
)
from kraft.control.topics.create_delete import NO_SUCH_TOPIC, TOO_MANY_EVENTS
from kraft.control.topics.drafts import TopicDraft, extend_draft
from kraft.control.topics.draw import Draw
from kraft.control.topics.names import KEYED_TOPICS
from kraft.image import MetadataImage
from kraft.image.events import Event
from kraft.image.partitions import TopicImage
from kraft.wire.error_codes import ErrorCode


def decide_create_partitions(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide a CreatePartitions request of the newest version; each topic succeeds or fails alone."""
    request = command.request
    if not request.validate_only and EVENTS_PER_SLICE < _growth(image, request) <= EVENTS_PER_COMMAND_MAX:
        return decide_create_partitions_slice(image, context, CreatePartitionsSlice(asked=command))
    draw, brokers = Draw(context.seed), survey_brokers(image, context)
    events: list[Event] = []
    results: list[tuple[str, ErrorCode, str | None]] = []
    names = [topic.name for topic in request.topics]
    times = Counter(names)
    grown = 0
    for topic in request.topics:
        if grown > EVENTS_PER_COMMAND_MAX:
            break
        if times[topic.name] > 1:
            outcome: list[Event] | Refusal = Refusal(
                ErrorCode.INVALID_REQUEST, f"Duplicate topic name. Name topic {topic.name} once."
            )
        else:
            outcome = _grow_one(image, context, command, topic, brokers, draw)
        if isinstance(outcome, Refusal):
            results.append((topic.name, outcome.code, outcome.message))
        else:
            events += outcome
            grown += topic.count - _count(image, topic.name)
            results.append((topic.name, ErrorCode.NONE, None))
    if grown > EVENTS_PER_COMMAND_MAX:
        events = []
        results = [(name, ErrorCode.POLICY_VIOLATION, TOO_MANY_EVENTS) for name in names]
    reply = _response(list(dict.fromkeys(results)))
    return Decision(events=() if request.validate_only else tuple(events), reply=reply, depends_on=image.offset)


def _growth(image: MetadataImage, request: Any) -> int:
    """Return how many partitions a request adds in total; 0 if it assigns some manually, or names a topic twice."""
    if any(asked.assignments is not None for asked in request.topics):
        return 0
    if len({asked.name for asked in request.topics}) < len(request.topics):
        return 0
    known = ((asked, image.topics.get(asked.name)) for asked in request.topics)
    return sum(max(0, asked.count - topic.partition_count) for asked, topic in known if topic is not None)


def _count(image: MetadataImage, name: str) -> int:
    topic = image.topics.get(name)
    return 0 if topic is None else topic.partition_count


def decide_create_partitions_slice(image: MetadataImage, context: Context, rest: CreatePartitionsSlice) -> Decision:
    """Decide the next slice of topics, from `rest.first` on."""
    topics = rest.asked.request.topics
    draw, brokers = Draw(context.seed), survey_brokers(image, context)
    events: list[Event] = []
    results = list(rest.results)
    for number in range(rest.first, len(topics)):
        asked = topics[number]
        is_large = asked.count - _count(image, asked.name) > EVENTS_PER_SLICE
        if len(events) >= EVENTS_PER_SLICE or (is_large and events):
            return _go_on(image, events, replace(rest, first=number, results=tuple(results), draft=None))
        if is_large:
            draft = rest.draft or _begin_draft(image, context, rest.asked, asked)
            outcome = draft if isinstance(draft, Refusal) else extend_draft(image, context, brokers, draft, draw)
            if isinstance(outcome, TopicDraft) and not outcome.is_complete:
                return _go_on(image, (), replace(rest, first=number, results=tuple(results), draft=outcome))
            grown: Sequence[Event] | Refusal = outcome if isinstance(outcome, Refusal) else outcome.events
        else:
            grown = _grow_one(image, context, rest.asked, asked, brokers, draw)
        rest = replace(rest, draft=None)
        if isinstance(grown, Refusal):
            results.append((asked.name, grown.code, grown.message))
        else:
            events += grown
            results.append((asked.name, ErrorCode.NONE, None))
    return Decision(events=tuple(events), reply=_response(results), depends_on=image.offset)


def _go_on(image: MetadataImage, events: Sequence[Event], rest: CreatePartitionsSlice) -> Decision:
    follow_up = FollowUp(rest, at_once=rest.draft is not None)
    return Decision(events=tuple(events), depends_on=image.offset, effects=(follow_up,))


def _begin_draft(image: MetadataImage, context: Context, command: AdminRequest, asked: Any) -> TopicDraft | Refusal:
    """Return an empty draft for a topic that grows by very many partitions."""
    topic = _growing(image, context, command, asked)
    if isinstance(topic, Refusal):
        return topic
    return TopicDraft(
        topic_id=topic.topic_id,
        configs={},
        partitions=asked.count,
        replication_factor=len(topic.partition(0).replicas),
        events=(),
        placed=topic.partition_count,
        held=topic.partition_counts,
    )


def _growing(image: MetadataImage, context: Context, command: AdminRequest, asked: Any) -> TopicImage | Refusal:
    """Return the topic, or why it may not grow to this size."""
    if not context.authorize(command.requester, "ALTER", "TOPIC", asked.name):
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    topic = image.topics.get(asked.name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC.format(asked.name))
    more = asked.count - topic.partition_count
    if more <= 0:
        text = f"Topic already has {topic.partition_count} partition(s)."
        if more < 0:
            there = f"The topic {asked.name} currently has {topic.partition_count} partition(s)"
            text = f"{there}; {asked.count} would not be an increase."
        return Refusal(ErrorCode.INVALID_PARTITIONS, text)
    if asked.name in KEYED_TOPICS:
        why = f"topic {asked.name} cannot grow: its keys would be looked for in other partitions than they are in"
        return Refusal(ErrorCode.INVALID_PARTITIONS, why)
    if topic.partition_counts.reassigning:
        return Refusal(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress. It is of topic {asked.name}."
        )
    if more > EVENTS_PER_COMMAND_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_EVENTS)
    return topic


def _grow_one(
    image: MetadataImage, context: Context, command: AdminRequest, asked: Any, brokers: BrokerSurvey, draw: Draw
) -> list[Event] | Refusal:
    topic = _growing(image, context, command, asked)
    if isinstance(topic, Refusal):
        return topic
    more = asked.count - topic.partition_count
    factor = len(topic.partition(0).replicas)
    if asked.assignments is None:
        if command.request.validate_only:  # whether a partition can be placed does not depend on their number
            more = min(more, EVENTS_PER_SLICE)
        assigned = assign_replicas(brokers, more, factor, draw, topic.partition_counts)
    elif len(asked.assignments) != more:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(asked.assignments)} assignment(s) "
            "were specified.",
        )
    else:
        numbered = {
            topic.partition_count + number: tuple(one.broker_ids) for number, one in enumerate(asked.assignments)
        }
        assigned = assign_manually(
            image,
            context,
            numbered,
            range(topic.partition_count, asked.count),
            first=topic.partition_count,
            replication_factor=factor,
        )
    if isinstance(assigned, Refusal):
        return assigned
    return partition_events(brokers, topic.topic_id, topic.partition_count, assigned, draw)


def _response(results: list[tuple[str, ErrorCode, str | None]]) -> Any:
    from datetime import timedelta

    from kio.schema.create_partitions.v3 import response as kio

    return kio.CreatePartitionsResponse(
        throttle_time=timedelta(0),
        results=tuple(
            kio.CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
            for name, code, message in results
        ),
    )
