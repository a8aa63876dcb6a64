"""Check of topic names: one order of the creations and deletions must explain the responses that clients received.

An OK operation counts with its response. A FAIL did not happen and is dropped. An INFO is an open call: it may take
effect at any later time, or never.

"Already exists" and "no such topic" are treated differently, whether they are INFO or FAIL. Requests are sent again, so
these errors may answer the second attempt of a call whose first attempt succeeded. Such a call took effect between its
invocation and its completion, or never. It does not count as a read of the topic's state: a controller that was
replaced and has not noticed may answer from an old state, as Apache Kafka's does. Brokers forward a request until a
controller answers. So an operation that took long may have been sent to a controller twice, and the first copy may be
carried out later. It therefore counts as an additional open call.

Committed offsets are not checked this way. A coordinator that was replaced and has not noticed may return an older
value, in Apache Kafka as here, and an outside observer cannot tell which coordinator answered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from kraft.sim.chaos.history import Function, HistoryEventType
from kraft.sim.chaos.judge import FoundAnomaly
from kraft.sim.chaos.judge.anomaly_words import NOT_LINEARIZABLE, TOPIC_ID_TWICE
from kraft.sim.chaos.judge.operations import HistoryOperation, of
from kraft.sim.check.histories.linearizability import INVALID, STEPS_MAX, UNKNOWN, Call, judge, parted
from kraft.sim.check.histories.metadata_models import ControllerAnswer, Create, Delete, TopicModel

SENT_TWICE_MS = 1_000
"""Minimum duration of an operation that may have been sent twice. Request timeouts are longer."""
MAYBE_DONE = MappingProxyType({Function.CREATE_TOPIC: "TOPICALREADYEXISTS", Function.DELETE_TOPIC: "UNKNOWNTOPIC"})
"""Function → beginning, letters only, of the error that may be the response to a second attempt."""
TOPIC_FUNCTIONS = (Function.CREATE_TOPIC, Function.DELETE_TOPIC)


@dataclass(slots=True)
class TopicFindings:
    """Result of the check of topic names. `judged`: number of responses that could have been wrong."""

    anomalies: list[FoundAnomaly] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    judged: int = 0


def find_topic_anomalies(
    operations: Sequence[HistoryOperation], allowed: Collection[str] = (), steps_max: int = STEPS_MAX
) -> TopicFindings:
    """Check the operations of each topic name separately."""
    found = TopicFindings()
    changes = of(operations, *TOPIC_FUNCTIONS)
    indexes = {(each.process, each.invocation.time_ns): each.index for each in changes}
    told: dict[UUID, HistoryOperation] = {}
    for change in changes:
        made = _topic_id(change) if change.f is Function.CREATE_TOPIC and change.is_ok else None
        if made is not None:
            if made in told:
                found.anomalies.append(_same_id(told[made], change, TOPIC_ID_TWICE in allowed))
            told.setdefault(made, change)
    model = TopicModel(frozenset(told))
    for topic, calls in parted(
        (change.values["topic"], call) for change in changes for call in calls_of(change)
    ).items():
        judgement = judge(calls, model, steps_max)
        found.judged += max(0, sum(call.answer is not None for call in calls) - 1)
        if judgement.verdict == UNKNOWN:
            found.reasons.append(
                f"Topic {topic}: whether its {len(calls)} operations are linearizable was not determined in "
                f"{steps_max} steps."
            )
        elif judgement.verdict == INVALID and judgement.stuck is not None:
            shown = [*[call for call in judgement.prefix if call.answer is not None][-3:], judgement.stuck]
            found.anomalies.append(
                FoundAnomaly(
                    name=NOT_LINEARIZABLE,
                    text=f"no order of the operations on topic {topic} explains that {_words(judgement.stuck, topic)}",
                    place=topic,
                    evidence={"calls": [str(call) for call in shown], "states": sorted(map(str, judgement.states))},
                    operations=tuple(sorted({indexes[call.process, call.called_ns] for call in shown})),
                    is_allowed=NOT_LINEARIZABLE in allowed,
                )
            )
    return found


def calls_of(change: HistoryOperation) -> Iterator[Call]:
    """Yield the calls that an operation adds to the history of its topic. A call that has a return time and no answer
    took effect before that time, or never."""
    asked = Create(change.values.get("partitions", 1)) if change.f is Function.CREATE_TOPIC else Delete()
    called_ns = change.invocation.time_ns
    is_maybe = not change.is_ok and _letters(change.error).startswith(MAYBE_DONE[change.f])
    if change.completion is None or (change.outcome is HistoryEventType.INFO and not is_maybe):
        yield Call(change.process, called_ns, None, asked)
        return
    returned_ns = change.completion.time_ns
    if change.is_ok or is_maybe:
        answer = ControllerAnswer(topic_id=_topic_id(change)) if change.is_ok else None
        yield Call(change.process, called_ns, returned_ns, asked, answer)
        if returned_ns - called_ns >= SENT_TWICE_MS * 1_000_000:
            yield Call(change.process, called_ns, None, asked)


def calls_as_lines(calls: Sequence[Call]) -> str:
    """Return the history of one topic as a line of JSON, for other checkers: {"calls": [{"process", "called",
    "returned", "op": create or delete, "partitions", "answer": {"code", "id"} or null}, ...]}."""
    rows = [
        {
            "process": call.process,
            "called": call.called_ns,
            "returned": call.returned_ns,
            "op": "create" if isinstance(call.asked, Create) else "delete",
            "partitions": call.asked.partitions if isinstance(call.asked, Create) else 0,
            "answer": None
            if call.answer is None
            else {"code": call.answer.code.name, "id": call.answer.topic_id.hex if call.answer.topic_id else ""},
        }
        for call in calls
    ]
    return json.dumps({"calls": rows})


def _topic_id(change: HistoryOperation) -> UUID | None:
    text = change.values.get("topic_id", "")
    return UUID(hex=text) if text else None


def _letters(error: str) -> str:
    return "".join(filter(str.isalpha, error)).upper()


def _words(call: Call, topic: str) -> str:
    verb = "created" if isinstance(call.asked, Create) else "deleted"
    return f"{call.process} received the response at {(call.returned_ns or 0) / 1e6:.0f} ms that it had {verb} {topic}"


def _same_id(first: HistoryOperation, second: HistoryOperation, is_allowed: bool) -> FoundAnomaly:
    topic_id = second.values["topic_id"]
    return FoundAnomaly(
        name=TOPIC_ID_TWICE,
        text=f"topics {first.values['topic']} and {second.values['topic']} were both created with the id {topic_id}",
        place=second.values["topic"],
        evidence={"topic_id": topic_id},
        operations=(first.index, second.index),
        is_allowed=is_allowed,
    )
