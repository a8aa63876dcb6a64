"""All share sessions of a member, and the records that it holds in them.

Records stay with the session that acquired them: only its broker takes their acknowledgements. Invariants:
- One request of a session is in flight at a time, except for its last one.
- New records are fetched only while nothing is buffered and no lock is being renewed, because locks run out.
- Every acknowledgement that the application makes gets a result.
Source: KIP-932, Kafka's ShareConsumeRequestManager, ShareConsumerImpl.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kraft.client.core.buffered_records import damaged_batch
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.acknowledging import PendingAcknowledgements, Settled, ShareCommit
from kraft.client.core.share.acquired import AcquiredRecords
from kraft.client.core.share.answers import RETRIED, acknowledgement_error
from kraft.client.core.share.held import HeldRecords
from kraft.client.core.share.records import Acknowledgement, ShareRecord, TopicIdPartition
from kraft.client.core.share.requests import ShareAnswer
from kraft.client.core.share.session import FIRST_VERSION_WITH_RENEWAL, Assigned, ShareSession, ShareSessionRequest
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

LINGER_MS = 50
"""Maximum time in ms for which acknowledgements of single records are gathered before they are sent."""
RELEASED = "Its records are released, and delivered again"


class ShareSessions:
    """The sessions by broker. `timeout_ms` is how long an acknowledgement is retried, `backoff_ms` the first pause."""

    def __init__(self, *, timeout_ms: int, backoff_ms: int, backoff_ms_max: int, check_crcs: bool = True) -> None:
        self.current: dict[int, ShareSession] = {}
        self._over: list[ShareSession] = []
        """Sessions that have ended, with records that the application still has."""
        self._by_partition: dict[TopicPartition, list[HeldRecords]] = {}
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._backoff_ms_max = backoff_ms_max
        self._check_crcs = check_crcs
        self._turn = 0
        self._damages: list[KafkaError] = []
        """Errors of damaged batches that `take` has not raised yet."""

    def _held(self) -> Iterator[HeldRecords]:
        for session in [*self.current.values(), *self._over]:
            yield from session.held.values()

    # records

    def has_more(self, now_ms: int) -> bool:
        """Whether records are buffered."""
        return any(held.has_more(now_ms) for held in self._held())

    def take(self, count: int, now_ms: int) -> list[ShareRecord]:
        """Give at most `count` buffered records to the application. Each call starts with a different partition. Raise
        KafkaError CORRUPT_MESSAGE for a damaged batch, after any records that were found with it. Its records are
        released."""
        taken: list[ShareRecord] = []
        every = list(self._held()) if not self._damages else []
        self._turn = (self._turn + 1) % len(every) if every else 0
        for held in [*every[self._turn :], *every[: self._turn]]:
            try:
                taken += held.take(count - len(taken), now_ms)
            except WireError as damage:
                self._damages.append(damaged_batch(held.partition, damage, RELEASED))
            if len(taken) >= count:
                break
        if self._damages and not taken:
            raise self._damages.pop(0)
        return taken

    def buffer_of(self, partition: TopicPartition) -> HeldRecords | None:
        """Return the records of this partition, if one session has decoded ones that were not given yet."""
        return next((held for held in self._by_partition.get(partition, ()) if held.records), None)

    def release_others(self, assigned: Collection[TopicPartition], now_ms: int) -> None:
        """Release the buffered records of all partitions that are not assigned."""
        for session in self.current.values():
            for held in session.held.values():
                if held.partition not in assigned:
                    held.release_buffered(now_ms)

    # acknowledgements of the application

    @property
    def unacknowledged(self) -> int:
        """Number of records that the application has to acknowledge."""
        return sum(held.unacknowledged for held in self._held() if held.given)

    def mark(self, record: ShareRecord, acknowledgement: Acknowledgement) -> None:
        """Acknowledge a record that the application has. Raise ValueError if it does not have it any more, and
        KafkaError UNSUPPORTED_VERSION if the broker cannot renew locks."""
        name = f"{record.topic}-{record.partition}"
        for held in reversed(self._by_partition.get((record.topic, record.partition), ())):
            if acknowledgement is Acknowledgement.RENEW and not held.may_renew and record.offset in held.given:
                text = f"the leader of {name} cannot renew locks: this needs ShareAcknowledge in version 2 (KIP-1222)"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
            if held.mark(record.offset, int(acknowledgement)):
                return
        raise ValueError(
            f"offset {record.offset} of {name} cannot be acknowledged: it was acknowledged and sent, or released"
        )

    def accept_given(self) -> None:
        """Acknowledge all records that the application has as processed."""
        for held in self._held():
            held.accept_given()

    def queue_marked(self, now_ms: int) -> None:
        """Queue the acknowledgements that the application has made."""
        for held in self._held():
            held.queue_marked(now_ms)

    @property
    def has_renewals(self) -> bool:
        """Whether a lock is being renewed, or a renewed record is to be given again."""
        return any(held.has_renewals for held in self._held())

    def take_renewed(self, count: int) -> list[ShareRecord]:
        """Return at most `count` of the records that were renewed. The application has them again."""
        taken: list[ShareRecord] = []
        for held in self._held():
            taken += held.take_renewed(count - len(taken))
        return taken

    def join(self, commit: ShareCommit) -> None:
        """Let a commit wait for every acknowledgement without a result."""
        for held in self._held():
            for pending in (held.queued, held.in_flight, held.last):
                if pending is not None:
                    pending.join(commit)

    # requests

    def next_request(
        self, node_id: int, wanted: Assigned, now_ms: int, *, may_fetch: bool
    ) -> ShareSessionRequest | None:
        """Return the request to send to a broker without one in flight; None if none is due. `wanted` are the assigned
        partitions that it leads."""
        session = self.current.get(node_id)
        if session is not None and session.is_open and self._is_due(session, wanted if may_fetch else {}, now_ms):
            return session.acknowledge(now_ms)
        if wanted and may_fetch:
            if session is None:
                session = self.current[node_id] = ShareSession(node_id)
            return session.fetch(wanted, now_ms)
        if session is not None and session.is_open and not wanted and session.is_empty:
            return session.end()
        return None

    @staticmethod
    def _is_due(session: ShareSession, fetched: Assigned, now_ms: int) -> bool:
        """Whether acknowledgements are to be sent without a fetch: a commit waits for them, or no fetch of the
        `fetched` partitions will carry them."""
        for partition, held in session.held.items():
            pending = held.queued
            if pending is None or pending.retry_ms > now_ms:
                continue
            if pending.commits or pending.has_renewals or pending.attempts:
                return True
            if partition not in fetched and pending.since_ms + LINGER_MS <= now_ms:
                return True
        return False

    def due_ms(self, busy: Collection[int]) -> float:
        """Return the time when queued acknowledgements are to be sent at the latest, except those to `busy` brokers."""
        idle = (session for node_id, session in self.current.items() if node_id not in busy)
        waiting = (held.queued for session in idle for held in session.held.values())
        return min((self._due_ms(pending) for pending in waiting if pending is not None), default=float("inf"))

    @staticmethod
    def _due_ms(pending: PendingAcknowledgements) -> int:
        return pending.retry_ms if pending.attempts or pending.commits else pending.since_ms + LINGER_MS

    # responses

    def accept(self, request: ShareSessionRequest, answer: ShareAnswer, now_ms: int) -> list[Settled]:
        """Process a response without an error: keep its records, and return the results of acknowledgements."""
        session = request.session
        if not request.is_final:
            session.advance()
        settled: list[Settled] = []
        for partition, pending in request.acknowledged.items():
            result = self._settle(request, partition, pending, answer, now_ms)
            settled += () if result is None else (result,)
        for partition, row in answer.partitions.items():
            if row.acquired and not session.is_over and partition in session.partitions:
                held = self._hold(session, partition)
                deadline_ms = now_ms + answer.lock_ms if answer.lock_ms > 0 else float("inf")
                acquired = AcquiredRecords(
                    held.partition, row.records, row.acquired, deadline_ms=deadline_ms, check_crcs=self._check_crcs
                )
                held.add(acquired)
        self._forget_empty(session)
        return settled

    def _settle(
        self,
        request: ShareSessionRequest,
        partition: TopicIdPartition,
        pending: PendingAcknowledgements,
        answer: ShareAnswer,
        now_ms: int,
    ) -> Settled | None:
        """Return the result of acknowledgements; None if they are sent again, or have failed with another request."""
        held = request.session.held.get(partition)
        if held is None or not held.is_sent(pending):
            return None
        row = answer.partitions.get(partition)
        if row is None:
            missing = acknowledgement_error(held.partition, ErrorCode.INVALID_RECORD_STATE, "the response lacks them")
            return held.settle(pending, missing)
        code = row.acknowledge_code
        may_retry = code in RETRIED and not request.session.is_over
        if may_retry and now_ms < pending.since_ms + self._timeout_ms:
            held.requeue(now_ms + min(self._backoff_ms << min(pending.attempts, 16), self._backoff_ms_max))
            return None
        if code is ErrorCode.NONE:
            return held.settle(pending, None)
        return held.settle(pending, acknowledgement_error(held.partition, code, row.acknowledge_message))

    def lose(self, request: ShareSessionRequest, code: ErrorCode, message: str = "") -> list[Settled]:
        """End the session of a request that has failed. Return the failed acknowledgements: those of this request, of
        another one in flight, and those that were not sent."""
        session = request.session
        if self.current.get(session.node_id) is session:
            del self.current[session.node_id]
            self._over.append(session)
        failed: list[Settled] = []
        for held in session.held.values():
            failed += held.fail_all(acknowledgement_error(held.partition, code, message))
        session.lose()
        self._forget_empty(session)
        return failed

    def fail_ended(self) -> list[Settled]:
        """Fail the acknowledgements of records whose session has ended."""
        failed: list[Settled] = []
        for session in list(self._over):
            for held in session.held.values():
                failed += held.fail_all(acknowledgement_error(held.partition, ErrorCode.NETWORK_EXCEPTION))
            self._forget_empty(session)
        return failed

    def end_all(self) -> list[ShareSessionRequest]:
        """Return the last request of each session, in order to leave. All records without an acknowledgement are
        released; `fail_ended` has the results of those whose session was lost before."""
        for session in self._over:
            session.release()
        open_sessions = [session for session in self.current.values() if not session.is_over]
        return [session.end() for session in open_sessions]

    def ended(self, session: ShareSession) -> None:
        """Forget a session whose last request was answered."""
        if self.current.get(session.node_id) is session:
            del self.current[session.node_id]
            self._over.append(session)
        self._forget_empty(session)

    # what is held

    def _hold(self, session: ShareSession, partition: TopicIdPartition) -> HeldRecords:
        held = session.held.get(partition)
        if held is None:
            name = session.partitions[partition]
            held = HeldRecords(name, may_renew=session.version >= FIRST_VERSION_WITH_RENEWAL)
            session.held[partition] = held
            self._by_partition.setdefault(name, []).append(held)
        return held

    def _forget_empty(self, session: ShareSession) -> None:
        """Forget partitions of which nothing is held, and a session that has ended and holds nothing."""
        for partition, held in list(session.held.items()):
            if held.is_empty:
                del session.held[partition]
                same = self._by_partition[held.partition]
                same.remove(held)
                if not same:
                    del self._by_partition[held.partition]
        if session in self._over and not session.held:
            self._over.remove(session)
