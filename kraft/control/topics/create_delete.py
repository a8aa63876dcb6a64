"""CreateTopics and DeleteTopics.

A large CreateTopics is decided in slices of whole topics, with other commands in between. A topic that is too large for
one slice is decided in steps, with no other command between them (`drafts`).

Invariants: each topic is created or rejected as a whole, and independently of the others. Name and id are a bijection,
and ids are never reused (M10). The first ISR holds the active replicas, in order of assignment, and is not empty.
`validate_only` does everything but write.
Source: CreateTopicsRequest, DeleteTopicsRequest, Kafka's ReplicationControlManager,
docs/decisions/20-steps-of-one-decision.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from kraft.config import ConfigError, validate_topic_configs
from kraft.control.commands import AdminRequest, CreateTopicsSlice
from kraft.control.configs.refusal import config_refusal
from kraft.control.configs.view import describe_topic_configs
from kraft.control.decision import EVENTS_PER_COMMAND_MAX, EVENTS_PER_SLICE, TOO_LARGE, Context, Decision, FollowUp
from kraft.control.topics.assignment import (
    Assigned,
    BrokerSurvey,
    Refusal,
    assign_manually,
    assign_replicas,
    partition_events,
    survey_brokers,
)
from kraft.control.topics.drafts import TopicDraft, extend_draft
from kraft.control.topics.draw import Draw
from kraft.control.topics.names import METADATA_TOPIC, topic_name_problem
from kraft.image import ConfigResourceType, MetadataImage
from kraft.image.events import Config, Event, RemoveTopic, Topic
from kraft.wire.error_codes import ErrorCode

TOO_MANY_EVENTS = (
    "Excessively large number of partitions per request. It needs more than "
    f"{EVENTS_PER_COMMAND_MAX} metadata events; ask for fewer partitions."
)
NO_SUCH_TOPIC = "This server does not host this topic-partition. There is no topic {}."


ShownConfigs = dict[tuple[tuple[str, str], ...], tuple[Any, ...]]
"""Cache: a topic's overrides → all its settings, as the response lists them."""


class _Created(NamedTuple):
    topic_id: UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    events: list[Event]


def decide_create_topics(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide a CreateTopics request of the newest version."""
    return decide_create_topics_slice(image, context, CreateTopicsSlice(asked=command))


def decide_create_topics_slice(image: MetadataImage, context: Context, rest: CreateTopicsSlice) -> Decision:
    """Decide the next slice of topics, from `rest.first` on."""
    command = rest.asked
    request = command.request
    is_sliced = _events_at_most(context, request) <= EVENTS_PER_COMMAND_MAX
    draw = Draw(context.seed)
    events: list[Event] = []
    results: list[Any] = list(rest.results)
    names = [topic.name for topic in request.topics]
    times = Counter(names)
    taken = _collision_keys(image) if any("." in name or "_" in name for name in names) else {}
    if request.validate_only:  # topics of earlier slices are not in the image
        taken.update({_collision_key(one.name): one.name for one in results if one.error_code is ErrorCode.NONE})
    refused_twice: set[str] = {one.name for one in results}
    shown: ShownConfigs = {}
    brokers = survey_brokers(image, context)
    for number in range(rest.first, len(names)):
        if len(events) > EVENTS_PER_COMMAND_MAX:
            break
        if is_sliced and len(events) >= EVENTS_PER_SLICE:
            return _go_on(image, events, replace(rest, first=number, results=tuple(results), draft=None))
        topic = request.topics[number]
        is_large = is_sliced and _is_large(context, topic)
        if is_large and events:
            return _go_on(image, events, replace(rest, first=number, results=tuple(results), draft=None))
        if times[topic.name] > 1:
            if topic.name not in refused_twice:
                refused_twice.add(topic.name)
                refusal = Refusal(ErrorCode.INVALID_REQUEST, f"Duplicate topic name. Name topic {topic.name} once.")
                results.append(_refused_result(topic.name, refusal))
            continue
        draft = rest.draft if number == rest.first else None
        outcome = _create_one(image, context, brokers, command, topic, draw, taken, draft, in_steps=is_large)
        if isinstance(outcome, TopicDraft):
            return _go_on(image, (), replace(rest, first=number, results=tuple(results), draft=outcome))
        if isinstance(outcome, Refusal):
            results.append(_refused_result(topic.name, outcome))
            continue
        events += outcome.events
        taken.setdefault(_collision_key(topic.name), topic.name)
        results.append(_created_result(image, context, command, topic.name, outcome, request.validate_only, shown))
    if len(events) > EVENTS_PER_COMMAND_MAX:
        refusal = Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_EVENTS)
        return _answer_create(image, [_refused_result(name, refusal) for name in dict.fromkeys(names)])
    answer = _answer_create(image, results)
    if request.validate_only:
        return answer
    return Decision(events=tuple(events), reply=answer.reply, depends_on=image.offset)


def _go_on(image: MetadataImage, events: Sequence[Event], rest: CreateTopicsSlice) -> Decision:
    follow_up = FollowUp(rest, at_once=rest.draft is not None)
    written = () if rest.asked.request.validate_only else tuple(events)
    return Decision(events=written, depends_on=image.offset, effects=(follow_up,))


def _is_large(context: Context, topic: Any) -> bool:
    """Return whether the topic is too large for one slice."""
    return (len(topic.assignments) or _partitions_wanted(context, topic)) > EVENTS_PER_SLICE


def _partitions_wanted(context: Context, topic: Any) -> int:
    wanted: int = topic.num_partitions
    return context.config.integer("num.partitions") if wanted == -1 else wanted


def _events_at_most(context: Context, request: Any) -> int:
    """Return an upper bound of the number of events of a request: rejected topics need no events."""
    default = context.config.integer("num.partitions")
    return sum(
        1 + len(topic.configs) + (len(topic.assignments) or max(0, topic.num_partitions) or default)
        for topic in request.topics
    )


def _create_one(
    image: MetadataImage,
    context: Context,
    brokers: BrokerSurvey,
    command: AdminRequest,
    topic: Any,
    draw: Draw,
    taken: Mapping[str, str],
    draft: TopicDraft | None,
    *,
    in_steps: bool,
) -> _Created | TopicDraft | Refusal:
    """Return the events of one new topic, or why it is rejected; with `in_steps`, a draft until it is complete."""
    if draft is not None:
        return _next_step(image, context, brokers, draft, draw)
    problem = _problem(image, context, command, topic.name, taken)
    if problem is not None:
        return problem
    configs = _valid_configs(image, context, topic)
    if isinstance(configs, Refusal):
        return configs
    by_hand = _by_hand(topic)
    if isinstance(by_hand, Refusal):
        return by_hand
    if in_steps:
        factor = _factor_wanted(context, topic) if by_hand is None else len(by_hand.get(0, ()))
        if isinstance(factor, Refusal):
            return factor
        topic_id = _new_id(image, draw)
        draft = TopicDraft(
            topic_id=topic_id,
            configs=configs,
            partitions=_partitions_wanted(context, topic) if by_hand is None else len(by_hand),
            replication_factor=factor,
            events=tuple(_events_before_partitions(topic.name, topic_id, configs)),
            by_hand=by_hand,
        )
        return _next_step(image, context, brokers, draft, draw)
    if by_hand is None:
        assigned = _assign(context, brokers, topic, draw)
    else:
        assigned = assign_manually(image, context, by_hand, range(len(by_hand)))
    if isinstance(assigned, Refusal):
        return assigned
    topic_id = _new_id(image, draw)
    events = _events_before_partitions(topic.name, topic_id, configs)
    events += partition_events(brokers, topic_id, 0, assigned, draw)
    return _Created(topic_id, len(assigned), len(assigned[0].replicas), configs, events)


def _next_step(
    image: MetadataImage, context: Context, brokers: BrokerSurvey, draft: TopicDraft, draw: Draw
) -> _Created | TopicDraft | Refusal:
    extended = extend_draft(image, context, brokers, draft, draw)
    if isinstance(extended, Refusal) or not extended.is_complete:
        return extended
    return _Created(
        extended.topic_id, extended.partitions, extended.replication_factor, extended.configs, list(extended.events)
    )


def _new_id(image: MetadataImage, draw: Draw) -> UUID:
    topic_id = draw.uuid()
    while image.topics.name_of(topic_id) is not None:
        topic_id = draw.uuid()
    return topic_id


def _events_before_partitions(name: str, topic_id: UUID, configs: Mapping[str, str]) -> list[Event]:
    events: list[Event] = [Topic(name, topic_id)]
    events += [Config(int(ConfigResourceType.TOPIC), name, key, value) for key, value in configs.items()]
    return events


def _problem(
    image: MetadataImage, context: Context, command: AdminRequest, name: str, taken: Mapping[str, str]
) -> Refusal | None:
    """Return why this requester cannot create a topic of this name, or None if it can."""
    allowed = context.authorize(command.requester, "CREATE", "CLUSTER", "kafka-cluster") or context.authorize(
        command.requester, "CREATE", "TOPIC", name
    )
    if not allowed:
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    problem = topic_name_problem(name)
    if problem is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == METADATA_TOPIC:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if name in image.topics:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(_collision_key(name))
    if other is not None:
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}. Metric names cannot tell '.' from '_'.",
        )
    return None


def _valid_configs(image: MetadataImage, context: Context, topic: Any) -> dict[str, str] | Refusal:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    values = {config.name: config.value for config in topic.configs}
    try:
        validate_topic_configs(values, image.broker_configs(context.config.node_id), context.config)
    except ConfigError as problem:
        return Refusal(ErrorCode.INVALID_CONFIG, config_refusal(problem, values, ConfigResourceType.TOPIC))
    return dict(sorted(values.items()))


def _by_hand(topic: Any) -> dict[int, tuple[int, ...]] | Refusal | None:
    """Return partition number → replicas from the request; None if the placer chooses."""
    if not topic.assignments:
        return None
    manual = "A manual partition assignment was specified, but"
    if topic.replication_factor != -1:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{manual} replication factor was not set to -1.")
    if topic.num_partitions != -1:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{manual} numPartitions was not set to -1.")
    by_hand = {one.partition_index: tuple(one.broker_ids) for one in topic.assignments}
    if len(by_hand) != len(topic.assignments):
        (twice, _), *_ = Counter(one.partition_index for one in topic.assignments).most_common(1)
        text = f"Found multiple manual partition assignments for partition {twice}"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return by_hand


def _assign(context: Context, brokers: BrokerSurvey, topic: Any, draw: Draw) -> list[Assigned] | Refusal:
    factor = _factor_wanted(context, topic)
    if isinstance(factor, Refusal):
        return factor
    partitions = _partitions_wanted(context, topic)
    if partitions <= 0:
        text = f"Number of partitions was set to an invalid non-positive value. It is {partitions}."
        return Refusal(ErrorCode.INVALID_PARTITIONS, text)
    if partitions > EVENTS_PER_COMMAND_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_EVENTS)
    assigned = assign_replicas(brokers, partitions, factor, draw)
    if isinstance(assigned, Refusal):
        return assigned._replace(message=f"Unable to replicate the partition {factor} time(s): {assigned.message}")
    return assigned


def _factor_wanted(context: Context, topic: Any) -> int | Refusal:
    wanted: int = topic.replication_factor
    factor = context.config.integer("default.replication.factor") if wanted == -1 else wanted
    if factor <= 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0, or -1 to use the default value. It is {factor}.",
        )
    return factor


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _collision_keys(image: MetadataImage) -> dict[str, str]:
    return {_collision_key(name): name for name in image.topics.names if "." in name or "_" in name}


def _answer_create(image: MetadataImage, results: list[Any]) -> Decision:
    from datetime import timedelta

    from kio.schema.create_topics.v7.response import CreateTopicsResponse

    reply = CreateTopicsResponse(throttle_time=timedelta(0), topics=tuple(results))
    return Decision(reply=reply, depends_on=image.offset)


def _refused_result(name: str, refusal: Refusal) -> Any:
    from kio.schema.create_topics.v7.response import CreatableTopicResult

    return CreatableTopicResult(
        name=name,
        topic_id=None,
        error_code=refusal.code,
        error_message=refusal.message,
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
    )


def _created_result(
    image: MetadataImage,
    context: Context,
    command: AdminRequest,
    name: str,
    created: _Created,
    validate_only: bool,
    shown: ShownConfigs,
) -> Any:
    """Return the result of one topic. `shown` caches the settings shown for other topics of this request, so that equal
    ones share one value."""
    from kio.schema.create_topics.v7.response import CreatableTopicResult

    may_see = context.authorize(command.requester, "DESCRIBE_CONFIGS", "TOPIC", name)
    if may_see:
        key = tuple(created.configs.items())
        configs = shown.get(key) or shown.setdefault(key, _shown_configs(image, context, created.configs))
    return CreatableTopicResult(
        name=name,
        topic_id=None if validate_only else created.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.NONE if may_see else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=created.partitions if may_see else -1,
        replication_factor=created.replication_factor if may_see else -1,
        configs=configs if may_see else None,
    )


def _shown_configs(image: MetadataImage, context: Context, configs: Mapping[str, str]) -> tuple[Any, ...]:
    from kio.schema.create_topics.v7.response import CreatableTopicConfigs

    return tuple(
        CreatableTopicConfigs(
            name=one.name,
            value=one.value,
            read_only=one.read_only,
            config_source=one.source,
            is_sensitive=one.is_sensitive,
        )
        for one in describe_topic_configs(image, context, configs)
    )


def decide_delete_topics(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide a DeleteTopics request of the newest version: by name or by id, with one event for each topic."""
    request = command.request
    asked = [(topic.name, topic.topic_id) for topic in request.topics]
    times = Counter(asked)
    results: list[tuple[str | None, UUID | None, ErrorCode, str | None]] = []
    events: list[Event] = []
    removed: set[UUID] = set()
    for name, topic_id in asked:
        misnamed = _naming_problem(name, topic_id, times[name, topic_id])
        if misnamed is not None:
            results.append((name, topic_id, ErrorCode.INVALID_REQUEST, misnamed))
            continue
        topic = image.topics.get(name) if name is not None else image.topics.get_by_id(topic_id or UUID(int=0))
        code, message = _refuse_delete(context, command, name, topic)
        if topic is None or code is not ErrorCode.NONE:
            results.append((name, topic_id, code, message))
            continue
        if topic.topic_id in removed:
            text = "The provided topic name maps to an ID that was already supplied."
            results.append((topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, text))
            continue
        removed.add(topic.topic_id)
        events.append(RemoveTopic(topic.topic_id))
        results.append((topic.name, topic.topic_id, ErrorCode.NONE, None))
    if len(events) > EVENTS_PER_COMMAND_MAX:
        events = []
        results = [(name, topic_id, ErrorCode.POLICY_VIOLATION, TOO_LARGE) for name, topic_id in asked]
    return Decision(events=tuple(events), reply=_delete_response(results), depends_on=image.offset)


def _naming_problem(name: str | None, topic_id: UUID | None, times: int) -> str | None:
    """Return what is wrong with the way in which a DeleteTopics request names a topic, or None."""
    if name is not None and topic_id is not None:
        return "You may not specify both topic name and topic id."
    if name is None and topic_id is None:
        return "Neither topic name nor id were specified."
    if times > 1:
        return "Duplicate topic id." if name is None else "Duplicate topic name."
    return None


def _refuse_delete(
    context: Context, command: AdminRequest, name: str | None, topic: Any
) -> tuple[ErrorCode, str | None]:
    """Return why a deletion is rejected, or None. For a name, the permission to describe it is checked before its
    existence. Ids are not secret, but the name that belongs to an id is."""
    known: str | None = topic.name if topic is not None else name
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    may_delete_all = context.authorize(command.requester, "DELETE", "CLUSTER", "kafka-cluster")
    may_delete = may_delete_all or context.authorize(command.requester, "DELETE", "TOPIC", known)
    may_describe = may_delete or context.authorize(command.requester, "DESCRIBE", "TOPIC", known)
    if topic is None and may_describe:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC.format(name)
    if not may_delete:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    if not context.config.boolean("delete.topic.enable"):
        return (
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled. Set delete.topic.enable=true on the controllers.",
        )
    return ErrorCode.NONE, None


def _delete_response(results: list[tuple[str | None, UUID | None, ErrorCode, str | None]]) -> Any:
    from datetime import timedelta

    from kio.schema.delete_topics.v6 import response as kio

    return kio.DeleteTopicsResponse(
        throttle_time=timedelta(0),
        responses=tuple(
            kio.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
            for name, topic_id, code, message in results
        ),
    )
