"""Reports of log ends by brokers, for partitions that have no complete replica (neither an ISR nor an ELR)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kraft.broker.node import log_ends
from kraft.image.events import Partition, PartitionChange, Topic
from kraft.image.image import EMPTY_IMAGE
from kraft.image.partitions import LEAF_PARTITIONS_MAX
from kraft.image.replay import replay_with_delta
from kraft.sim.cluster.cluster import SimCluster
from kraft.storage.epochs import EpochCache
from kraft.wire.rpc import decode_rpc, encode_rpc
from kraft.wire.rpc.controller_messages import LOG_ENDS_MAX, LOG_EPOCHS_MAX, HeartbeatRequest, LogEndRow, LogEpochs
from tests.stages.checked_cluster import play, produce, state_of, wait_whole
from tests.stages.decided_cluster import topic_id
from tests.stages.images import image_of, three_brokers


def heartbeat_of(cluster: SimCluster, broker: int) -> HeartbeatRequest:
    node = cluster.watch.nodes[broker].node.broker
    assert node is not None
    return node.broker.lifecycle.heartbeat()


def rows_of(cluster: SimCluster, broker: int) -> tuple[LogEndRow, ...]:
    return heartbeat_of(cluster, broker).log_ends


def epochs_of(cluster: SimCluster, broker: int) -> tuple[LogEpochs, ...]:
    return heartbeat_of(cluster, broker).log_epochs


def test_log_ends_are_reported_only_while_isr_and_elr_are_empty() -> None:
    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        before = state_of(cluster)
        assert not rows_of(cluster, before.leader)
        others = [broker for broker in before.replicas if broker != before.leader]
        for broker in before.replicas:
            cluster.crash(broker, lose_power=False, is_noticed=False)
        await cluster.world.sleep_ms(500)
        for broker in others:
            cluster.start(broker)
        assert await cluster.wait_until(lambda: all(map(cluster.image.is_alive, others)), 10_000)
        assert not any(rows_of(cluster, broker) for broker in others if state_of(cluster).elr)
        cluster.crash(others[0], lose_power=False, is_noticed=False)
        cluster.start(before.leader)
        assert await cluster.wait_until(lambda: not state_of(cluster).isr and not state_of(cluster).elr, 10_000)
        await cluster.world.sleep_ms(100)
        now = state_of(cluster)
        topic = cluster.image.topics.get("orders")
        assert topic is not None
        expected = (topic.topic_id, 0, now.partition_epoch, before.leader_epoch, 20)
        assert now.leader == -1
        assert rows_of(cluster, others[1]) == (expected,)
        assert epochs_of(cluster, others[1]) == (((before.leader_epoch, 0),),)
        cluster.start(others[0])
        await wait_whole(cluster)
        assert not any(rows_of(cluster, broker) for broker in before.replicas)

    assert not play(story)


def test_log_ends_that_do_not_fit_into_a_heartbeat_are_reported_in_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "LOG_ENDS_MAX", 2)
    partitions = {
        index: SimpleNamespace(state=SimpleNamespace(partition_epoch=1), is_truncating=False) for index in range(5)
    }
    for index, partition in partitions.items():
        partition.readable = None if index == 1 else SimpleNamespace(epochs=EpochCache(), log_end_offset=index)
        partition.waits_for_log = False
    find: Any = lambda _topic, index: partitions[index]  # noqa: E731
    ends = log_ends.LogEnds(1, lambda: EMPTY_IMAGE, find, lambda: None)
    ends._wanted = {(topic_id(1), index): 1 for index in partitions}
    told = [[row[1] for row in ends.ends_to_report()[0]] for _ in range(3)]
    assert told == [[0, 2], [3, 4], [0, 2]], "the log of 1 cannot be read"


@pytest.mark.parametrize("moves_on", [False, True])
async def test_searching_the_first_image_for_log_ends_runs_in_steps_and_uses_the_newest_state(moves_on: bool) -> None:
    count = 3 * log_ends.LEAVES_PER_STEP * LEAF_PARTITIONS_MAX
    rows = [Partition(topic_id(1), number, (1, 2), (), leader=-1, last_known_elr=(1,)) for number in range(count)]
    old = image_of(*three_brokers(), Topic("orders", topic_id(1)), *rows)
    broker = SimpleNamespace(image=old)
    ends = log_ends.LogEnds(1, lambda: broker.image, lambda _topic, _index: None, lambda: None)
    led = (0, count - 1)
    changes = [PartitionChange(topic_id(1), number, isr=(1,), leader=1, last_known_elr=()) for number in led]
    new, delta = replay_with_delta(old, changes, old.offset + 2, 1)
    ends.published(new, delta)
    assert not ends._wanted, "nothing counts before the logs are taken over"
    steps = 0

    async def other() -> None:
        nonlocal steps
        while True:
            steps += 1
            if moves_on and steps == 2:
                broker.image = new
                ends.published(new, delta)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await ends.load()
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert steps >= 3
    expected = set(range(count)) - (set(led) if moves_on else set())
    assert {index for _, index in ends._wanted} == expected
    assert ends.is_more_than_fits


def test_a_heartbeat_with_the_maximum_number_of_log_ends_can_be_sent() -> None:
    big = 1 << 62
    rows = tuple((topic_id(number), 1 << 30, 1 << 30, 1 << 30, big) for number in range(LOG_ENDS_MAX))
    epochs = (((1 << 30, big),) * LOG_EPOCHS_MAX,) * LOG_ENDS_MAX
    told = {"log_ends": rows, "log_epochs": epochs}
    request = HeartbeatRequest(broker_id=1, broker_epoch=big, metadata_offset=big, **told)
    assert decode_rpc(HeartbeatRequest, 2, encode_rpc(request)) == request


def test_a_heartbeat_to_an_older_controller_omits_the_fields_that_it_does_not_support() -> None:
    row = (topic_id(1), 0, 1, 2, 3)
    request = HeartbeatRequest(broker_id=1, broker_epoch=2, metadata_offset=3, log_ends=(row,), log_epochs=(((2, 0),),))
    assert decode_rpc(HeartbeatRequest, 0, encode_rpc(request, 0)).log_ends == ()
    older = decode_rpc(HeartbeatRequest, 1, encode_rpc(request, 1))
    assert (older.log_ends, older.log_epochs) == ((row,), ())
