"""Share sessions: the partitions that a member of a share group fetches from this broker, kept between its requests.

Invariants: a member has at most one share session. Each accepted request advances its epoch. A session ends with its
final request, and with its connection.
Source: KIP-932, Kafka's ShareSessionCache and SharePartitionManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from kraft.wire.error_codes import ErrorCode

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

TopicIdPartition = tuple[UUID, int]


class ShareMember(NamedTuple):
    """A member of a share group."""

    group: str
    member: str


class ParkedShareFetch(Protocol):
    """A parked ShareFetch, for its session."""

    def answer_empty(self) -> None:
        """Answer without records, because the session's next request has arrived or the session has ended."""
        ...


class ShareSession:
    """The share session of one member. `connection` is the number of the connection that opened it."""

    __slots__ = ("connection", "epoch", "is_open", "member", "parked", "partitions")

    def __init__(self, member: ShareMember, connection: int) -> None:
        self.member = member
        self.connection = connection
        self.epoch = 1
        self.is_open = True
        self.partitions: dict[TopicIdPartition, None] = {}
        self.parked: ParkedShareFetch | None = None

    def change(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and remove partitions."""
        for partition in forgotten:
            self.partitions.pop(partition, None)
        self.partitions.update(dict.fromkeys(added))

    def in_turn(self) -> list[TopicIdPartition]:
        """Return the partitions in the order in which to read them. Each request begins with another one."""
        partitions = list(self.partitions)
        first = self.epoch % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]

    def end_parked(self) -> None:
        """Answer the session's parked request, if there is one."""
        if self.parked is not None:
            self.parked.answer_empty()


class ShareSessionCache:
    """All share sessions of this broker, at most `slots`."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[ShareMember, ShareSession] = {}
        self._by_connection: dict[int, dict[ShareMember, None]] = {}
        self._groups: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(self, member: ShareMember, connection: int) -> ShareSession | ErrorCode:
        """Open a session, instead of any that the member has."""
        self.close(member)
        if len(self._sessions) >= self._slots:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = self._sessions[member] = ShareSession(member, connection)
        self._by_connection.setdefault(connection, {})[member] = None
        self._groups[member.group] += 1
        return session

    def resume(self, member: ShareMember, epoch: int) -> ShareSession | ErrorCode:
        """Return the session that a request continues, or ends. The epoch is advanced."""
        session = self._sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        return session

    def close(self, member: ShareMember) -> None:
        """Close a member's session. No effect if it has none."""
        session = self._sessions.pop(member, None)
        if session is None:
            return
        session.is_open = False
        members = self._by_connection[session.connection]
        del members[member]
        if not members:
            del self._by_connection[session.connection]
        self._groups[member.group] -= 1
        if not self._groups[member.group]:
            del self._groups[member.group]
        session.end_parked()

    def has_group(self, group: str) -> bool:
        """Return whether a member of this group has a session."""
        return self._groups[group] > 0

    def of_connection(self, connection: int) -> list[ShareMember]:
        """Return the members whose sessions this connection opened."""
        return list(self._by_connection.get(connection, ()))
