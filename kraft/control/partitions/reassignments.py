"""AlterPartitionReassignments and ListPartitionReassignments: moving replicas between brokers.

While a reassignment runs, a partition's replicas are those of the target, followed by those to remove. New replicas
join the in-sync set like any others. The change that makes the in-sync set cover the target also drops the other
replicas (`partition_change`). A target whose replicas are all in sync is therefore complete at once.

Invariants: no replica leaves the in-sync set before all of the target is in it (M15). Each partition succeeds or fails
alone. A large request is decided in slices.
Source: AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest, KIP-455, KIP-860, Kafka's
PartitionReassignmentReplicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from kraft.control.commands import START, AdminRequest, ReassignmentsSlice
from kraft.control.decision import EVENTS_PER_COMMAND_MAX, TOO_LARGE, Context, Decision, FollowUp
from kraft.control.partitions.partition_change import Election, PartitionTarget, change_partition
from kraft.control.partitions.plans import ElectionSettings, Located, eligibility, locate, partitions_from
from kraft.control.topics.assignment import Refusal, assignment_problem, directory_for
from kraft.control.topics.draw import Draw
from kraft.image import MetadataImage, PartitionState
from kraft.image.events import PartitionChange
from kraft.image.partitions import Replicas
from kraft.image.registrations import UNASSIGNED_DIRECTORY
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

ALTER_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
LIST_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
PARTITIONS_PER_SLICE = 250
"""Number of partitions in one slice, chosen so that a slice takes a few milliseconds."""


class _RequestedMove(NamedTuple):
    topic: str
    partition_id: int
    replicas: Replicas | None


def decide_alter_reassignments(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide an AlterPartitionReassignments request of the newest version."""
    request = command.request
    if not context.authorize(command.requester, "ALTER", "CLUSTER", "kafka-cluster"):
        return _refused(image, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    if sum(len(topic.partitions) for topic in request.topics) > EVENTS_PER_COMMAND_MAX:
        return _refused(image, request, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    wanted = tuple(_flattened(request))
    count = Counter((one.topic, one.partition_id) for one in wanted)
    doubled = frozenset(partition for partition, times in count.items() if times > 1)
    return decide_reassignments_slice(image, context, ReassignmentsSlice(asked=command, wanted=wanted, doubled=doubled))


def decide_reassignments_slice(image: MetadataImage, context: Context, rest: ReassignmentsSlice) -> Decision:
    """Decide the next slice of the partitions that have no result yet."""
    request = rest.asked.request
    change = _Reassigner(image, context, allow_factor_change=request.allow_replication_factor_change)
    events: list[PartitionChange] = []
    answers = list(rest.answers)
    for one in map(_RequestedMove._make, rest.wanted[len(answers) : len(answers) + PARTITIONS_PER_SLICE]):
        if (one.topic, one.partition_id) in rest.doubled:
            outcome: PartitionChange | Refusal | None = Refusal(
                ErrorCode.INVALID_REQUEST, f"{one.topic}-{one.partition_id} stands twice"
            )
        else:
            outcome = change.decide(one)
        if isinstance(outcome, PartitionChange):
            events.append(outcome)
        answers.append(outcome if isinstance(outcome, Refusal) else Refusal(ErrorCode.NONE, None))
    if len(answers) < len(rest.wanted):
        effects = (FollowUp(replace(rest, answers=tuple(answers))),)
        return Decision(events=tuple(events), depends_on=image.offset, effects=effects)
    return Decision(events=tuple(events), reply=_altered(request, answers), depends_on=image.offset)


def _flattened(request: Any) -> Iterator[_RequestedMove]:
    for topic in request.topics:
        for one in topic.partitions:
            yield _RequestedMove(topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas))


class _Reassigner:
    """Starts and cancels reassignments; holds the data that the partitions of one slice share."""

    def __init__(self, image: MetadataImage, context: Context, *, allow_factor_change: bool) -> None:
        self._image = image
        self._settings = ElectionSettings(image, context)
        self._eligible = eligibility(image, context)
        self._draw = Draw(context.seed)
        self._allow_factor_change = allow_factor_change

    def decide(self, asked: _RequestedMove) -> PartitionChange | Refusal | None:
        """Return the change that starts or cancels a reassignment, None if nothing is to be done."""
        located = locate(self._image, asked.topic, asked.partition_id)
        if located is None:
            text = f"Unable to find partition {asked.topic}:{asked.partition_id}."
            if self._image.topics.get(asked.topic) is None:
                text = f"Unable to find a topic named {asked.topic}."
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if asked.replicas is None:
            return self._cancel(located)
        problem = assignment_problem(self._image, asked.partition_id, asked.replicas, len(asked.replicas))
        if problem is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        factor = len(set(located.state.replicas) - set(located.state.removing))
        if not self._allow_factor_change and factor != len(asked.replicas):
            text = f"The replication factor is changed from {factor} to {len(asked.replicas)}"
            return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        return self._move(located, asked.replicas)

    def _move(self, located: Located, wanted: Replicas) -> PartitionChange | None:
        state = located.state
        removing = tuple(sorted(set(state.replicas) - set(wanted)))
        settled = set(state.replicas) - set(state.adding)
        replicas = wanted + removing
        target = PartitionTarget(
            replicas=replicas,
            removing=removing,
            adding=tuple(sorted(set(wanted) - settled)),
            directories=self._directories(state, replicas),
        )
        return self._change(located, Election.ONLINE, target)

    def _directories(self, state: PartitionState, replicas: Replicas) -> tuple[UUID, ...]:
        """Return the directories of the replicas. New replicas get the directories of their broker in turn."""
        held = set(state.replicas)
        if not state.directories and held.issuperset(replicas):
            return ()
        turn = self._draw.below(1 << 16)
        return tuple(
            (state.directory_of(replica) or UNASSIGNED_DIRECTORY)
            if replica in held
            else directory_for(self._image, replica, turn)
            for replica in replicas
        )

    def _cancel(self, located: Located) -> PartitionChange | Refusal | None:
        """Drop the replicas being added and keep those being removed. If no remaining replica is in sync, this needs an
        unclean election."""
        state = located.state
        if not state.is_reassigning:
            return Refusal(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"No partition reassignment is in progress. {located.name} has none.",
            )
        kept = [index for index, replica in enumerate(state.replicas) if replica not in state.adding]
        isr = tuple(replica for replica in state.isr if replica not in state.adding)
        if not kept or (state.isr and not isr and not self._settings.is_unclean_enabled(located.topic.name)):
            place = f"{located.topic.name}:{located.partition_id}"
            text = (
                f"Unable to revert partition assignment for {place} because it would require an unclean leader "
                "election. "
                f"Of the replicas that would remain none is in sync (ISR {list(state.isr)})."
            )
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        target = PartitionTarget(
            isr=isr,
            replicas=tuple(state.replicas[index] for index in kept),
            removing=(),
            adding=(),
            directories=tuple(state.directories[index] for index in kept) if state.directories else None,
        )
        is_unclean = bool(state.isr) and not isr
        return self._change(located, Election.UNCLEAN if is_unclean else Election.ONLINE, target)

    def _change(self, located: Located, election: Election, target: PartitionTarget) -> PartitionChange | None:
        return change_partition(
            located.topic.topic_id,
            located.partition_id,
            located.state,
            election=election,
            eligibility=self._eligible,
            min_insync_replicas=self._settings.min_insync_replicas(located.topic.name),
            target=target,
        )


def decide_list_reassignments(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide ListPartitionReassignments: of the named partitions (null: of all), return those being reassigned. As a
    decision without events it waits until the state that it read is committed (M9)."""
    if not context.authorize(command.requester, "DESCRIBE", "CLUSTER", "kafka-cluster"):
        response = messages.build(
            messages.response_class(LIST_KEY), error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=()
        )
        return Decision(reply=response, depends_on=image.offset)
    wanted = command.request.topics
    found = partitions_from(image, START) if wanted is None else _located(image, wanted)
    return Decision(reply=_listed(found), depends_on=image.offset)


def _located(image: MetadataImage, wanted: Iterable[Any]) -> Iterator[Located]:
    for topic in wanted:
        for index in dict.fromkeys(topic.partition_indexes):
            located = locate(image, topic.name, index)
            if located is not None:
                yield located


def _listed(partitions: Iterable[Located]) -> Any:
    response = messages.response_class(LIST_KEY)
    topic_class = messages.nested_class(response, "topics")
    partition_class = messages.nested_class(topic_class, "partitions")
    topics: dict[str, list[Any]] = {}
    for topic, partition_id, state in partitions:
        if state.removing or state.adding:
            row = partition_class(
                partition_index=partition_id,
                replicas=state.replicas,
                adding_replicas=state.adding,
                removing_replicas=state.removing,
            )
            topics.setdefault(topic.name, []).append(row)
    rows = [messages.build(topic_class, name=name, partitions=tuple(found)) for name, found in topics.items()]
    return messages.build(response, error_message=None, topics=tuple(rows))


def _altered(request: Any, answers: list[Refusal]) -> Any:
    response = messages.response_class(ALTER_KEY)
    topic_class = messages.nested_class(response, "responses")
    partition_class = messages.nested_class(topic_class, "partitions")
    left = iter(answers)
    rows = [
        messages.build(
            topic_class,
            name=topic.name,
            partitions=tuple(
                partition_class(
                    partition_index=one.partition_index, error_code=answer.code, error_message=answer.message
                )
                for one, answer in zip(topic.partitions, left, strict=False)
            ),
        )
        for topic in request.topics
    ]
    return messages.build(
        response,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=tuple(rows),
    )


def _refused(image: MetadataImage, request: Any, code: ErrorCode, text: str | None) -> Decision:
    response = messages.build(
        messages.response_class(ALTER_KEY),
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=text,
        responses=(),
    )
    return Decision(reply=response, depends_on=image.offset)
