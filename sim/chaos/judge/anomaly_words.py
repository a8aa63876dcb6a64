"""One plain sentence for each anomaly, from its evidence. `RUN_ANOMALIES` are those that are not of one log."""

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
        STALE_GROUP_POSITION: ("G3", "a committed offset of a group went back"),
        UNAVAILABLE: ("L7", "a client has no success after everything was healed"),
        NOT_WHOLE: ("L5", "long after everything was healed a controller, a broker, a leader or a replica is missing"),
        GAP_TOO_LONG: ("L7", "there was no success for longer than the scenario allows"),
        APPLICATION_FAILED: ("L7", "the user's application ended with an error"),
    }
)
"""Name → the invariant that it breaks, and what it is."""
MEANINGS = MappingProxyType({**ANOMALIES, **RUN_ANOMALIES})
"""The same of all anomalies."""

_Told = Mapping[str, Any]


def sentence_of(name: str, place: str, told: _Told) -> str:
    """Why this must not be, with names and numbers. `place` is TOPIC-PARTITION."""
    return _SENTENCES[name](place, told)


def _lost(place: str, told: _Told) -> str:
    return (
        f"record {told['value']} was acknowledged at {place}@{told['offset']} and never read, "
        f"though offset {told['bound']} was"
    )


def _unseen(place: str, told: _Told) -> str:
    at = f"{place}@{told['offset']}" if told["offset"] >= 0 else place
    end = f"; that offset holds {told['found']}" if told.get("found") is not None else ""
    return f"record {told['value']} was acknowledged at {at}, and the final reader was not given it{end}"


def _misplaced(place: str, told: _Told) -> str:
    found = told["found"] if told["found"] is not None else "nothing"
    return (
        f"record {told['value']} was acknowledged at {place}@{told['offset']}, where the final reader found {found}; "
        "it stands at another offset"
    )


def _inconsistent(place: str, told: _Told) -> str:
    return (
        f"{place}@{told['offset']} is {told['value']} for {told['reader']} and {told['other']} for "
        f"{told['other_reader']}"
    )


def _vanished(place: str, told: _Told) -> str:
    return f"{told['reader']} read {told['value']} at {place}@{told['offset']}, which the final reader was not given"


def _duplicate(place: str, told: _Told) -> str:
    return f"record {told['value']} of an idempotent producer stands in {place} at offsets {_all(told['offsets'])}"


def _aborted(place: str, told: _Told) -> str:
    why = f" ({told['error']})" if told.get("error") else ""
    return f"the send of {told['value']} failed{why}, and it was read at {place}@{_all(told['offsets'])}"


def _unsent(place: str, told: _Told) -> str:
    return f"{told['value']} was read at {place}@{_all(told['offsets'])}, and no client sent it"


def _send_order(place: str, told: _Told) -> str:
    return (
        f"{told.get('process', 'a producer')} sent {told['value']} after the record at {place}@{told['before']}, and "
        f"it was acknowledged at offset {told['offset']}"
    )


def _skip(place: str, told: _Told) -> str:
    return (
        f"{told['reader']} was given {place}@{told['offset']} directly after offset {told['before']}, though there are "
        "records between them"
    )


def _back(place: str, told: _Told) -> str:
    return f"{told['reader']} went back: it was given {place}@{told['offset']} after offset {told['before']}"


def _inside(sentence: Callable[[str, _Told], str]) -> Callable[[str, _Told], str]:
    return lambda place, told: f"{sentence(place, told)}, within one poll"


def _all(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets))


_SENTENCES: Mapping[str, Callable[[str, _Told], str]] = MappingProxyType(
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
