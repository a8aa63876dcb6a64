"""Client workload on the cluster whose data folders become golden files: topics, configs, records, committed offsets.

As a program it runs one of three steps against the given bootstrap servers. The previous release runs it with its own
modules, so it must import nothing of tests.
"""

from __future__ import annotations

import sys
from types import MappingProxyType

import trio

from kraft.client import Consumer, Producer
from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, NewTopic, ResourceType

NOW_MS = 1_750_000_000_000
RECORDS, COMPACTED, GROUP = "records", "compacted", "readers"
COMMITTED_OFFSET = 12
LOG_START = 5
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = MappingProxyType(
    {
        RECORDS: {"internal.segment.bytes": "2000", "index.interval.bytes": "200"},
        COMPACTED: {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "300",
            "index.interval.bytes": "200",
            "min.cleanable.dirty.ratio": "0.01",
        },
        **{f"codec-{codec}": {"retention.ms": "-1"} for codec in CODECS},
    }
)
CONFIG_CHANGES = 30
"""Number of config changes. Each is a separate batch of the metadata log, so that the log gets index entries and
snapshots."""


def records_of(step: int) -> list[tuple[bytes, bytes]]:
    """Return key and value of the records that `step` sends to the topic `RECORDS`, each in its own batch."""
    return [(b"key-%d-%d" % (step, number), b"value %d " % number * 8) for number in range(12)]


def compacted_of(step: int) -> list[tuple[bytes, bytes]]:
    """Return key and value of the records that `step` sends to the topic `COMPACTED`: three keys again and again."""
    return [(b"key-%d" % (number % 3), b"step %d value %d" % (step, number)) for number in range(7)]


def codec_records(codec: str) -> list[bytes]:
    """Return the values of the records in the one batch that is sent with this codec."""
    return [b"%s %d " % (codec.encode(), number) * 10 for number in range(10)]


async def make_topics(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        for name, configs in TOPICS.items():
            await admin.topics.create(NewTopic(name, partitions=1, replication_factor=1, configs=configs))
        for number in range(CONFIG_CHANGES):
            change = ConfigChange(ConfigOperation.SET, "retention.ms", str(10**12 + number))
            await admin.configs.alter(ConfigResource(ResourceType.TOPIC, RECORDS), [change])


async def send(bootstrap: str, step: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for topic, records in ((RECORDS, records_of(step)), (COMPACTED, compacted_of(step))):
            for number, (key, value) in enumerate(records):
                at = NOW_MS + 100_000 * step + 1000 * number
                await producer.send(topic, value, key, headers=[("step", b"%d" % step)], timestamp_ms=at)


async def send_compressed(bootstrap: str) -> None:
    for codec in CODECS:
        async with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=1000) as producer:
            for number, value in enumerate(codec_records(codec)):
                await producer.enqueue(f"codec-{codec}", value, b"key", timestamp_ms=NOW_MS + number)


async def commit_and_delete(bootstrap: str) -> None:
    async with Consumer(bootstrap_servers=bootstrap, group_id=GROUP) as consumer:
        await consumer.assign([(RECORDS, 0)])
        await consumer.commit({(RECORDS, 0): COMMITTED_OFFSET})
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.partitions.delete_records({(RECORDS, 0): LOG_START})


async def run(bootstrap: str, step: int) -> None:
    if step == 0:
        await make_topics(bootstrap)
    await send(bootstrap, step)
    if step == 1:
        await send_compressed(bootstrap)
        await commit_and_delete(bootstrap)


if __name__ == "__main__":
    trio.run(run, sys.argv[1], int(sys.argv[2]))
