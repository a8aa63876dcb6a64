"""A simulated cluster, and a client that encodes produce and fetch requests itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kraft.broker.partition.partition import Partition
from kraft.seam import Seam
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchResult, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.messages.produce import ProduceResponse, ProduceResult, decode_produce_response, encode_produce_request
from kraft.wire.records import Record, decode_batch, encode_batch, iter_headers, read_header, write_crc
from kraft.wire.records.compression import Compression
from kraft.wire.records.header import pack_header
from tests.stages.world_cluster import AskingClient, WorldCluster

EPOCH_MS = 1_750_000_000_000
PRODUCE_VERSION = 12
FETCH_VERSION = 12

Test = Callable[["Plane"], Awaitable[Any]]


def run(test: Test, *, seed: int = 1, **layout: Any) -> None:
    """Start a cluster (default: one node of both roles), and run `test` on it."""

    async def main(world: World) -> None:
        cluster = WorldCluster(world, **(layout or {"combined": 1}))
        cluster.start()
        await cluster.wait_ready()
        await test(Plane(world, cluster))
        if cluster.failures:
            raise cluster.failures[0][1]

    World(seed).run(main)


def three(test: Test, *, seed: int = 1, **settings: Any) -> None:
    """Start a cluster of one controller and three brokers, and run `test` on it."""
    run(test, seed=seed, controllers=1, brokers=3, **settings)


def batch(*values: bytes | str, key: bytes | None = None, timestamp: int = EPOCH_MS, **options: Any) -> bytearray:
    """Return one batch with a record for each value."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    return encode_batch([Record(0, timestamp, key, value) for value in raw], **options)


def far_apart(delta_ms: int) -> bytearray:
    """Return a compressed batch of two records whose offsets are far apart, which its header does not show."""
    made = encode_batch([Record(0, 0, None, b"a"), Record(1, delta_ms, None, b"b")], compression=Compression.GZIP)
    pack_header(made, 0, read_header(made)._replace(base_timestamp=EPOCH_MS, max_timestamp=EPOCH_MS))
    write_crc(made, 0)
    return made


def values(data: Sequence[Any]) -> list[bytes | None]:
    """Return the values of all data records in the bytes of a fetch result."""
    return [record.value for record in records(data)]


def records(data: Sequence[Any]) -> list[Record]:
    found: list[Record] = []
    for piece in data:
        for position, header in iter_headers(piece):
            if not header.is_control:
                found += decode_batch(piece, position, output_bytes_max=2**30)
    return found


class Plane:
    """Short methods for tests of a cluster, for one client machine."""

    def __init__(self, world: World, cluster: WorldCluster) -> None:
        self.world = world
        self.cluster = cluster
        self.seam: Seam = world.node("client")
        self._clients: dict[int, AskingClient] = {}

    async def client(self, broker_id: int = 1) -> AskingClient:
        known = self._clients.get(broker_id)
        if known is None or known.connection.is_closed:
            known = self._clients[broker_id] = await self.cluster.connect(broker_id, self.seam)
        return known

    async def another_client(self, broker_id: int = 1) -> AskingClient:
        return await self.cluster.connect(broker_id, self.seam)

    async def create_topic(
        self, name: str, partitions: int = 1, factor: int | None = None, *, leader: int | None = None, **configs: str
    ) -> None:
        """Create a topic, and wait until all brokers have its leaders in their metadata. `leader` becomes the first
        replica of every partition."""
        cls = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
        config_class = messages.nested_class(cls, "configs")
        assignment_class = messages.nested_class(cls, "assignments")
        rows = [messages.build(config_class, name=k.replace("_", "."), value=v) for k, v in configs.items()]
        brokers = self.cluster.broker_ids
        factor = len(brokers) if factor is None else factor
        assignments: list[Any] = []
        if leader is not None:
            order = (leader, *[broker for broker in brokers if broker != leader])[:factor]
            assignments = [
                messages.build(assignment_class, partition_index=index, broker_ids=order) for index in range(partitions)
            ]
        topic = messages.build(
            cls,
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else factor,
            configs=rows,
            assignments=assignments,
        )
        client = await self.client(brokers[-1])
        response = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=10_000)
        assert response.topics[0].error_code == 0, response
        await self.until(lambda: all(self.hosts(broker, name) for broker in brokers[:factor]) or factor < len(brokers))
        await self.world.sleep_ms(20)

    def hosts(self, broker_id: int, topic: str) -> bool:
        return self.cluster.node(broker_id).publisher.image.topics.get(topic) is not None

    def partition(self, topic: str, broker_id: int = 1, index: int = 0) -> Partition:
        found = self.cluster.node(broker_id).broker.broker.replicas.find(topic, index)
        assert found is not None
        return found

    def leader(self, topic: str, index: int = 0) -> int:
        """Return the partition's leader in the newest image."""
        images = [self.cluster.node(one).publisher.image for one in self.cluster.broker_ids if self.is_up(one)]
        image = max(images, key=lambda one: one.offset)
        return image.topics.get(topic).partition(index).leader

    def is_up(self, broker_id: int) -> bool:
        return self.world.is_running(self.cluster.name(broker_id))

    async def stop(self, broker_id: int) -> None:
        """Stop this broker cleanly."""
        name = self.cluster.name(broker_id)
        self.cluster.node(broker_id).request_stop()
        await self.until(lambda: not self.world.is_running(name))
        del self.cluster.started[name]

    async def until(self, condition: Callable[[], bool], timeout_ms: float = 20_000) -> float:
        """Let time pass until the condition is true. Return how much time passed, in ms."""
        began_ns = self.world.now_ns
        while not condition():
            assert (self.world.now_ns - began_ns) / 1e6 < timeout_ms, "it did not come true"
            await self.world.sleep_ms(1)
        return (self.world.now_ns - began_ns) / 1e6

    # produce

    async def produce_many(
        self,
        topics: Sequence[tuple[str, Sequence[tuple[int, Any]]]],
        *,
        acks: int = -1,
        timeout_ms: int = 10_000,
        version: int = PRODUCE_VERSION,
        broker_id: int = 1,
        client: AskingClient | None = None,
        transactional_id: str | None = None,
    ) -> ProduceResponse:
        image = self.cluster.node(broker_id).publisher.image
        rows = []
        for name, partitions in topics:
            known = image.topics.get(name)
            rows.append((name, known.topic_id if known is not None else None, partitions))
        body = encode_produce_request(
            version, acks=acks, timeout_ms=timeout_ms, topics=rows, transactional_id=transactional_id
        )
        asker = client or await self.client(broker_id)
        answer = await asker.ask_bytes(ApiKey.PRODUCE, version, b"".join(body))
        return decode_produce_response(version, answer)

    async def produce(self, topic: str, data: Any, index: int = 0, **options: Any) -> ProduceResult:
        response = await self.produce_many([(topic, [(index, data)])], **options)
        return response.topics[0][2][0]

    # fetch

    async def fetch_many(
        self,
        wishes: Sequence[tuple[str, int, int]],
        *,
        version: int = FETCH_VERSION,
        broker_id: int = 1,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 2**30,
        partition_bytes: int = 2**20,
        client: AskingClient | None = None,
        leader_epoch: int = -1,
        **options: Any,
    ) -> FetchResponse:
        """Fetch several partitions. `wishes` has a (topic, partition, offset) for each."""
        image = self.cluster.node(broker_id).publisher.image
        topics = []
        for name, index, offset in wishes:
            known = image.topics.get(name)
            row = FetchPartition(index, leader_epoch, offset, -1, -1, partition_bytes)
            topics.append((name, known.topic_id if known is not None else None, [row]))
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **options
        )
        asker = client or await self.client(broker_id)
        answer = await asker.ask_bytes(ApiKey.FETCH, version, encode_fetch_request(version, request))
        return decode_fetch_response(version, answer)

    async def fetch(self, topic: str, offset: int, index: int = 0, **options: Any) -> FetchResult:
        response = await self.fetch_many([(topic, index, offset)], **options)
        assert response.error_code == 0
        return response.topics[0][2][0]

    # offsets

    async def list_offset(
        self,
        topic: str,
        timestamp: int,
        *,
        version: int = 7,
        broker_id: int = 1,
        isolation: int = 0,
        epoch: int = -1,
        replica_id: int = -1,
    ) -> Any:
        request_class = messages.request_class(ApiKey.LIST_OFFSETS)
        topic_class = messages.nested_class(request_class, "topics")
        row_class = messages.nested_class(topic_class, "partitions")
        row = messages.build(row_class, partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
        client = await self.client(broker_id)
        response = await client.ask(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=replica_id,
            isolation_level=isolation,
            topics=[messages.build(topic_class, name=topic, partitions=[row])],
        )
        return response.topics[0].partitions[0]

    async def delete_records(self, topic: str, offset: int, *, broker_id: int = 1, timeout_ms: int = 5_000) -> Any:
        request_class = messages.request_class(ApiKey.DELETE_RECORDS)
        topic_class = messages.nested_class(request_class, "topics")
        row_class = messages.nested_class(topic_class, "partitions")
        row = messages.build(row_class, partition_index=0, offset=offset)
        client = await self.client(broker_id)
        response = await client.ask(
            ApiKey.DELETE_RECORDS,
            2,
            topics=[messages.build(topic_class, name=topic, partitions=[row])],
            timeout=timeout_ms,
        )
        return response.topics[0].partitions[0]


def error(result: Any) -> ErrorCode:
    return ErrorCode(result.error_code)
