"""What a topic's name and a committed offset are when nobody else is there: the models that histories are judged by.

A name is absent, or stands for a topic with an id and a number of partitions. What tells its state are answers of the
active controller: to changes, to their refusals, and to requests that only validate. An answer that a broker gives from
its image (Metadata, DescribeConfigs) is a published image, which is old by design: it is not judged here.
An offset is a register; so is one configuration key, of which nothing but writes is answered by a controller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.wire.error_codes import ErrorCode

# what is asked


@dataclass(frozen=True, slots=True)
class Create:
    """CreateTopics of one topic."""

    partitions: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """DeleteTopics of one topic: by its name, or by this id."""

    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Grow:
    """CreatePartitions of one topic, up to so many."""

    partitions: int
    validate_only: bool = False


ABSENT = "(absent)"
"""What stands in a register that a setting is, while it has no value."""


@dataclass(frozen=True, slots=True)
class Write:
    """Of a register."""

    value: Hashable


@dataclass(frozen=True, slots=True)
class Read:
    """Of a register; the answer is its value."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a controller. `topic_id`: as it was told with the success of Create and Delete."""

    code: ErrorCode = ErrorCode.NONE
    topic_id: UUID | None = None


# topics


@dataclass(frozen=True, slots=True)
class Standing:
    """A topic that is there. `topic_id` None: it was made by a request whose maker was not told its id."""

    topic_id: UUID | None
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicModel:
    """One name; its states are Standing, and None while no topic has it. `told` are all ids that makers were told of:
    none of them is the id of a topic whose maker was told nothing."""

    told: frozenset[UUID] = frozenset()

    @property
    def initial(self) -> Standing | None:
        return None

    def step(self, state: Standing | None, asked: Any, answer: Answer | None) -> Iterable[Standing | None]:
        """See kraft.sim.check.histories.linearizability.Model."""
        return _STEPS[type(asked)](self, state, asked, answer)

    def may_be(self, state: Standing | None, topic_id: UUID | None) -> bool:
        """Whether this may be the topic that is meant; None means whichever has the name."""
        if state is None:
            return False
        is_unknown = state.topic_id is None and topic_id not in self.told
        return topic_id is None or state.topic_id == topic_id or is_unknown


def _create(
    model: TopicModel, state: Standing | None, asked: Create, answer: Answer | None
) -> Iterable[Standing | None]:
    made = state is None and not asked.validate_only
    if answer is None:
        return (state, Standing(None, asked.partitions)) if made else (state,)
    if answer.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return () if state is None else (state,)
    if answer.code is not ErrorCode.NONE or state is not None:
        return ()
    return (Standing(answer.topic_id, asked.partitions),) if made else (state,)


def _delete(
    model: TopicModel, state: Standing | None, asked: Delete, answer: Answer | None
) -> Iterable[Standing | None]:
    is_meant = model.may_be(state, asked.topic_id)
    if answer is None:
        return (state, None) if is_meant else (state,)
    if answer.code is ErrorCode.NONE:
        return (None,) if is_meant and model.may_be(state, answer.topic_id) else ()
    if answer.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return ()
    is_surely_meant = state is not None and asked.topic_id in (None, state.topic_id)
    return () if is_surely_meant else (state,)


def _grow(model: TopicModel, state: Standing | None, asked: Grow, answer: Answer | None) -> Iterable[Standing | None]:
    grown = None if state is None or state.partitions >= asked.partitions else asked.partitions
    new = state if state is None or grown is None or asked.validate_only else Standing(state.topic_id, grown)
    if answer is None:
        return (state, new)
    fits = {
        ErrorCode.NONE: grown is not None,
        ErrorCode.INVALID_PARTITIONS: state is not None and grown is None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: state is None,
    }
    return (new,) if fits.get(answer.code) else ()


_STEPS: Mapping[type, Callable[[TopicModel, Standing | None, Any, Answer | None], Iterable[Standing | None]]] = (
    MappingProxyType(
        {
            Create: _create,
            Delete: _delete,
            Grow: _grow,
        }
    )
)

# registers


@dataclass(frozen=True, slots=True)
class Register:
    """One value, `initial` until it is written. A write's answer is anything but None."""

    initial: Hashable

    def step(self, state: Hashable, asked: Any, answer: Any) -> Iterable[Hashable]:
        """See kraft.sim.check.histories.linearizability.Model."""
        if isinstance(asked, Write):
            return (state, asked.value) if answer is None else (asked.value,)
        return (state,) if answer in (None, state) else ()
