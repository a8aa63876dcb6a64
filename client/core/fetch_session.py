"""The consumer's side of an incremental fetch session with one broker (KIP-227).

The first request names every partition. Later requests name only new partitions, partitions with a new position, and
partitions to remove. After any error of the session, the next request names every partition again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kraft.client.core.records import TopicPartition
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
EPOCH_MAX = 2**31 - 1

Wanted = Mapping[TopicPartition, tuple[UUID | None, FetchPartition]]


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The fields of a Fetch request that concern the session and its partitions."""

    session_id: int
    session_epoch: int
    topics: Sequence[FetchTopic]
    forgotten: Sequence[ForgottenTopic]


class FetchSessionHandler:
    """A fetch session: the partitions that the broker's session has after the last request."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, tuple[UUID | None, FetchPartition]] = {}
        self._names: dict[UUID, str] = {}

    def request(self, wanted: Wanted) -> SessionRequest:
        """Return the fields of the next request. For a new session they have all `wanted` partitions, else only the
        changes."""
        self._names = {topic_id: topic for (topic, _), (topic_id, _) in wanted.items() if topic_id is not None}
        if not self._epoch:
            self._known = dict(wanted)
            return SessionRequest(self._id, 0, _grouped(wanted), ())
        gone = {tp: known for tp, known in self._known.items() if tp not in wanted or wanted[tp][0] != known[0]}
        changed = {tp: entry for tp, entry in wanted.items() if tp in gone or self._known.get(tp) != entry}
        self._known = dict(wanted)
        forgotten: list[ForgottenTopic] = [
            (topic, topic_id, [part.partition for part in parts]) for topic, topic_id, parts in _grouped(gone)
        ]
        return SessionRequest(self._id, self._epoch, _grouped(changed), forgotten)

    def answered(self, code: ErrorCode, session_id: int) -> None:
        """Process a response: continue the session that it names, or start a new one after an error."""
        if code is not ErrorCode.NONE or not session_id:
            self.reset()
            return
        self._id = session_id
        self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1

    def reset(self) -> None:
        """Make the next request a full one, which also closes the broker's session."""
        self._epoch = 0

    def topic_of(self, name: str | None, topic_id: UUID | None) -> str | None:
        """Return the topic that a response names, by name or by id; None if the topic was not requested."""
        return name or (None if topic_id is None else self._names.get(topic_id))


def _grouped(partitions: Wanted) -> list[FetchTopic]:
    topics: dict[tuple[str, UUID | None], list[FetchPartition]] = {}
    for (topic, _), (topic_id, part) in partitions.items():
        topics.setdefault((topic, topic_id), []).append(part)
    return [(topic, topic_id, parts) for (topic, topic_id), parts in topics.items()]
