"""Mutated frames of Produce, Fetch, the group APIs and all others that need logs or coordinators, against a whole node
in a simulated world. The node keeps running, written data is read back unchanged, and no handler fails.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
import trio

from kraft.seam import Random, Seam
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.messages.fetch import FIRST_VERSION_WITH_TOPIC_ID, FetchPartition, FetchRequest, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.messages.produce import encode_produce_request
from kraft.wire.records import Record
from kraft.wire.records.batch_codec import decode_batch, encode_batch
from tests.protocol.test_error_answers import filled
from tests.protocol.test_mutated_frames import FRAMES
from tests.stages.world_cluster import AskingClient, WorldCluster

FRAMES_PER_VERSION = 12
VALUE = b"what was acknowledged"
WITH_TOPICS = (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS)


def _nested(cls: Any, field: str, **fields: Any) -> Any:
    return messages.build(messages.nested_class(cls, field), **fields)


def _produce(version: int, topic_id: UUID) -> bytes:
    batch = encode_batch([Record(0, 1_000, b"k", VALUE, ())])
    name, identity = ("orders", None) if version < 13 else (None, topic_id)
    topics = [(name, identity, [(0, batch)])]
    return b"".join(bytes(c) for c in encode_produce_request(version, acks=1, timeout_ms=100, topics=topics))


def _fetch(version: int, topic_id: UUID) -> bytes:
    name, identity = ("orders", None) if version < FIRST_VERSION_WITH_TOPIC_ID else (None, topic_id)
    partition = FetchPartition(0, -1, 0, -1, -1, 1 << 20)
    request = FetchRequest(max_wait_ms=10, min_bytes=1, topics=[(name, identity, [partition])])
    return encode_fetch_request(version, request)


def _by_kio(key: int, version: int) -> bytes:
    cls = messages.request_class(key)
    if key not in WITH_TOPICS:
        return messages.encode_request(key, version, filled(cls))
    topic_class = messages.nested_class(cls, "topics")
    name = {"topic" if key == ApiKey.OFFSET_FOR_LEADER_EPOCH else "name": "orders"}
    topic = messages.build(topic_class, partitions=(_nested(topic_class, "partitions"),), **name)
    return messages.encode_request(key, version, messages.build(cls, topics=(topic,)))


def _body(key: int, version: int, topic_id: UUID) -> bytes:
    if key == ApiKey.PRODUCE:
        return _produce(version, topic_id)
    return _fetch(version, topic_id) if key == ApiKey.FETCH else _by_kio(key, version)


def _mutated(body: bytes, chance: Random) -> bytes:
    data = bytearray(body)
    for _ in range(1 + chance.below(4)):
        place = chance.below(len(data)) if data else 0
        kind = chance.below(4)
        if kind == 0 and data:
            data[place] ^= 1 + chance.below(255)
        elif kind == 1:
            del data[place : place + 1 + chance.below(20)]
        elif kind == 2:
            data[place:place] = bytes(chance.below(256) for _ in range(1 + chance.below(6)))
        elif len(data) >= 4:
            struct.pack_into(">i", data, min(place, len(data) - 4), (-1, 0, 1, 2**31 - 1, -(2**31))[chance.below(5)])
    return bytes(data)


async def _attack(cluster: WorldCluster, seam: Seam, key: int, version: int, body: bytes) -> None:
    """Send one frame on a separate connection. The frame may be answered, end the connection, or wait without an
    answer."""
    client = await cluster.connect(1, seam)
    with trio.move_on_after(0.2):
        try:
            await client.ask_bytes(key, version, body)
        except ConnectionError:
            return
    client.connection.close("the test is done with it")


async def _first_value(client: AskingClient, topic_id: UUID) -> bytes | None:
    body = await client.ask_bytes(ApiKey.FETCH, 16, _fetch(16, topic_id))
    ((_, _, (result,)),) = decode_fetch_response(16, memoryview(body)).topics
    return decode_batch(result.records[0], output_bytes_max=1 << 20)[0].value


@pytest.mark.parametrize(
    "key", [key for key in BROKER_APIS if (int(key), BROKER_APIS[key].max) not in FRAMES], ids=lambda key: key.name
)
def test_mutated_frames_never_disturb_the_node_or_its_data(key: ApiKey) -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world, combined=1)
        cluster.start()
        await cluster.wait_ready()
        seam = world.node("client")
        client = await cluster.connect(1, seam)
        topic = _nested(
            messages.request_class(ApiKey.CREATE_TOPICS),
            "topics",
            name="orders",
            num_partitions=1,
            replication_factor=1,
        )
        created = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=(topic,), timeout=5_000)
        topic_id = created.topics[0].topic_id
        await world.sleep_ms(50)
        await client.ask_bytes(ApiKey.PRODUCE, 12, _produce(12, topic_id))
        assert await _first_value(client, topic_id) == VALUE
        chance = world.random.stream("mutations")
        served = BROKER_APIS[key]
        for version in range(served.min, served.max + 1):
            body = _body(key, version, topic_id)
            await client.ask_bytes(key, version, body)
            for _ in range(FRAMES_PER_VERSION):
                await _attack(cluster, seam, key, version, _mutated(body, chance))
        if key is not ApiKey.DELETE_RECORDS:  # a mutated request may be valid for another offset
            assert await _first_value(client, topic_id) == VALUE
        node = cluster.node(1)
        assert "UNKNOWN_SERVER_ERROR" not in {error for _, error, _ in node.requests.error_counts()}
        assert cluster.failures == []

    World(11).run(main)
