"""CreatePartitions: a topic gets more partitions (kraft-spec B.4). Existing ones do not move.

A large request is decided in slices, with other commands in between: a topic may be seen with a part of its new
partitions. If leadership is lost on the way, the same request goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from kraft.control.assignment import Refused, assign_manually, assign_replicas, partition_events, survey
from kraft.control.commands import AdminRequest, RestOfGrowth
from kraft.control.decision import EVENTS_PER_COMMAND_MAX, EVENTS_PER_SLICE, Context, Decision, FollowUp
from kraft.control.draw import Draw
from kraft.control.topic_names import KEYED_TOPICS
from kraft.control.topics import TOO_MANY_EVENTS
from kraft.image import MetadataImage
from kraft.image.events import Event
from kraft.wire.error_codes import ErrorCode


def decide_create_partitions(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """CreatePartitions in its newest version; each topic succeeds or fails alone."""
    request = command.request
    if not request.validate_only and EVENTS_PER_SLICE < _growth(image, request) <= EVENTS_PER_COMMAND_MAX:
        return decide_rest_of_growth(image, context, RestOfGrowth(asked=command))
    draw = Draw(context.seed)
    events: list[Event] = []
    results: list[tuple[str, ErrorCode, str | None]] = []
    names = [topic.name for topic in request.topics]
    times = Counter(names)
    grown = 0
    for topic in request.topics:
        if grown > EVENTS_PER_COMMAND_MAX:
            break
        if times[topic.name] > 1:
            outcome: list[Event] | Refused = Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name} stands twice")
        else:
            outcome = _grow_one(image, context, command, topic, draw)
        if isinstance(outcome, Refused):
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
    """How many partitions a request wants in all; 0 if some are placed by hand, or a topic stands twice."""
    if any(asked.assignments is not None for asked in request.topics):
        return 0
    if len({asked.name for asked in request.topics}) < len(request.topics):
        return 0
    known = ((asked, image.topics.get(asked.name)) for asked in request.topics)
    return sum(max(0, asked.count - topic.partition_count) for asked, topic in known if topic is not None)


def _count(image: MetadataImage, name: str) -> int:
    topic = image.topics.get(name)
    return 0 if topic is None else topic.partition_count


def decide_rest_of_growth(image: MetadataImage, context: Context, rest: RestOfGrowth) -> Decision:
    """The topics from `rest.first` on, as many partitions as a slice takes."""
    topics = rest.asked.request.topics
    draw = Draw(context.seed)
    events: list[Event] = []
    results = list(rest.results)
    number, has_begun = rest.first, rest.has_begun
    while number < len(topics):
        room = EVENTS_PER_SLICE - len(events)
        if room <= 0:
            later = replace(rest, first=number, has_begun=has_begun, results=tuple(results))
            return Decision(events=tuple(events), depends_on=image.offset, effects=(FollowUp(later),))
        asked = topics[number]
        topic = image.topics.get(asked.name)
        count = _count(image, asked.name)
        if has_begun and count >= asked.count:
            outcome: list[Event] | Refused = []  # another request has done the rest
        else:
            wanted = min(asked.count, count + room) if topic is not None else asked.count
            outcome = _grow_one(image, context, rest.asked, replace(asked, count=wanted), draw)
        if isinstance(outcome, Refused):
            results.append((asked.name, outcome.code, outcome.message))
        else:
            events += outcome
            if count + len(outcome) < asked.count:
                has_begun = True
                continue
            results.append((asked.name, ErrorCode.NONE, None))
        number, has_begun = number + 1, False
    return Decision(events=tuple(events), reply=_response(results), depends_on=image.offset)


def _grow_one(
    image: MetadataImage, context: Context, command: AdminRequest, asked: Any, draw: Draw
) -> list[Event] | Refused:
    if not context.authorize(command.requester, "ALTER", "TOPIC", asked.name):
        return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    topic = image.topics.get(asked.name)
    if topic is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this cluster has no such topic")
    more = asked.count - topic.partition_count
    if more <= 0:
        verb = "already has" if more == 0 else "would shrink: it has"
        return Refused(ErrorCode.INVALID_PARTITIONS, f"topic {asked.name} {verb} {topic.partition_count} partitions")
    if asked.name in KEYED_TOPICS:
        why = f"topic {asked.name} cannot grow: its keys would be looked for in other partitions than they are in"
        return Refused(ErrorCode.INVALID_PARTITIONS, why)
    if topic.holdings.reassigning:
        return Refused(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"a partition of topic {asked.name} is being reassigned")
    if more > EVENTS_PER_COMMAND_MAX:
        return Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_EVENTS)
    factor = len(topic.partition(0).replicas)
    brokers = survey(image, context)
    if asked.assignments is None:
        if command.request.validate_only:  # whether there is room for a partition does not depend on how many they are
            more = min(more, EVENTS_PER_SLICE)
        assigned = assign_replicas(brokers, more, factor, draw, topic.holdings)
    elif len(asked.assignments) != more:
        return Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions are added, but {len(asked.assignments)} assignments were given",
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
    if isinstance(assigned, Refused):
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
