"""Plain sentences that explain anomalies, made from their evidence. `RUN_ANOMALIES` are the anomalies that do not
concern a single log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kraft.sim.check.histories.client_histories import (
    ABORTED_READ,
    ANOMALIES,
    DUPLICATE,
    INCONSISTENT_OFFSETS,
    INT_NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    LOST_WRITE,
    MISPLACED,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
    POLL_SKIP,
    UNSEEN,
    UNSENT,
    VANISHED,
)

NOT_LINEARIZABLE, TOPIC_ID_TWICE = "topic not linearizable", "topic id twice"
STALE_GROUP_POSITION = "stale group position"
UNAVAILABLE, GAP_TOO_LONG = "unavailable after heal", "gap too long"
NOT_WHOLE = "not whole after heal"
APPLICATION_FAILED = "application failed"
RUN_ANOMALIES = MappingProxyType(
    {
        NOT_LINEARIZABLE: ("R20", "no order of the operations explains the answers"),
        TOPIC_ID_TWICE: ("M17", "two topics have one id"),
        STALE_GROUP_POSITION: ("G3", "a committed offset of a group moved back"),
        UNAVAILABLE: ("L7", "a client has no success after everything was healed"),
        NOT_WHOLE: ("L5", "long after everything was healed a controller, a broker, a leader or a replica is missing"),
        GAP_TOO_LONG: ("L7", "there was no success for longer than the scenario allows"),
        APPLICATION_FAILED: ("L7", "the user's application ended with an error"),
    }
)
"""Name → the invariant that the anomaly violates, and the meaning of the name."""
MEANINGS = MappingProxyType({**ANOMALIES, **RUN_ANOMALIES})
"""Name of an anomaly → the invariant that it violates and its meaning, for all anomalies."""

_Evidence = Mapping[str, Any]


def sentence_of(name: str, place: str, facts: _Evidence) -> str:
    """Return a sentence that explains the anomaly with names and numbers. `place` is TOPIC-PARTITION."""
    return _SENTENCES[name](place, facts)


def _lost(place: str, facts: _Evidence) -> str:
    return (
        f"record {facts['value']} was acknowledged at {place}@{facts['offset']} and never read, "
        f"though offset {facts['bound']} was"
    )


def _unseen(place: str, facts: _Evidence) -> str:
    at = f"{place}@{facts['offset']}" if facts["offset"] >= 0 else place
    end = f"; that offset holds {facts['found']}" if facts.get("found") is not None else ""
    return f"record {facts['value']} was acknowledged at {at}, and the final reader did not receive it{end}"


def _misplaced(place: str, facts: _Evidence) -> str:
    found = facts["found"] if facts["found"] is not None else "nothing"
    return (
        f"record {facts['value']} was acknowledged at {place}@{facts['offset']}, where the final reader found {found}; "
        "it is at another offset"
    )


def _inconsistent(place: str, facts: _Evidence) -> str:
    return (
        f"{place}@{facts['offset']} is {facts['value']} for {facts['reader']} and {facts['other']} for "
        f"{facts['other_reader']}"
    )


def _vanished(place: str, facts: _Evidence) -> str:
    return (
        f"{facts['reader']} read {facts['value']} at {place}@{facts['offset']}, which the final reader did not receive"
    )


def _duplicate(place: str, facts: _Evidence) -> str:
    return f"record {facts['value']} of an idempotent producer is in {place} at offsets {_all(facts['offsets'])}"


def _aborted(place: str, facts: _Evidence) -> str:
    why = f" ({facts['error']})" if facts.get("error") else ""
    return f"the send of {facts['value']} failed{why}, and it was read at {place}@{_all(facts['offsets'])}"


def _unsent(place: str, facts: _Evidence) -> str:
    return f"{facts['value']} was read at {place}@{_all(facts['offsets'])}, and no client sent it"


def _send_order(place: str, facts: _Evidence) -> str:
    return (
        f"{facts.get('process', 'a producer')} sent {facts['value']} after the record at {place}@{facts['before']}, "
        f"and it was acknowledged at offset {facts['offset']}"
    )


def _skip(place: str, facts: _Evidence) -> str:
    return (
        f"{facts['reader']} received {place}@{facts['offset']} directly after offset {facts['before']}, though there "
        "are records between them"
    )


def _back(place: str, facts: _Evidence) -> str:
    return f"{facts['reader']} went back: it received {place}@{facts['offset']} after offset {facts['before']}"


def _inside(sentence: Callable[[str, _Evidence], str]) -> Callable[[str, _Evidence], str]:
    return lambda place, facts: f"{sentence(place, facts)}, within one poll"


def _all(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets))


_SENTENCES: Mapping[str, Callable[[str, _Evidence], str]] = MappingProxyType(
    {
        INCONSISTENT_OFFSETS: _inconsistent,
        VANISHED: _vanished,
        DUPLICATE: _duplicate,
        LOST_WRITE: _lost,
        UNSEEN: _unseen,
        MISPLACED: _misplaced,
        ABORTED_READ: _aborted,
        UNSENT: _unsent,
        NONMONOTONIC_SEND: _send_order,
        POLL_SKIP: _skip,
        NONMONOTONIC_POLL: _back,
        INT_POLL_SKIP: _inside(_skip),
        INT_NONMONOTONIC_POLL: _inside(_back),
    }
)
