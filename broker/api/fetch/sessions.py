"""Fetch sessions (KIP-227): the partitions that a client or follower fetches, kept on the broker between its requests.

Invariants:
- the cost of a response depends only on the changed partitions. A session keeps the set of its partitions that may have
  changed (`dirty`), and the partitions themselves add to that set. A request names only the partitions whose parameters
  the fetcher changed;
- a request is accepted or rejected as a whole before anything is read. An accepted request advances the epoch, whatever
  the results of its partitions are;
- a client that finds no free slot is served nevertheless, with session id 0.
Source: KIP-227, Kafka's FetchSession.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kraft.broker.partition.unwritten_log import UNWRITTEN_LOG
from kraft.seam import Random
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.replica.leader import LeaderState
    from kraft.wire.messages.fetch import FetchResult

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
EVICTION_MS = 120_000

TopicKey = str | UUID
"""A topic as the fetcher names it: by name in versions below 13, by id from version 13 on."""
PartitionKey = tuple[TopicKey, int]


class Wakeable(Protocol):
    """Interface of a parked fetch for its session."""

    def wake(self) -> None:
        """Record that the fetch must be checked at the end of this pass, because there may be something to return."""
        ...

    def answer_empty(self) -> None:
        """Answer with no partitions, because the session's next request has arrived."""
        ...


class CachedPartition:
    """One partition of a fetch session: the fetcher's last request for it, and the result last reported to the fetcher.
    It watches its `Partition`."""

    __slots__ = (
        "awaits_role",
        "bytes_max",
        "fetch_offset",
        "index",
        "is_behind",
        "known_high_watermark",
        "known_log_start",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "seen_leader_epoch",
        "session",
        "topic_key",
    )

    def __init__(self, session: FetchSession, topic_key: TopicKey, index: int) -> None:
        self.session = session
        self.topic_key = topic_key
        self.index = index
        self.partition: Partition | None = None
        self.fetch_offset = 0
        self.bytes_max = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.seen_leader_epoch = -1
        self.is_behind = False
        self.awaits_role = False
        """Whether this broker had not yet applied the partition's role when the fetch arrived. If so, the follower's
        progress in the request counts as soon as the partition is read."""
        self.known_high_watermark = -1
        self.known_log_start = -1

    def set_request(
        self, fetch_offset: int, bytes_max: int, leader_epoch: int, last_fetched_epoch: int, log_start_offset: int
    ) -> None:
        """Store the values of a request. Epochs and log start offset are -1 if the request has none.

        A follower has two requests in flight. It drops a result whose fetch offset is outdated, and with the result the
        high watermark in it. So when a follower names the partition again, the offsets are reported again."""
        self.fetch_offset = fetch_offset
        self.bytes_max = bytes_max
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.is_behind = False
        if self.session.is_follower:
            self.forget_reported()

    def refresh_followers(self, leader: LeaderState) -> None:
        """Handle the session's next request as if it named this partition, if the leader has lost the follower's
        progress. A follower without new records does not name the partition again itself."""
        if leader.has_not_reported(self.session.replica_id):
            self.session.named_next[self] = None

    def forget_reported(self) -> None:
        """Forget the last reported result, so that the next successful result is reported even if it is the same."""
        self.known_high_watermark = -1
        self.known_log_start = -1

    def differs(self, result: FetchResult) -> bool:
        """Return whether the offsets in `result` differ from those reported last."""
        return result.high_watermark != self.known_high_watermark or result.log_start_offset != self.known_log_start

    def watch(self, partition: Partition | None) -> None:
        """Watch `partition`, the replica of the topic to which the topic key currently refers (None if not hosted
        here)."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
            if partition is not None:
                partition.watchers[self] = None

    @property
    def has_more(self) -> bool:
        """Return whether the log has records at or after the fetch offset that was requested last."""
        partition, session = self.partition, self.session
        if partition is None or partition.log is None:
            return partition is None or not partition.is_unwritten
        if session.is_follower:
            return partition.log.log_end_offset > self.fetch_offset
        end = partition.last_stable_offset if session.read_committed else partition.high_watermark
        return end > self.fetch_offset

    def unwatch(self) -> None:
        if self.partition is not None:
            self.partition.watchers.pop(self, None)
            self.partition = None

    def partition_changed(self) -> None:
        """Record that the partition changed in this pass, and wake a parked fetch if there is something to return."""
        partition, session = self.partition, self.session
        if partition is None or partition.leader_epoch != self.seen_leader_epoch:
            session.note(self)
            return
        log = partition.log or (UNWRITTEN_LOG if partition.is_unwritten else None)
        if log is None:
            session.note(self)
            return
        log_end = log.log_end_offset
        if session.is_follower:
            end = log_end
            if end > self.fetch_offset and partition.leader is not None and not self.is_behind:
                # With its latest request, a follower acknowledges all records below its fetch offset, even if that
                # request did not name this partition.
                self.is_behind = True
                partition.leader.was_caught_up(session.replica_id, self.fetch_offset, session.used_ms)
        else:
            end = log.last_stable_offset if session.read_committed else partition.high_watermark
        if end > self.fetch_offset or not log.log_start_offset <= self.fetch_offset <= log_end:
            session.note(self)
        elif partition.high_watermark != self.known_high_watermark or log.log_start_offset != self.known_log_start:
            session.dirty[self] = None


class FetchSession:
    """The partitions of one fetcher. A session with id 0 lasts for one request, and watches its partitions only while
    that request is parked."""

    __slots__ = (
        "created_ms",
        "dirty",
        "epoch",
        "is_follower",
        "named",
        "named_next",
        "parked",
        "partitions",
        "read_committed",
        "replica_id",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(self, replica_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = 0
        self.epoch = 0
        self.replica_id = replica_id
        self.is_follower = replica_id >= 0
        self.read_committed = False
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.dirty: dict[CachedPartition, None] = {}
        """Partitions that may have changed. They are read in this order, and the first ones come first in the next
        response."""
        self.named: list[CachedPartition] = []
        """The partitions that the latest request names."""
        self.named_next: dict[CachedPartition, None] = {}
        """The partitions that are treated as named by the next request, even if it does not name them."""
        self.parked: Wakeable | None = None

    def partition(self, topic_key: TopicKey, index: int) -> CachedPartition:
        """Return the entry of this partition. A new entry is added at the end of the order."""
        key = (topic_key, index)
        entry = self.partitions.get(key)
        if entry is None:
            entry = self.partitions[key] = CachedPartition(self, topic_key, index)
        return entry

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Remove partitions that are no longer fetched."""
        for key in keys:
            entry = self.partitions.pop(key, None)
            if entry is not None:
                entry.unwatch()
                self.dirty.pop(entry, None)

    def name_again(self) -> None:
        """Treat the partitions in `named_next` as named by the request that now continues this session."""
        named_next, self.named_next = self.named_next, {}
        for entry in named_next:
            if self.partitions.get((entry.topic_key, entry.index)) is entry:
                self.named.append(entry)
                self.dirty.setdefault(entry)

    def note(self, entry: CachedPartition) -> None:
        """Record that `entry` has changed, and wake a parked fetch."""
        self.dirty[entry] = None
        if self.parked is not None:
            self.parked.wake()

    def in_turn(self, first: int) -> Iterator[CachedPartition]:
        """Yield the partitions that may have changed, as of this moment. The `first` ones are copied at once, the
        others only when they are reached. Building one long list takes long, and longer if a garbage collection starts
        meanwhile."""
        entries = list(islice(self.dirty, first))
        yield from entries
        if len(entries) == first:
            seen = set(entries)
            yield from [entry for entry in self.dirty if entry not in seen]

    def move_behind(self, entry: CachedPartition) -> None:
        """Move `entry`, which was just read and may still have records, behind the other changed partitions."""
        self.dirty.pop(entry, None)
        self.dirty[entry] = None

    def note_reported(self, entry: CachedPartition, result: FetchResult, size: int) -> bool:
        """Remember the result that a response reports for a partition, with `size` bytes of records. Return False if
        the result is the same as the last reported one, so that the response can omit it."""
        if not result.is_plain:
            entry.forget_reported()
            self.move_behind(entry)
            return True
        changed = entry.differs(result)
        entry.known_high_watermark = result.high_watermark
        entry.known_log_start = result.log_start_offset
        if size:  # to the end, so that the partition which waited first for room gets it first
            self.move_behind(entry)
            return True
        if entry.has_more:
            self.dirty[entry] = None
        else:
            self.dirty.pop(entry, None)
        return changed

    def close(self) -> None:
        """Stop watching the partitions, and drop the entries. Entries refer to their session, so keeping them would
        leave a reference cycle that only a garbage collection finds."""
        for entry in self.partitions.values():
            entry.unwatch()
        for entries in (self.partitions, self.dirty, self.named_next):
            entries.clear()
        self.named = []

    def advance(self) -> None:
        """Advance the epoch, because a request was accepted: the next request must have the next epoch."""
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1


class FetchSessionCache:
    """All fetch sessions of this broker, at most `slots`."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def peek(self, session_id: int) -> FetchSession | None:
        """Return the session with this id without changing it, or None."""
        return self._sessions.get(session_id)

    @property
    def partitions(self) -> int:
        """Return the total number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def find(
        self, session_id: int, epoch: int, replica_id: int, *, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | ErrorCode:
        """Return the session to which a request belongs, or the top-level error.

        A full request (epoch 0 or -1) gets a new session without partitions and with id 0; `keep` may give that session
        a slot."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.remove(session_id)
            return FetchSession(replica_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.advance()
        session.used_ms = now_ms
        return session

    def keep(self, session: FetchSession, now_ms: int) -> None:
        """Give a new session a slot and an id, if a slot is free or can be freed for it."""
        if not session.partitions or (len(self._sessions) >= self._slots and not self._evict(session, now_ms)):
            return
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = 1 + self._random.below(SESSION_ID_MAX)
        session.session_id = session_id
        session.epoch = 1
        self._sessions[session_id] = session

    def remove(self, session_id: int) -> None:
        """Close a session. No effect if no session has this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            if session.parked is not None:  # if it were not closed, it would watch its partitions again
                session.parked.answer_empty()
            session.close()

    def _evict(self, candidate: FetchSession, now_ms: int) -> bool:
        """Free a slot for `candidate` by evicting another session; return whether that was possible. The first choice
        is a session that was idle for long. The second is a consumer's session if `candidate` is a follower's. The
        third is a smaller session of the same kind that has lived long enough."""
        idle = min(self._sessions.values(), key=lambda session: session.used_ms, default=None)
        if idle is None:
            return False
        victim: FetchSession | None = idle if now_ms - idle.used_ms >= EVICTION_MS else None
        if victim is None:
            weaker = [
                session
                for session in self._sessions.values()
                if (candidate.is_follower and not session.is_follower)
                or (
                    session.is_follower == candidate.is_follower
                    and len(session.partitions) < len(candidate.partitions)
                    and now_ms - session.created_ms >= EVICTION_MS
                )
            ]
            victim = min(weaker, key=lambda session: (session.is_follower, len(session.partitions)), default=None)
        if victim is None:
            return False
        self.evictions += 1
        self.remove(victim.session_id)
        return True
