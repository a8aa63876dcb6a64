"""Kafka's MirrorMaker 2 between two of our clusters, while it and brokers of both clusters are killed.

Source: KIP-382; KIP-545; KIP-618.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tests.interop.connect.committed import CommittedLog, read_committed
from tests.interop.connect.jvm import KafkaProgram, wait_for
from tests.interop.connect.mirrors import OFFSET_LAG_MAX, Flow, mirror_maker, read_checkpoints
from tests.interop.connect.topics import config_of, end_offset, partitions_of
from tests.interop.programs import install_tools
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

ORDERS, LATER, STOCK = "orders", "orders-later", "stock"
STOPPED, CURRENT, BEHIND = "stopped-after-the-first-wave", "at-the-end", "behind-the-end"
"""Groups. MirrorMaker translates an offset precisely if the group had read everything when it committed. Else it uses
the nearest synced offset before it, but none before the last translated offset of the group. Source: Kafka's
OffsetSyncStore."""
DISTANCES = (20, 50)
"""How far the third group is behind the end, in each partition."""
PARTITIONS = 2
WAVE = 500
"""Records that one wave writes to each partition."""
STAGE_SECONDS_MAX = 180
READ_SECONDS_MAX = 60
POLL_S = 0.2
FIRST_RETENTION, NEXT_RETENTION = "777000000", "888000000"


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    install_tools()
    with running(combined=3) as source, running(combined=3) as target:
        yield source, target


class Scene:
    """A replication flow at work, and what was written to its source."""

    def __init__(self, clusters: tuple[LocalCluster, LocalCluster], flow: Flow, program: KafkaProgram) -> None:
        self.source, self.target = clusters
        self.flow = flow
        self.program = program
        self.written: dict[str, list[list[str]]] = {}

    def create(self, topic: str, config: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 3, config=config)])[topic].result(timeout=20)
        self.source.wait_in_sync(topic, 3)
        self.written[topic] = [[] for _ in range(PARTITIONS)]

    def write(self, topic: str) -> None:
        """Write a wave to each partition of a topic of the source."""
        settings: dict[str, str | int | bool] = {"enable.idempotence": True, "reconnect.backoff.max.ms": 300}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.source.bootstrap, **settings})
        failures: list[object] = []
        for partition, values in enumerate(self.written[topic]):
            for number in range(len(values), len(values) + WAVE):
                values.append(f"{partition}-{number}")
                producer.produce(topic, values[-1], None, partition, lambda error, _message: failures.append(error))
        assert producer.flush(READ_SECONDS_MAX) == 0
        assert set(failures) == {None}

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        wait_for(what, is_so, STAGE_SECONDS_MAX, [self.program])

    def wait_copied(self, topic: str) -> CommittedLog:
        """Wait until all values of a topic are committed on the target. Return what is there."""
        remote = self.flow.remote(topic)
        wanted = [len(values) for values in self.written[topic]]
        self.wait_for(f"{remote} exists", lambda: partitions_of(self.target, remote) == len(wanted))
        with CommittedLog(self.target.bootstrap, remote, len(wanted)) as copy:
            self.wait_for(
                f"{remote} has {wanted} records",
                lambda: all(count >= goal for count, goal in zip(copy.counts(), wanted, strict=True)),
            )
        return read_committed(self.target.bootstrap, remote, len(wanted), READ_SECONDS_MAX)

    def wait_config(self, topic: str, key: str, value: str) -> None:
        remote = self.flow.remote(topic)
        self.wait_for(f"{remote} has {key}={value}", lambda: config_of(self.target, remote)[key] == value)


def alter_config(cluster: LocalCluster, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(timeout=20)


def member_of(bootstrap: str, group: str, topic: str) -> confluent_kafka.Consumer:
    """Return a member of a group that fails if the group has no committed offset."""
    settings: dict[str, str | int | bool] = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "reconnect.backoff.max.ms": 300,
    }
    member = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
    member.subscribe([topic])
    return member


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """Return the committed offset of a group in each partition; negative if there is none."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = consumer.committed(places, timeout=20)
    consumer.close()
    return [place.offset for place in found]


def read_and_commit(scene: Scene, group: str, topic: str, counts: list[int]) -> None:
    """Let a group on the source read at least so many records of each partition, and commit exactly these counts."""
    start = [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    member = member_of(scene.source.bootstrap, group, topic)
    read = [0] * PARTITIONS
    member.subscribe([topic], on_assign=lambda consumer, _places: consumer.assign(start))
    deadline = time.monotonic() + READ_SECONDS_MAX
    while any(have < goal for have, goal in zip(read, counts, strict=True)):
        assert time.monotonic() < deadline, f"{group} has read {read} records of {counts}"
        message = member.poll(POLL_S)
        if message is not None and message.error() is None:
            read[message.partition()] += 1
    places = [confluent_kafka.TopicPartition(topic, partition, count) for partition, count in enumerate(counts)]
    member.commit(offsets=places, asynchronous=False)
    member.close()


def wait_translated(scene: Scene, group: str, topic: str, copy: CommittedLog, earliest: list[int]) -> None:
    """Wait until a group has, on the target, committed offsets at or behind these records of each partition."""
    remote = scene.flow.remote(topic)
    goals = [copy.records[partition][number].offset for partition, number in enumerate(earliest)]

    def is_translated() -> bool:
        found = committed(scene.target.bootstrap, group, remote)
        return all(offset >= goal for offset, goal in zip(found, goals, strict=True))

    scene.wait_for(f"{group} has offsets {goals} or more in {remote}", is_translated)


def continue_reading(scene: Scene, group: str, topic: str) -> list[list[str]]:
    """Read a topic on the target in a group, from its committed offsets to the last written values. Return what it read
    of each partition."""
    wanted = [values[-1] for values in scene.written[topic]]
    member = member_of(scene.target.bootstrap, group, scene.flow.remote(topic))
    read: list[list[str]] = [[] for _ in wanted]
    deadline = time.monotonic() + READ_SECONDS_MAX
    while not all(last in values for last, values in zip(wanted, read, strict=True)):
        assert time.monotonic() < deadline, f"{group} has read {[len(values) for values in read]} records"
        message = member.poll(POLL_S)
        if message is not None:
            assert message.error() is None, message.error()
            read[message.partition()].append(str(message.value(), "ascii"))
    member.close()
    return read


def precise(counts: list[int]) -> list[int]:
    """Return the earliest records that groups may read again which had read everything when they committed."""
    return [count - OFFSET_LAG_MAX for count in counts]


def check_continuation(scene: Scene, group: str, earliest: list[int], committed_counts: list[int]) -> None:
    """Continue in a group on the target. It reads no record before the `earliest`, skips none that it had not committed
    on the source, and gets the records in order, each at least once."""
    for partition, values in enumerate(continue_reading(scene, group, STOCK)):
        first = int(values[0].split("-")[1])
        assert earliest[partition] <= first <= committed_counts[partition]
        assert list(dict.fromkeys(values)) == scene.written[STOCK][partition][first:]


def check_checkpoints(scene: Scene, committed_counts: dict[str, list[int]]) -> None:
    """Each group has a checkpoint in each partition for the offset that it committed last on the source."""
    last = {(one.group, one.partition): one for one in read_checkpoints(scene.flow)}
    found = {
        group: [last[group, partition].source_offset for partition in range(PARTITIONS)] for group in committed_counts
    }
    assert found == committed_counts
    assert {one.topic for one in last.values()} == {scene.flow.remote(STOCK)}


def flow_of(clusters: tuple[LocalCluster, LocalCluster], source: str, target: str) -> Flow:
    return Flow(source, target, clusters[0].bootstrap, clusters[1].bootstrap)


def test_mirror_maker_copies_each_record_once_when_it_and_brokers_of_both_clusters_are_killed(
    clusters: tuple[LocalCluster, LocalCluster], tmp_path: Path
) -> None:
    flow = flow_of(clusters, "berlin", "paris")
    with mirror_maker(flow, f"{ORDERS}.*", tmp_path / "mirror", is_exactly_once=True) as program:
        scene = Scene(clusters, flow, program)
        scene.create(ORDERS, {"retention.ms": FIRST_RETENTION})
        scene.write(ORDERS)
        scene.wait_copied(ORDERS)

        scene.write(ORDERS)
        program.kill()
        scene.write(ORDERS)
        program.start()
        scene.wait_copied(ORDERS)

        with scene.source.killed(scene.source.leader(ORDERS)):
            scene.write(ORDERS)
            scene.wait_copied(ORDERS)
        scene.source.wait_in_sync(ORDERS, 3)

        scene.write(ORDERS)
        with scene.target.killed(scene.target.leader(flow.remote(ORDERS))):
            scene.write(ORDERS)
            scene.wait_copied(ORDERS)
        scene.target.wait_in_sync(flow.remote(ORDERS), 3)

        scene.create(LATER, {})
        scene.write(LATER)
        for topic in (ORDERS, LATER):
            assert scene.wait_copied(topic).values == scene.written[topic]


def test_groups_continue_on_the_other_cluster_from_offsets_that_mirror_maker_translated(
    clusters: tuple[LocalCluster, LocalCluster], tmp_path: Path
) -> None:
    flow = flow_of(clusters, "east", "west")
    with mirror_maker(flow, STOCK, tmp_path / "mirror", is_exactly_once=False) as program:
        scene = Scene(clusters, flow, program)
        scene.create(STOCK, {"retention.ms": FIRST_RETENTION})
        scene.write(STOCK)
        copy = scene.wait_copied(STOCK)
        first_ends = [WAVE] * PARTITIONS
        for group in (STOPPED, CURRENT, BEHIND):
            read_and_commit(scene, group, STOCK, first_ends)
            wait_translated(scene, group, STOCK, copy, precise(first_ends))
        scene.wait_config(STOCK, "retention.ms", FIRST_RETENTION)
        alter_config(scene.source, STOCK, "retention.ms", NEXT_RETENTION)

        next_ends = [2 * WAVE] * PARTITIONS
        behind = [end - distance for end, distance in zip(next_ends, DISTANCES, strict=True)]
        with scene.source.killed(scene.source.leader(STOCK)):
            scene.write(STOCK)
            copy = scene.wait_copied(STOCK)
            read_and_commit(scene, BEHIND, STOCK, behind)
            read_and_commit(scene, CURRENT, STOCK, next_ends)
            wait_translated(scene, CURRENT, STOCK, copy, precise(next_ends))
        with scene.target.killed(scene.target.leader(flow.remote(STOCK))):
            scene.write(STOCK)
            scene.wait_copied(STOCK)
            check_continuation(scene, STOPPED, precise(first_ends), first_ends)
            check_continuation(scene, CURRENT, precise(next_ends), next_ends)
            check_continuation(scene, BEHIND, precise(first_ends), behind)

        check_checkpoints(scene, {STOPPED: first_ends, CURRENT: next_ends})
        scene.wait_config(STOCK, "retention.ms", NEXT_RETENTION)
        admin = AdminClient({"bootstrap.servers": scene.source.bootstrap})
        admin.create_partitions([NewPartitions(STOCK, PARTITIONS + 1)])[STOCK].result(timeout=20)
        remote, heartbeats = flow.remote(STOCK), flow.remote("heartbeats")
        scene.wait_for("the new partition is copied", lambda: partitions_of(scene.target, remote) == PARTITIONS + 1)
        scene.wait_for("heartbeats of the source arrive", lambda: end_offset(scene.target, heartbeats) > 0)
        for internal in flow.internal_topics:
            scene.target.wait_in_sync(internal, 3)
        scene.source.wait_in_sync(flow.offset_syncs, 3)
