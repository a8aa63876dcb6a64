"""Histories of metadata: the answers of controllers and group coordinators to clients must be linearizable (R20, G3b).

The changes of settings must be linearizable with the committed values (M11).

Which answers count: an error that proves that nothing was changed is no change; it counts as a read if it reveals the
state. After any other error, and after a missing answer, a change counts as open. A broker forwards a request until a
controller answers, as Apache Kafka's does, so a change may be carried out more than once. Each handling by an active
controller, beyond the one that was answered, counts as a separate open change.

When a read counts: neither controllers nor coordinators contact a quorum before they answer a read; those of Apache
Kafka do not either. A node that was replaced and has not noticed may answer with an older state, and no guarantee
excludes that. So a read counts only if, by the committed metadata, the node that answered was the leader from the call
to the return. Then no other node could have changed anything, and the answer must be correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraft.sim.check.base import Check, Checks
from kraft.sim.check.histories.linearizability import INVALID, UNKNOWN, Call, Model, judge
from kraft.sim.check.histories.metadata_models import (
    ABSENT,
    ControllerAnswer,
    Create,
    Grow,
    ReadRegister,
    Register,
    TopicModel,
    WriteRegister,
)
from kraft.sim.check.observations import TopicPartition
from kraft.wire.error_codes import ErrorCode

NOTHING_COMMITTED = -1
"""Answer of a coordinator for an offset that was never committed."""
CALLS_SHOWN = 6
"""Number of calls that a finding shows before the call that has no place in the order."""


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """All calls about one topic name."""

    topic: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class OffsetHistory:
    """All commits and reads of one committed offset."""

    group: str
    partition: TopicPartition
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class SettingHistory:
    """All changes of one setting, and the values that were committed for it."""

    setting: tuple[int, str, str]
    calls: tuple[Call, ...]


def calls_of_request(
    client: str,
    called_ns: int,
    returned_ns: int | None,
    asked: Any,
    answer: ControllerAnswer | None,
    handlers: Sequence[int],
    steady_leader: int | None,
) -> Iterator[Call]:
    """Return the calls that a request to the controllers adds to its topic's history.

    If `returned_ns` is None, the outcome is unknown. Otherwise `answer` is the answer about the topic, None if there
    was none. `handlers` are the controllers that handled the request while they were active, once for each time.
    `steady_leader` is the controller that was active during the whole request, None if the active controller changed.
    """
    open_ones = len(handlers)
    if returned_ns is not None:
        open_ones -= 1
        is_change = answer is not None and answer.code is ErrorCode.NONE and not _is_reading(asked)
        if is_change or (answer is not None and list(handlers) == [steady_leader]):
            yield Call(client, called_ns, returned_ns, asked, answer)
    if not _is_reading(asked):
        for _ in range(open_ones):
            yield Call(client, called_ns, None, asked)


def _is_reading(asked: Any) -> bool:
    return isinstance(asked, Create | Grow) and asked.validate_only


class _Linearizable(Check):
    """Base of the checks of histories. `undecided` counts histories whose search was abandoned, so that it is unknown
    whether they are linearizable."""

    def __init__(self) -> None:
        super().__init__()
        self.undecided = 0

    def judge(self, calls: tuple[Call, ...], model: Model, **names: Any) -> None:
        """Report a history that is not linearizable, at the time of the call that has no place in the order."""
        judgement = judge(calls, model)
        if judgement.verdict == UNKNOWN:
            self.undecided += 1
            return
        self.seen += self.readings(tuple(call for call in calls if not call.is_open))
        if judgement.verdict == INVALID and judgement.stuck is not None:
            self.at_ms = (judgement.stuck.returned_ns or 0) // 1_000_000
            self.fail(
                "no order of the calls explains the answers",
                **names,
                could_not_follow=str(judgement.stuck),
                after=[str(call) for call in judgement.prefix[-CALLS_SHOWN:]],
                states=sorted(map(str, judgement.states)),
            )

    def readings(self, closed: tuple[Call, ...]) -> int:
        """Return how many of these answered calls have answers that could have been wrong."""
        raise NotImplementedError


class LinearizableTopics(_Linearizable):
    """Check that the answers of active controllers about a topic's name are linearizable (R20). Each answer shows
    whether the name existed. The first call does not count, because it has no earlier state to compare with."""

    id = "R20"
    statement = "An answer of the active controller about a topic's name is true at a moment between call and return."

    def __init__(self) -> None:
        super().__init__()
        self._made: set[UUID] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {TopicHistory: self._read}

    def _read(self, history: TopicHistory) -> None:
        told = [call.answer.topic_id for call in history.calls if _is_made(call)]
        for topic_id in told:
            if topic_id in self._made:
                self.fail("two topics have one id", topic=history.topic, topic_id=topic_id)
            self._made.add(topic_id)
        self.judge(history.calls, TopicModel(frozenset(told)), topic=history.topic)

    def readings(self, closed: tuple[Call, ...]) -> int:
        """Return how many of these answered calls have answers that could have been wrong; see _Linearizable."""
        return max(0, len(closed) - 1)


def _is_made(call: Call) -> bool:
    """Return whether a topic was created and its id was returned to the client."""
    is_change = isinstance(call.asked, Create) and not call.asked.validate_only
    return is_change and call.answer is not None and call.answer.code is ErrorCode.NONE


class LinearizableOffsets(_Linearizable):
    """Check that the answers of coordinators about committed offsets are linearizable, for clients that are not members
    (G3b). The answer to a commit reveals nothing of the offset."""

    id = "G3b"
    statement = "An answer of a coordinator about a committed offset is true at a moment between call and return."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {OffsetHistory: self._read}

    def _read(self, history: OffsetHistory) -> None:
        topic, index = history.partition
        self.judge(history.calls, Register(NOTHING_COMMITTED), group=history.group, offset_of=f"{topic}-{index}")

    def readings(self, closed: tuple[Call, ...]) -> int:
        """Return how many of these answered calls have answers that could have been wrong; see _Linearizable."""
        return sum(isinstance(call.asked, ReadRegister) for call in closed)


class LinearizableSettings(_Linearizable):
    """Check that an acknowledged value of a topic's or broker's setting is committed until another value is.
    sim.workload.admin_work checks the other parts of M11."""

    id = "M11"
    statement = "An acknowledged value of a setting is committed, until another one is."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {SettingHistory: self._read}

    def _read(self, history: SettingHistory) -> None:
        _, resource, name = history.setting
        self.judge(history.calls, Register(ABSENT), resource=resource, setting=name)

    def readings(self, closed: tuple[Call, ...]) -> int:
        """Return how many of these calls could have been wrong; see _Linearizable. There are none if no value of the
        setting was acknowledged."""
        is_promised = any(isinstance(call.asked, WriteRegister) for call in closed)
        return sum(isinstance(call.asked, ReadRegister) for call in closed) if is_promised else 0


class HistoryChecks(Checks):
    """All checks of histories, over one run."""

    def __init__(self) -> None:
        self._judges: tuple[_Linearizable, ...] = (
            LinearizableTopics(),
            LinearizableOffsets(),
            LinearizableSettings(),
        )
        super().__init__(self._judges)

    @property
    def undecided(self) -> int:
        """Number of histories whose search was abandoned."""
        return sum(one.undecided for one in self._judges)
