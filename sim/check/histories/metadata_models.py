"""Sequential models of a topic's name, a committed offset and a setting, against which histories are checked.

A name is absent, or belongs to a topic with an id and a number of partitions. Answers of the active controller reveal
its state: answers to changes, rejections of changes, and answers to requests that only validate. An answer that a
broker gives from its image (Metadata, DescribeConfigs) is not checked here, because a published image may be old by
design.

A committed offset is a register, that is, a value that is written and read. A setting is a register too, of which a
controller answers only writes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.wire.error_codes import ErrorCode

# requests


@dataclass(frozen=True, slots=True)
class Create:
    """CreateTopics request for one topic."""

    partitions: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """DeleteTopics request for one topic, by name or by this id."""

    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Grow:
    """CreatePartitions request for one topic, up to this total."""

    partitions: int
    validate_only: bool = False


ABSENT = "(absent)"
"""State of a setting's register while it has no value."""


@dataclass(frozen=True, slots=True)
class WriteRegister:
    """Write to a register."""

    value: Hashable


@dataclass(frozen=True, slots=True)
class ReadRegister:
    """Read of a register; the answer is its value."""


@dataclass(frozen=True, slots=True)
class ControllerAnswer:
    """Answer of a controller. `topic_id`: as returned with the success of Create and Delete."""

    code: ErrorCode = ErrorCode.NONE
    topic_id: UUID | None = None


# topics


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic that exists. `topic_id` None: the client that created it did not get its id."""

    topic_id: UUID | None
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Model of one topic name. Its states are an ExistingTopic, and None while no topic has the name. `told` are all
    ids that were returned to clients; a topic whose creator received no id has none of these."""

    told: frozenset[UUID] = frozenset()

    @property
    def initial(self) -> ExistingTopic | None:
        return None

    def step(
        self, state: ExistingTopic | None, asked: Any, answer: ControllerAnswer | None
    ) -> Iterable[ExistingTopic | None]:
        """Return the states that this call may lead to; see kraft.sim.check.histories.linearizability.Model."""
        return _STEPS[type(asked)](self, state, asked, answer)

    def may_be(self, state: ExistingTopic | None, topic_id: UUID | None) -> bool:
        """Return whether the existing topic may be the requested one. A request for id None means the topic that has
        the name."""
        if state is None:
            return False
        is_unknown = state.topic_id is None and topic_id not in self.told
        return topic_id is None or state.topic_id == topic_id or is_unknown


def _create(
    model: TopicModel, state: ExistingTopic | None, asked: Create, answer: ControllerAnswer | None
) -> Iterable[ExistingTopic | None]:
    made = state is None and not asked.validate_only
    if answer is None:
        return (state, ExistingTopic(None, asked.partitions)) if made else (state,)
    if answer.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return () if state is None else (state,)
    if answer.code is not ErrorCode.NONE or state is not None:
        return ()
    return (ExistingTopic(answer.topic_id, asked.partitions),) if made else (state,)


def _delete(
    model: TopicModel, state: ExistingTopic | None, asked: Delete, answer: ControllerAnswer | None
) -> Iterable[ExistingTopic | None]:
    is_meant = model.may_be(state, asked.topic_id)
    if answer is None:
        return (state, None) if is_meant else (state,)
    if answer.code is ErrorCode.NONE:
        return (None,) if is_meant and model.may_be(state, answer.topic_id) else ()
    if answer.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return ()
    is_surely_meant = state is not None and asked.topic_id in (None, state.topic_id)
    return () if is_surely_meant else (state,)


def _grow(
    model: TopicModel, state: ExistingTopic | None, asked: Grow, answer: ControllerAnswer | None
) -> Iterable[ExistingTopic | None]:
    grown = None if state is None or state.partitions >= asked.partitions else asked.partitions
    new = state if state is None or grown is None or asked.validate_only else ExistingTopic(state.topic_id, grown)
    if answer is None:
        return (state, new)
    fits = {
        ErrorCode.NONE: grown is not None,
        ErrorCode.INVALID_PARTITIONS: state is not None and grown is None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: state is None,
    }
    return (new,) if fits.get(answer.code) else ()


_STEPS: Mapping[
    type, Callable[[TopicModel, ExistingTopic | None, Any, ControllerAnswer | None], Iterable[ExistingTopic | None]]
] = MappingProxyType(
    {
        Create: _create,
        Delete: _delete,
        Grow: _grow,
    }
)

# registers


@dataclass(frozen=True, slots=True)
class Register:
    """Model of one value, `initial` until it is written. A write may have any answer except None."""

    initial: Hashable

    def step(self, state: Hashable, asked: Any, answer: Any) -> Iterable[Hashable]:
        """Return the states that this call may lead to; see kraft.sim.check.histories.linearizability.Model."""
        if isinstance(asked, WriteRegister):
            return (state, asked.value) if answer is None else (asked.value,)
        return (state,) if answer in (None, state) else ()
