"""ShareMember: a member of a share group in a simulated cluster that fetches from one partition and acknowledges."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from kraft.broker.api.share_fetch.share_sessions import ShareMember as SessionKey
from kraft.broker.partition.partition_host import PendingAppend
from kraft.seam import DialFailed
from kraft.sim.world import World
from kraft.storage.append import AppendOrigin
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control
from tests.broker.coordinator.share_states import ShareStates
from tests.stages.plane import batch, records
from tests.stages.world_cluster import AskingClient, WorldCluster

TRIES_MAX = 200
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Fetched(NamedTuple):
    """A row of a ShareFetch response: its errors, the acquired batches, and the values of the acquired records."""

    error: ErrorCode
    acknowledge_error: ErrorCode
    acquired: list[tuple[int, int, int]]
    values: dict[int, str]


class Share:
    """The share group `g` in partition 0 of `orders`."""

    def __init__(self, world: World, cluster: WorldCluster) -> None:
        self.world = world
        self.cluster = cluster
        self.states = ShareStates(world, cluster)

    @property
    def leader(self) -> int:
        leader: int = self.states.image.topics.by_name["orders"].partition(0).leader
        return leader

    @property
    def partition(self) -> Any:
        """The replica at the leader."""
        node: Any = self.cluster.node(self.leader)
        return node.broker.broker.replicas.find("orders", 0)

    @property
    def led(self) -> Any:
        """The share partition at the leader."""
        node: Any = self.cluster.node(self.leader)
        return node.broker.broker.shares.find("g", (self.states.topic_id, 0))

    @property
    def persister(self) -> Any:
        """The leader's access to share coordinators."""
        node: Any = self.cluster.node(self.leader)
        return node.broker.broker.share_persister

    def end_session(self, member: str) -> None:
        """End a member's share session, as the leader does when its connection is lost."""
        node: Any = self.cluster.node(self.leader)
        node.broker.broker.shares.close_session(SessionKey("g", member))

    async def begin(self, start_offset: int = 0) -> None:
        assert await self.states.initialize(start_offset) is ErrorCode.NONE

    async def append(self, *values: str, producer_id: int = -1, sequence: int = 0, transactional: bool = False) -> None:
        """Append one batch at the leader, and wait until it is committed."""
        fields = (
            {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if producer_id >= 0 else {}
        )
        await self._append(batch(*values, transactional=transactional, **fields), verified=transactional)

    async def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        marker = ControlRecord(type=kind, coordinator_epoch=0)
        await self._append(
            encode_control(marker, timestamp_ms=0, producer_id=producer_id, producer_epoch=0), verified=False
        )

    async def _append(self, data: Any, *, verified: bool) -> None:
        partition, data = self.partition, bytearray(data)

        def append(error: ErrorCode) -> None:
            assert error is ErrorCode.NONE, error
            header, now_ms = read_header(data), partition.host.clock.wall_ms()
            origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
            verification = NOT_VERIFYING if verified else None
            partition.append_as_leader(memoryview(data), header, now_ms, origin, verification)

        partition.append_later(PendingAppend(append))
        partition.run_pending()
        for _ in range(TRIES_MAX):
            log = partition.log
            if log is not None and partition.high_watermark == log.log_end_offset > 0 and not partition.pending:
                return
            await self.world.sleep_ms(5)
        raise AssertionError("the batch is not committed")


class ShareMember:
    """One member, with one connection to the leader."""

    def __init__(self, share: Share, name: str = "m1") -> None:
        self.share = share
        self.name = name
        self.seam = share.world.node(f"member-{name}")
        self.epoch = 0
        self.client: AskingClient | None = None

    @property
    def topic_id(self) -> UUID:
        return self.share.states.topic_id

    async def connect(self) -> None:
        """Connect to the leader, and begin a new share session."""
        for _ in range(TRIES_MAX):
            try:
                self.client = await self.share.cluster.connect(self.share.leader, self.seam)
            except DialFailed:
                await self.share.world.sleep_ms(20)
            else:
                self.epoch = 0
                return
        raise AssertionError("the leader cannot be reached")

    async def send(
        self, key: ApiKey, acknowledgements: Any, *, version: int = 2, named: bool = True, **fields: Any
    ) -> Any:
        """Send a request in the member's share session, and return the response."""
        if self.client is None:
            await self.connect()
        assert self.client is not None
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, *types in acknowledgements
        ]
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
        epoch = fields.pop("share_session_epoch", self.epoch)
        answered = await self.client.ask(
            key,
            version,
            group_id="g",
            member_id=self.name,
            share_session_epoch=epoch,
            topics=[{"topic_id": self.topic_id, "partitions": partitions}] if named else [],
            **fields,
        )
        if answered.error_code == ErrorCode.NONE and epoch == self.epoch:
            self.epoch += 1
        return answered

    async def respond(self, *acknowledgements: Any, wait_ms: int = 0, **fields: Any) -> Any:
        """Send a ShareFetch, and return the response. An acknowledgement is (first, last, type, …)."""
        limits = {"min_bytes": 1, "max_bytes": 1_000_000, "max_records": 500, "batch_size": 500}
        return await self.send(ApiKey.SHARE_FETCH, acknowledgements, max_wait=wait_ms, **{**limits, **fields})

    async def fetch(self, *acknowledgements: Any, wait_ms: int = 0, **fields: Any) -> Fetched:
        """Send a ShareFetch, and return its row; an empty one if the response has none."""
        answered = await self.respond(*acknowledgements, wait_ms=wait_ms, **fields)
        assert answered.error_code == ErrorCode.NONE, ErrorCode.of(int(answered.error_code))
        rows = [row for topic in answered.responses for row in topic.partitions]
        if not rows:
            return Fetched(ErrorCode.NONE, ErrorCode.NONE, [], {})
        (row,) = rows
        acquired = [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records]
        values = {
            record.offset: (record.value or b"").decode()
            for record in records([bytes(row.records)])
            if any(first <= record.offset <= last for first, last, _ in acquired)
        }
        errors = (ErrorCode.of(int(row.error_code)), ErrorCode.of(int(row.acknowledge_error_code)))
        return Fetched(*errors, acquired, values)

    async def acquire(self, *acknowledgements: Any, **fields: Any) -> Fetched:
        """Fetch until something is acquired."""
        for _ in range(TRIES_MAX):
            found = await self.fetch(*acknowledgements, wait_ms=100, **fields)
            if found.acquired or found.error is not ErrorCode.NONE:
                return found
            acknowledgements = ()
        raise AssertionError("nothing is acquired")

    async def acknowledge(self, *acknowledgements: Any, **fields: Any) -> ErrorCode:
        """Send a ShareAcknowledge, and return the first error in the response."""
        answered = await self.send(ApiKey.SHARE_ACKNOWLEDGE, acknowledgements, **fields)
        errors = [answered.error_code, *(row.error_code for topic in answered.responses for row in topic.partitions)]
        return ErrorCode.of(int(next((error for error in errors if error), 0)))
