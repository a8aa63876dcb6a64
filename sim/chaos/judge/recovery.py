"""Check that every client works again after the heal: producers, clients that change topics, readers, groups.

After an unknown outcome a client continues under a new process name. The operations under all its process names are
checked together. A client that tried for long enough without a success is an anomaly. A client that tried too briefly,
or that worked before the heal and did not try after it, makes the verdict unknown. A reader succeeds when it receives
records, if records were acknowledged that it should read, otherwise with any response. Members of a group replace each
other, and until the session of a missing member expires no member receives records. So a group gets at least
GROUP_MS_MIN, and records that any member reads count for all. If the scenario requires that members are still replaced
after the heal, the group need not succeed with a commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kraft.sim.chaos.history import FINAL_READER, Function, Place
from kraft.sim.chaos.judge import FoundAnomaly
from kraft.sim.chaos.judge.anomaly_words import UNAVAILABLE
from kraft.sim.chaos.judge.liveness import WHOLE_MS_MAX, LivenessFindings
from kraft.sim.chaos.judge.operations import MEMBERS, HistoryOperation, lineage_of
from kraft.sim.chaos.run.run_folder import RunInfo

AFTER_HEAL_MS_MIN = 5_000
"""Minimum time for which a client must have tried after the heal. If it tried for less, the lack of a success proves
nothing."""
GROUP_MS_MIN = 12_000
"""Minimum time for which a group must have tried after the heal: a missing member expires only after the session
timeout (6 s)."""
READ_MS_MAX = 2_000
"""Time within which a reader must receive an acknowledged record. Records acknowledged less than this before its last
poll are not expected."""
_WORDS = MappingProxyType(
    {
        Function.SEND: "sends",
        Function.CREATE_TOPIC: "creations of topics",
        Function.DELETE_TOPIC: "deletions of topics",
        Function.POLL: "polls",
        Function.COMMIT: "commits",
    }
)


@dataclass(frozen=True, slots=True)
class _ClientTries:
    """All operations of one function by one client or one group. `successes` are the operations in `tries` that show
    that the client works. `least_ms`: how long the client must have tried before the lack of a success counts."""

    who: str
    f: Function
    tries: Sequence[HistoryOperation]
    successes: Sequence[HistoryOperation]
    least_ms: float = AFTER_HEAL_MS_MIN
    may_stop: bool = False
    """Whether it is acceptable that the client makes no attempt after the heal."""


def find_unavailable(info: RunInfo, operations: Sequence[HistoryOperation]) -> LivenessFindings:
    """Check that every client, over all of its process names, has a success between the heal and the end of the work.
    Nothing is checked for a user's application."""
    found = LivenessFindings()
    lines = [] if info.application else list(_lines(info, operations))
    left_ms = info.duration_ms - info.healed_ms
    if lines and left_ms < AFTER_HEAL_MS_MIN:
        found.reasons.append(
            f"The clients worked for {max(left_ms, 0) / 1000:.1f} s after the heal: to see whether every one of them "
            f"recovers takes {AFTER_HEAL_MS_MIN / 1000:.0f} s."
        )
        return found
    for line in lines:
        _judge(info, line, found)
    return found


def _judge(info: RunInfo, line: _ClientTries, found: LivenessFindings) -> None:
    tries = [each for each in line.tries if _is_after_heal(info, each)]
    words = _WORDS[line.f]
    found.judged += 1
    if any(_is_after_heal(info, each) for each in line.successes):
        return
    if not tries:
        if line.f is Function.SEND:
            found.reasons.append(f"{line.who} sent nothing after the heal: whether it could is not known.")
        elif line.successes and not line.may_stop:
            found.reasons.append(f"{line.who} tried no {words} after the heal: whether it could is not known.")
        return
    errors = sorted({each.error for each in tries} - {""}) or ["no records"]
    tried_ms = _tried_ms(info, line, tries)
    if tried_ms < line.least_ms:
        found.reasons.append(
            f"{line.who} had no success of {len(tries)} {words} ({', '.join(errors)}) after the heal, and it tried for "
            f"{tried_ms / 1000:.1f} s: that is too short to judge."
        )
        return
    text = (
        f"{line.who} had no success in the {(info.duration_ms - info.healed_ms) / 1000:.1f} s after the heal, of "
        f"{len(tries)} {words} ({', '.join(errors)})"
    )
    found.anomalies.append(
        FoundAnomaly(
            name=UNAVAILABLE,
            text=text,
            place="",
            evidence={"client": line.who, words: len(tries), "errors": errors},
            operations=tuple(each.index for each in tries[:4]),
            is_allowed=UNAVAILABLE in info.allowed,
        )
    )


def _is_after_heal(info: RunInfo, operation: HistoryOperation) -> bool:
    """Return whether an operation began, or was still open, between the heal and the end of the clients' work."""
    is_open_then = operation.end_ms is None or operation.end_ms > info.healed_ms or operation.begin_ms >= info.healed_ms
    return is_open_then and operation.begin_ms < info.duration_ms


def _tried_ms(info: RunInfo, line: _ClientTries, tries: Sequence[HistoryOperation]) -> float:
    """Return for how long a client tried after the heal. A producer counts for the whole time. For other clients the
    time begins with the first operation after the heal. If a client's only operation has been open since before the
    heal, it counts only if it lasted longer than any request may."""
    if line.f is Function.SEND:
        return info.duration_ms - info.healed_ms
    last_ms = max(_end_ms(info, each) for each in tries)
    begun_ms = [each.begin_ms for each in tries if each.begin_ms >= info.healed_ms]
    if begun_ms:
        return last_ms - min(begun_ms)
    waited_ms = last_ms - info.healed_ms
    return waited_ms if waited_ms >= WHOLE_MS_MAX else 0.0


def _end_ms(info: RunInfo, operation: HistoryOperation) -> float:
    return min(info.duration_ms if operation.end_ms is None else operation.end_ms, info.duration_ms)


def _lines(info: RunInfo, operations: Sequence[HistoryOperation]) -> Iterator[_ClientTries]:
    """Yield the operations of every client and group, separately for each function."""
    parts: dict[tuple[Function, str], list[HistoryOperation]] = {}
    for each in operations:
        f = Function.POLL if each.f is Function.ASSIGN else each.f
        if f in _WORDS and each.process != FINAL_READER:
            who = f"group {each.values.get('group')}" if f is Function.COMMIT else lineage_of(each.process)
            parts.setdefault((f, who), []).append(each)
    sends, polls = _of_function(parts, Function.SEND), _of_function(parts, Function.POLL)
    for (function, who), tries in parts.items():
        succeeded = [each for each in tries if each.is_ok]
        if function is Function.POLL:
            wanted = _unread(info, who, tries, sends, polls)
            succeeded = [each for each in succeeded if each.f is function and (not wanted or each.records)]
        if function is Function.COMMIT:
            yield _ClientTries(who, function, tries, succeeded, GROUP_MS_MIN, may_stop=_are_replaced(info, polls))
        else:
            yield _ClientTries(who, function, tries, succeeded)


def _of_function(
    parts: dict[tuple[Function, str], list[HistoryOperation]], function: Function
) -> list[HistoryOperation]:
    """Return the operations of one function from all clients."""
    return [each for (f, _), several in parts.items() if f is function for each in several]


def _are_replaced(info: RunInfo, polls: Sequence[HistoryOperation]) -> bool:
    """Return whether a member of the group changed its process name after the heal."""
    names = {each.process for each in polls if each.process.startswith(MEMBERS) and _is_after_heal(info, each)}
    return len(names) > len({*map(lineage_of, names)})


def _unread(
    info: RunInfo,
    who: str,
    tries: Sequence[HistoryOperation],
    sends: Sequence[HistoryOperation],
    polls: Sequence[HistoryOperation],
) -> bool:
    """Return whether this reader missed records that were acknowledged after the heal, in partitions that had been
    assigned to the reader for long enough. Records of a group may be received by any member."""
    assigned = [each for each in tries if each.f is Function.ASSIGN and each.is_ok and each.begin_ms < info.duration_ms]
    if not assigned:
        return False
    places = {Place(topic, partition) for topic, partition in assigned[-1].values.get("places", ())}
    since_ms = max(_end_ms(info, assigned[-1]), info.healed_ms)
    until_ms = max(_end_ms(info, each) for each in tries)
    is_member = who.startswith(MEMBERS)
    if until_ms - since_ms < (GROUP_MS_MIN if is_member else AFTER_HEAL_MS_MIN):
        return False
    is_given_to_others = is_member and any(
        lineage_of(each.process).startswith(MEMBERS) and places & {place for place, records in each.records if records}
        for each in polls
        if each.is_ok and each.f is Function.POLL and _end_ms(info, each) > since_ms
    )
    return not is_given_to_others and any(
        each.is_ok and each.place in places and since_ms <= _end_ms(info, each) <= until_ms - READ_MS_MAX
        for each in sends
    )
