"""Clients of both group protocols that own partitions, for tests of groups that migrate between the protocols.

A client does one thing at a time (`step`), as a real one does between two polls. After each step no partition may have
two owners. A classic client is eager (it gives up everything before it joins) or cooperative (it keeps what it has, and
joins again after it had to give something up).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from kraft.broker.consumer_group.assignors.members import AssignorMember
from kraft.broker.consumer_group.assignors.uniform import assign_uniform
from kraft.broker.consumer_group.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kraft.broker.group.requests import CommitRequest, JoinReply, OffsetToCommit, SyncReply
from kraft.wire.error_codes import ErrorCode
from kraft.wire.primitives import array_count, byte_string, string
from tests.broker.consumer_group.consumer_bench import ConsumerBench
from tests.stages.group_bench import GROUP, REBALANCE_MS, PendingRequest

Owned = set[tuple[str, int]]
TOPICS = ("orders", "trades")


def by_topic(owned: Iterable[tuple[str, int]]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for topic, partition in owned:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in found.items()}


def subscription(topics: Sequence[str], owned: Owned = frozenset(), generation: int = -1, version: int = 2) -> bytes:  # type: ignore[assignment]
    """Encode a subscription with owned partitions (version 1) and their generation (version 2)."""
    rows = b"".join(
        string(topic) + array_count(partitions) + struct.pack(f">{len(partitions)}i", *sorted(partitions))
        for topic, partitions in sorted(by_topic(owned).items())
    )
    head = struct.pack(">h", version) + array_count(topics) + b"".join(map(string, topics)) + byte_string(None)
    parts = [head, array_count(by_topic(owned)) + rows, struct.pack(">i", generation)]
    return b"".join(parts[: version + 1])


class Client:
    """A client of the group. `owned` are the partitions that it may read now."""

    def __init__(self, bench: ConsumerBench, name: str, instance_id: str | None, topics: Sequence[str]) -> None:
        self.bench = bench
        self.name = name
        self.instance_id = instance_id
        self.topics = topics
        self.member_id = ""
        self.epoch = -1
        self.owned: Owned = set()
        self.is_fenced = False

    def step(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def commit(self, offset: int) -> ErrorCode:
        """Commit this offset for every owned partition."""
        rows = tuple(OffsetToCommit(topic, partition, offset, -1, "", None) for topic, partition in sorted(self.owned))
        asked = self.bench.ask(CommitRequest(GROUP, self.epoch, self.member_id, self.instance_id, rows))
        (error,) = {row.error for row in asked.reply.rows} or {ErrorCode.NONE}
        return error


class ClassicClient(Client):
    def __init__(
        self,
        bench: ConsumerBench,
        name: str,
        instance_id: str | None = None,
        topics: Sequence[str] = TOPICS,
        *,
        is_cooperative: bool = True,
    ) -> None:
        super().__init__(bench, name, instance_id, topics)
        self.is_cooperative = is_cooperative
        self.pending: PendingRequest | None = None
        self.must_join = True

    def step(self) -> None:
        """Read the reply that has come, or join, or send a heartbeat."""
        if self.pending is not None:
            if not self.pending.is_parked:
                reply, self.pending = self.pending.reply, None
                self._joined(reply) if isinstance(reply, JoinReply) else self._synced(reply)
        elif self.must_join:
            self._join()
        elif (error := self.bench.heartbeat(self.member_id, self.epoch, self.instance_id)) is not ErrorCode.NONE:
            self._failed(error)

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        version = 2 if self.is_cooperative else 0
        name = "cooperative-sticky" if self.is_cooperative else "range"
        self.must_join = False
        self.pending = self.bench.join(
            self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            protocols=(
                (name, subscription(self.topics, self.owned, self.epoch, version)),
                ("roundrobin", b"\0\0\0\0\0\0\xff\xff\xff\xff"),
            ),
            requires_known_id=True,
        )

    def _joined(self, reply: JoinReply) -> None:
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.must_join = reply.member_id, True
        elif reply.error is not ErrorCode.NONE:
            self._failed(reply.error)
        else:
            self.member_id, self.epoch = reply.member_id, reply.generation
            assignments = self._assign(reply) if reply.leader == self.member_id and not reply.skip_assignment else ()
            self.pending = self.bench.sync(
                self.member_id,
                self.epoch,
                *assignments,
                instance_id=self.instance_id,
                protocol_type=reply.protocol_type,
                protocol=reply.protocol,
            )

    def _assign(self, reply: JoinReply) -> tuple[tuple[str, bytes], ...]:
        """Assign as the leader. A cooperative leader gives nobody what another member still owns."""
        said = {member_id: decode_subscription(metadata) for member_id, _, metadata in reply.members}
        rows = self.bench.rows
        members = [
            AssignorMember(
                member_id,
                None,
                None,
                frozenset(rows[topic].topic_id for topic in row.topics),
                {rows[topic].topic_id: partitions for topic, partitions in row.owned.items()},
            )
            for member_id, row in said.items()
        ]
        target = assign_uniform(members, {row.topic_id: row.partition_count for row in rows.values()})
        owners = {
            (topic, partition): member_id
            for member_id, row in said.items()
            for topic, partitions in row.owned.items()
            for partition in partitions
        }
        given = {}
        for member_id in said:
            mine = self.named(target[member_id])
            given[member_id] = by_topic(place for place in mine if owners.get(place, member_id) == member_id)
        return tuple((member_id, encode_assignment(0, partitions)) for member_id, partitions in given.items())

    def named(self, partitions: Mapping[UUID, frozenset[int]]) -> Owned:
        names = {row.topic_id: row.name for row in self.bench.rows.values()}
        return {(names[topic_id], number) for topic_id, numbers in partitions.items() for number in numbers}

    def _synced(self, reply: SyncReply) -> None:
        if reply.error is not ErrorCode.NONE:
            self._failed(reply.error)
            return
        partitions = decode_assignment(reply.assignment).partitions
        assigned = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
        self.must_join = bool(self.owned - assigned)
        self.owned = assigned

    def _failed(self, error: ErrorCode) -> None:
        self.must_join = True
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced, self.must_join = True, False
        if error not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            self.owned, self.epoch = set(), -1

    def leave(self) -> None:
        self.owned = set()
        if self.instance_id is None and self.member_id:
            self.bench.leave(self.member_id)


class ConsumerClient(Client):
    def __init__(
        self, bench: ConsumerBench, name: str, instance_id: str | None = None, topics: Sequence[str] = TOPICS
    ) -> None:
        super().__init__(bench, name, instance_id, topics)
        self.member_id = name
        self.epoch = 0

    def step(self) -> None:
        """Send a heartbeat, and take the assignment in its reply."""
        fields = {}
        if not self.epoch:
            fields = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_names": tuple(self.topics)}
        owned = {self.bench.rows[topic].topic_id: numbers for topic, numbers in by_topic(self.owned).items()}
        reply = self.bench.beat(self.member_id, self.epoch, instance_id=self.instance_id, owned=owned, **fields)
        if reply.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.owned, self.epoch = set(), 0
        elif reply.error is ErrorCode.FENCED_INSTANCE_ID:
            self.owned, self.is_fenced = set(), True
        elif reply.error is ErrorCode.NONE:
            self.epoch = reply.epoch
            if reply.assignment is not None:
                names = {row.topic_id: row.name for row in self.bench.rows.values()}
                self.owned = {
                    (names[topic_id], number) for topic_id, numbers in reply.assignment.items() for number in numbers
                }

    def leave(self) -> None:
        self.owned = set()
        self.bench.beat(self.member_id, -1 if self.instance_id is None else -2, instance_id=self.instance_id)


class MigratingGroup:
    """All clients of a group. `rounds` counts the rounds that `settle` needed."""

    def __init__(self, bench: ConsumerBench) -> None:
        self.bench = bench
        self.clients: list[Client] = []
        self.started = 0

    def start(self, is_classic: bool, instance_id: str | None = None, **options: bool) -> Client:
        self.started += 1
        name = f"{'classic' if is_classic else 'consumer'}{self.started}"
        client: Client
        if is_classic:
            client = ClassicClient(self.bench, name, instance_id, **options)
        else:
            client = ConsumerClient(self.bench, name, instance_id)
        self.clients.append(client)
        return client

    def stop(self, client: Client) -> None:
        client.leave()
        self.clients.remove(client)

    def step(self, client: Client) -> None:
        if not client.is_fenced:
            client.step()
        self.check()

    def check(self) -> None:
        """Check that no partition has two owners."""
        self.bench.check_counts()
        owned = [place for client in self.clients for place in client.owned]
        assert len(owned) == len(set(owned)), {client.name: client.owned for client in self.clients}

    def settle(self, rounds: int = 12) -> None:
        """Let all clients work for so many rounds of a second each."""
        for _ in range(rounds):
            for client in list(self.clients):
                self.step(client)
            self.bench.sleep(1_000)

    @property
    def covered(self) -> Owned:
        """The partitions that have an owner."""
        return {place for client in self.clients for place in client.owned}

    @property
    def all_partitions(self) -> Owned:
        return {(row.name, number) for row in self.bench.rows.values() for number in range(row.partition_count)}
