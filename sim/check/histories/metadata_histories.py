"""Histories of metadata: what clients asked of the controllers and of the coordinators of groups, and what they were
told, must be linearizable (R20, G3b); and so must be the changes of settings, by what is committed (M11).

What counts as told. An error that says for certain that nothing was done is no change; it counts as a reading if it
tells the state. Any other error, and silence, leaves a change open. A broker hands a request on until a controller
answers, as Apache Kafka's does, so a change may be carried out more than once: each time that an active controller
handled it beyond the one that was answered is an open change of its own.

When a reading counts. Neither controllers nor coordinators ask a quorum before they answer a reading; those of Apache
Kafka do not either. One that was replaced and does not know it may answer with what was true before, and nothing is
promised of that. So a reading counts only if the one who answered was in office, by what is committed in the cluster,
from the call to the return. Then nobody else could have changed anything, and the answer must be the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraft.sim.check.base import Check, Checks
from kraft.sim.check.histories.linearizability import INVALID, UNKNOWN, Call, Model, judge
from kraft.sim.check.histories.metadata_models import ABSENT, Answer, Create, Grow, Read, Register, TopicModel, Write
from kraft.sim.check.observations import TopicPartition
from kraft.wire.error_codes import ErrorCode

NOTHING_COMMITTED = -1
"""What a coordinator answers for an offset that nobody committed."""
CALLS_SHOWN = 6
"""Calls before the one that could not follow that a finding shows."""


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """All calls about one topic's name."""

    topic: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class OffsetHistory:
    """All commits and readings of one offset."""

    group: str
    partition: TopicPartition
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class SettingHistory:
    """All changes of one setting, and what was committed as its value."""

    setting: tuple[int, str, str]
    calls: tuple[Call, ...]


def calls_of_request(
    client: str,
    called_ns: int,
    returned_ns: int | None,
    asked: Any,
    answer: Answer | None,
    handlers: Sequence[int],
    in_office: int | None,
) -> Iterator[Call]:
    """What a request to the controllers adds to its topic's history.

    `returned_ns` None: nobody knows what came of it; else `answer` is what was told of the topic, None if nothing was.
    `handlers` are the controllers that handled the request while they led, each time that they did; `in_office` is the
    one who was the leader from the call to the return, None if that changed.
    """
    open_ones = len(handlers)
    if returned_ns is not None:
        open_ones -= 1
        is_change = answer is not None and answer.code is ErrorCode.NONE and not _is_reading(asked)
        if is_change or (answer is not None and list(handlers) == [in_office]):
            yield Call(client, called_ns, returned_ns, asked, answer)
    if not _is_reading(asked):
        for _ in range(open_ones):
            yield Call(client, called_ns, None, asked)


def _is_reading(asked: Any) -> bool:
    return isinstance(asked, Create | Grow) and asked.validate_only


class _Linearizable(Check):
    """`undecided` counts histories whose judgement was given up: nothing is known of those."""

    def __init__(self) -> None:
        super().__init__()
        self.undecided = 0

    def judge(self, calls: tuple[Call, ...], model: Model, **names: Any) -> None:
        """Report a history that is not linearizable, at the time of the call that could not follow."""
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
        """How many of these calls, all of them answered, told something that could have been wrong."""
        raise NotImplementedError


class LinearizableTopics(_Linearizable):
    """R20. Each answer tells whether the name was there; of the first call nothing is known to compare it with."""

    id = "R20"
    statement = "What the active controller answers about a topic's name is so at a moment between call and return."

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
        """See _Linearizable."""
        return max(0, len(closed) - 1)


def _is_made(call: Call) -> bool:
    """A topic was made, and its maker was told its id."""
    is_change = isinstance(call.asked, Create) and not call.asked.validate_only
    return is_change and call.answer is not None and call.answer.code is ErrorCode.NONE


class LinearizableOffsets(_Linearizable):
    """G3b: G3 of clients that are no members. A commit's answer tells nothing of the offset."""

    id = "G3b"
    statement = "What a coordinator answers about a committed offset is so at a moment between call and return."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {OffsetHistory: self._read}

    def _read(self, history: OffsetHistory) -> None:
        topic, index = history.partition
        self.judge(history.calls, Register(NOTHING_COMMITTED), group=history.group, offset_of=f"{topic}-{index}")

    def readings(self, closed: tuple[Call, ...]) -> int:
        """See _Linearizable."""
        return sum(isinstance(call.asked, Read) for call in closed)


class LinearizableSettings(_Linearizable):
    """Of topics and of brokers; what else M11 says is judged by sim.workload.admin_work."""

    id = "M11"
    statement = "The value of a setting that was acknowledged is committed, until another one is."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {SettingHistory: self._read}

    def _read(self, history: SettingHistory) -> None:
        _, resource, name = history.setting
        self.judge(history.calls, Register(ABSENT), resource=resource, setting=name)

    def readings(self, closed: tuple[Call, ...]) -> int:
        """See _Linearizable. Of what nobody was promised nothing can be wrong."""
        is_promised = any(isinstance(call.asked, Write) for call in closed)
        return sum(isinstance(call.asked, Read) for call in closed) if is_promised else 0


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
        """Histories whose judgement was given up."""
        return sum(one.undecided for one in self._judges)
