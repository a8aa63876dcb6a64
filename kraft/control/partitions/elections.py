"""Requested elections: ElectLeaders, and the balance of preferred leaders (KIP-183, KIP-460).

Invariant: a preferred election is clean; an unclean one happens only where an operator or the topic's configuration
asks for it (M5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kraft.control.commands import START, AdminRequest, RebalanceLeaders
from kraft.control.decision import EVENTS_PER_COMMAND_MAX, PARTITIONS_PER_SLICE_MAX, Context, Decision, FollowUp
from kraft.control.partitions.partition_change import Election, change_partition
from kraft.control.partitions.plans import (
    ElectionSettings,
    Located,
    eligibility,
    locate,
    partitions_from,
    partitions_where,
    take_slice,
)
from kraft.image import MetadataImage, PartitionState
from kraft.image.events import Event, PartitionChange
from kraft.image.partitions import NO_LEADER
from kraft.wire.error_codes import ErrorCode

ELECTION_TYPES: Mapping[int, Election] = MappingProxyType({0: Election.PREFERRED, 1: Election.UNCLEAN})


class _Result(NamedTuple):
    partition_id: int
    code: ErrorCode
    message: str | None


def decide_elect_leaders(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide an ElectLeaders request of the newest version. A null list means all partitions; partitions that need no
    election are then left out of the response."""
    request = command.request
    election = ELECTION_TYPES.get(request.election_type)
    if not context.authorize(command.requester, "ALTER", "CLUSTER", "kafka-cluster"):
        return _answer(image, {}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if election is None:
        return _answer(image, {}, ErrorCode.INVALID_REQUEST)
    everything = request.topic_partitions is None
    events: list[Event] = []
    results: dict[str, list[_Result]] = {}
    settings = ElectionSettings(image, context)
    eligible = eligibility(image, context)

    def elect(located: Located) -> _Result:
        code, event = elect_one(located, election, settings, eligible)
        if event is not None:
            events.append(event)
        return _Result(located.partition_id, code, _reason(code, located))

    if everything:
        for located in partitions_from(image, START):
            result = elect(located)
            if result.code is not ErrorCode.ELECTION_NOT_NEEDED:
                results.setdefault(located.topic.name, []).append(result)
    else:
        for asked in request.topic_partitions:
            answers = results.setdefault(asked.topic, [])
            for partition_id in dict.fromkeys(asked.partitions):
                found = locate(image, asked.topic, partition_id)
                if found is None:
                    is_known = image.topics.get(asked.topic) is not None
                    answers.append(_unknown(asked.topic, partition_id, is_known=is_known))
                else:
                    answers.append(elect(found))
    if len(events) > EVENTS_PER_COMMAND_MAX:
        return _answer(image, {}, ErrorCode.POLICY_VIOLATION)
    answer = _answer(image, results, ErrorCode.NONE)
    return Decision(events=tuple(events), reply=answer.reply, depends_on=image.offset)


def elect_one(
    located: Located, election: Election, settings: ElectionSettings, eligible: Any
) -> tuple[ErrorCode, PartitionChange | None]:
    """Return the outcome of one requested election."""
    state = located.state
    if election is Election.PREFERRED and state.leader == state.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    if election is Election.UNCLEAN and state.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    change = change_partition(
        located.topic.topic_id,
        located.partition_id,
        state,
        election=election,
        eligibility=eligible,
        min_insync_replicas=settings.min_insync_replicas(located.topic.name),
    )
    if change is not None and change.leader >= 0:
        return ErrorCode.NONE, change
    if election is Election.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None


def decide_rebalance(image: MetadataImage, context: Context, command: RebalanceLeaders) -> Decision:
    """Move up to 1,000 partitions back to their preferred leader; the others as a follow-up."""
    settings = ElectionSettings(image, context)
    eligible = eligibility(image, context)

    def change(located: Located) -> PartitionChange | None:
        code, event = elect_one(located, Election.PREFERRED, settings, eligible)
        return event if code is ErrorCode.NONE else None

    def may_move(state: PartitionState) -> bool:
        return state.leader != state.replicas[0] and state.replicas[0] in state.isr

    part = take_slice(partitions_where(image, command.cursor, may_move), change, looks_max=PARTITIONS_PER_SLICE_MAX)
    rest = () if part.cursor is None else (FollowUp(RebalanceLeaders(cursor=part.cursor)),)
    return Decision(events=tuple(part.events), depends_on=image.offset, effects=rest)


def is_imbalanced(image: MetadataImage) -> bool:
    """Return whether the leader of any partition is not its preferred replica."""
    return any(state.leader != state.replicas[0] for topic in image.topics for leaf in topic.leaves for state in leaf)


def _unknown(topic: str, partition_id: int, *, is_known: bool) -> _Result:
    text = f"No such partition as {topic}-{partition_id}" if is_known else f"No such topic as {topic}"
    return _Result(partition_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _reason(code: ErrorCode, located: Located) -> str | None:
    state, place = located.state, located.name
    if code is ErrorCode.ELECTION_NOT_NEEDED:
        return f"Leader election not needed for topic partition. Broker {state.leader} leads {place}."
    if code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
        return (
            f"The preferred leader was not available. Broker {state.replicas[0]} of {place} is not in sync and active "
            f"(ISR {list(state.isr)})."
        )
    if code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        return (
            "Eligible topic partition leaders are not available. "
            f"None of the replicas {list(state.replicas)} of {place} is active."
        )
    return None


def _answer(image: MetadataImage, results: dict[str, list[_Result]], code: ErrorCode) -> Decision:
    return Decision(reply=elect_leaders_response(results, code), depends_on=image.offset)


def elect_leaders_response(results: dict[str, list[Any]], code: ErrorCode) -> Any:
    """Return an ElectLeadersResponse of the newest version."""
    from datetime import timedelta

    from kio.schema.elect_leaders.v2 import response as kio

    def partitions(answers: Iterable[_Result]) -> tuple[Any, ...]:
        return tuple(
            kio.PartitionResult(partition_id=one.partition_id, error_code=one.code, error_message=one.message)
            for one in answers
        )

    return kio.ElectLeadersResponse(
        throttle_time=timedelta(0),
        error_code=code,
        replica_election_results=tuple(
            kio.ReplicaElectionResult(topic=topic, partition_result=partitions(answers))
            for topic, answers in results.items()
        ),
    )
