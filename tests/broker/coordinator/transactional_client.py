"""A transactional producer in a simulated cluster. It looks up its coordinator again if necessary."""

from __future__ import annotations

from itertools import count
from typing import Any

from kraft.seam import DialFailed
from kraft.sim.world import World
from kraft.storage.markers import read_marker
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import iter_headers
from tests.stages.plane import batch
from tests.stages.world_cluster import AskingClient, WorldCluster

NEWEST = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 5,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 2,
}
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
TRIES_MAX = 600
NUMBERS = count(1)
"""Numbers of client machines. Each client gets a separate machine, because a second node on a machine ends the first
one."""
ORDERS = (("orders", 0), ("orders", 1))

Found = list[tuple[int, int, bool]]
"""(producer id, epoch, is commit) of each marker in a partition."""


class TransactionalClient:
    """One transactional producer. `broker` is the last known coordinator."""

    def __init__(self, world: World, cluster: WorldCluster, transactional_id: str = "payments") -> None:
        self.world = world
        self.cluster = cluster
        self.seam = world.node(f"producer-{next(NUMBERS)}")
        self.transactional_id = transactional_id
        self.broker = -1
        self.producer_id = self.epoch = -1
        self._client: AskingClient | None = None

    @property
    def machine(self) -> Any:
        """The state machine of the coordinator's shard that has this transactional id."""
        shards = self.cluster.node(self.broker).broker.broker.transactions.shards.values()
        return next(one.machine for one in shards if one.machine and self.transactional_id in one.machine.transactions)

    async def find(self) -> int:
        """Return the coordinator's node id. Wait until a broker names itself as the coordinator."""
        for _ in range(TRIES_MAX):
            for broker_id in self.cluster.broker_ids:
                if self.world.is_running(self.cluster.name(broker_id)) and await self._ask_where(broker_id):
                    return self.broker
            await self.world.sleep_ms(10)
        raise AssertionError("no coordinator was found")

    async def _ask_where(self, broker_id: int) -> bool:
        try:
            client = await self.cluster.connect(broker_id, self.seam)
            answered = await client.ask(
                ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=[self.transactional_id]
            )
        except (ConnectionError, DialFailed):
            return False
        (found,) = answered.coordinators
        if found.error_code != ErrorCode.NONE or found.node_id != broker_id:
            return False
        self._client, self.broker = client, broker_id
        return True

    async def ask(self, key: ApiKey, version: int | None = None, **fields: Any) -> Any:
        """Send one request to the coordinator, and return the response."""
        if self._client is None:
            await self.find()
        assert self._client is not None
        return await self._client.ask(key, NEWEST[key] if version is None else version, **fields)

    async def persist(self, key: ApiKey, version: int | None = None, **fields: Any) -> Any:
        """Send a request until its response is something other than a retriable coordinator error. Look up the
        coordinator again when it has moved."""
        for _ in range(TRIES_MAX):
            error = ErrorCode.NOT_COORDINATOR
            try:
                answered = await self.ask(key, version, **fields)
                error = error_of(answered)
                if error not in MOVED:
                    return answered
            except (ConnectionError, DialFailed):
                pass
            if error is ErrorCode.NOT_COORDINATOR:
                await self.find()
            await self.world.sleep_ms(20)
        raise AssertionError(f"{key.name} does not succeed")

    # requests

    async def init(self, version: int | None = None, *, timeout_ms: int = 60_000, keeps: bool = False) -> ErrorCode:
        """Send InitProducerId and store the returned identity; with `keeps`, the request names the current identity."""
        old = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if keeps else {}
        old = old or {"producer_id": -1, "producer_epoch": -1}
        reply = await self.persist(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms,
            **old,
        )
        if reply.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = int(reply.producer_id), int(reply.producer_epoch)
        return ErrorCode.of(int(reply.error_code))

    def adding(self, *partitions: tuple[str, int], verify: bool = False) -> dict[str, Any]:
        """Return the fields of an AddPartitionsToTxn request."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        return {
            "transactions": [
                {
                    "transactional_id": self.transactional_id,
                    "producer_id": self.producer_id,
                    "producer_epoch": self.epoch,
                    "verify_only": verify,
                    "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
                }
            ]
        }

    async def add(self, *partitions: tuple[str, int], version: int | None = None, verify: bool = False) -> Any:
        """Send AddPartitionsToTxn, and return the error of each partition."""
        fields = self.adding(*(partitions or ORDERS), verify=verify)
        reply = await self.persist(ApiKey.ADD_PARTITIONS_TO_TXN, version, **fields)
        return {
            (topic.name, row.partition_index): ErrorCode.of(int(row.partition_error_code))
            for result in reply.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }

    def ending(self, *, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }

    async def end(self, version: int | None = None, *, commit: bool = True) -> ErrorCode:
        """Send EndTxn, and return the error. From version 5 on, store the next identity in the response."""
        reply = await self.persist(ApiKey.END_TXN, version, **self.ending(commit=commit))
        if reply.error_code == ErrorCode.NONE and reply.producer_id >= 0:
            self.producer_id, self.epoch = int(reply.producer_id), int(reply.producer_epoch)
        return ErrorCode.of(int(reply.error_code))

    async def describe(self) -> Any:
        reply = await self.persist(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[self.transactional_id])
        (row,) = reply.transaction_states
        return row

    async def wait_state(self, state: str) -> None:
        """Wait until the transaction is in this state."""
        for _ in range(TRIES_MAX):
            row = await self.describe()
            if row.transaction_state == state:
                return
            if error_of(row) is not ErrorCode.NONE:
                await self.find()
            await self.world.sleep_ms(20)
        raise AssertionError(f"the transaction is {row.transaction_state}, not {state}")

    # partitions

    def leader_of(self, topic: str, index: int) -> Any:
        """Return the partition's replica at its leader, in the newest image of any running broker."""
        nodes = [
            self.cluster.node(broker_id)
            for broker_id in self.cluster.broker_ids
            if self.world.is_running(self.cluster.name(broker_id))
        ]
        image = max((node.publisher.image for node in nodes), key=lambda one: one.offset)
        state = image.topics.by_name[topic].partition(index)
        return self.cluster.node(state.leader).broker.broker.replicas.find(topic, index)

    async def write(self, topic: str, index: int, *, sequence: int = 0) -> None:
        """Append a transactional batch at the leader, like Produce after the coordinator has confirmed the
        partition."""
        partition = self.leader_of(topic, index)
        from kraft.broker.partition.partition_host import PendingAppend
        from kraft.wire.records import read_header

        data = batch(
            "v",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        done: list[Any] = []

        def append(error: ErrorCode) -> None:
            assert error is ErrorCode.NONE, error
            now_ms = partition.host.clock.wall_ms()
            header = read_header(data)
            done.append(partition.append_as_leader(memoryview(data), header, now_ms, verification=NOT_VERIFYING))

        partition.append_later(PendingAppend(append))
        partition.run_pending()
        while not done:
            await self.world.sleep_ms(5)

    def markers(self, topic: str, index: int) -> Found:
        """Return the markers in the log of the partition's leader."""
        log = self.leader_of(topic, index).log
        if log is None:
            return []
        found: Found = []
        data = log.read(log.log_start_offset, 10_000_000, log.log_end_offset).read_whole(log.log_end_offset)
        for position, header in iter_headers(data):
            marker = read_marker(data, position, header)
            if marker is not None:
                found.append((header.producer_id, header.producer_epoch, not marker.aborted))
        return found

    async def wait_stable(self, *partitions: tuple[str, int]) -> None:
        """Wait until no transaction is open in these partitions."""
        for _ in range(TRIES_MAX):
            logs = [self.leader_of(*one).log for one in partitions or ORDERS]
            if all(log is not None and log.last_stable_offset == log.log_end_offset > 0 for log in logs):
                return
            await self.world.sleep_ms(20)
        raise AssertionError("a transaction stays open")


def error_of(answered: Any) -> ErrorCode:
    """Return the first error in a response."""
    for result in getattr(answered, "results_by_transaction", ()):
        for topic in result.topic_results:
            for row in topic.results_by_partition:
                if row.partition_error_code:
                    return ErrorCode.of(int(row.partition_error_code))
    return ErrorCode.of(int(getattr(answered, "error_code", 0)))
