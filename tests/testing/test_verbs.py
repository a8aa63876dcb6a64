"""Each method of a cluster has the same effect on a simulated cluster and on a cluster of real processes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import trio

from kraft.client import DeliveryFailed, KafkaError
from kraft.deploy.launch.fault_client import ANSWER_SECONDS_MAX
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.shapes import ClusterError
from kraft.wire.error_codes import ErrorCode
from tests.testing.stage import Stage


def test_a_killed_leader_is_replaced_and_comes_back_in_sync(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(10)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
        cluster.kill(leader)
        assert not cluster.is_running(leader)
        await stage.wait_until(lambda: cluster.leader("orders") not in (leader, None))
        assert leader not in cluster.isr("orders", 0)
        cluster.start(leader)
        await stage.wait_until(lambda: cluster.isr("orders", 0) == [1, 2, 3])
        assert len(await stage.values()) == 10

    stage.play(story)


def test_a_cleanly_stopped_leader_hands_over_leadership_and_ends(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(1)
        cluster.stop(leader)
        await stage.wait_until(lambda: not cluster.is_running(leader))
        await stage.wait_until(lambda: cluster.leader("orders") not in (leader, None))
        cluster.start(leader)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_a_paused_broker_is_out_of_sync_until_resumed(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.write(1)
        follower = stage.follower()
        cluster.pause(follower)
        assert cluster.is_running(follower)
        assert cluster.is_paused(follower)
        async with stage.producer() as producer:
            await producer.send("orders", b"one more", partition=0)
        await stage.wait_until(lambda: follower not in cluster.isr("orders"))
        cluster.resume(follower)
        assert not cluster.is_paused(follower)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_network_partition_also_applies_to_a_broker_that_restarts_during_it(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.write(1)
        follower = stage.follower()
        others = set(cluster.broker_ids) - {follower}
        cluster.partition({follower}, others)
        async with stage.producer() as producer:
            await producer.send("orders", b"what it misses", partition=0)
            await stage.wait_until(lambda: cluster.isr("orders") == sorted(others))
            cluster.kill(follower)
            cluster.start(follower)
            for number in range(20):
                await producer.send("orders", b"%d" % number, partition=0)
                await trio.sleep(0.02)
        assert follower not in cluster.isr("orders")
        cluster.heal()
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_a_reconnected_follower_is_back_in_sync_while_another_follower_is_still_cut_off(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader, follower = await stage.write(1), stage.follower()
        (third,) = set(cluster.broker_ids) - {leader, follower}
        cluster.partition({follower}, {leader})
        cluster.partition({third}, {leader})
        async with stage.producer(acks="1") as producer:
            await producer.send("orders", b"what both miss", partition=0)
            await stage.wait_until(lambda: cluster.isr("orders") == [leader])
            cluster.rejoin({follower}, {leader})
            assert not cluster.is_cut(follower, leader)
            assert cluster.is_cut(third, leader)
            await stage.wait_until(lambda: cluster.isr("orders") == sorted([leader, follower]))
            await producer.send("orders", b"what one misses", partition=0)
        cluster.rejoin({third}, {leader})
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_a_broker_cut_off_from_controllers_is_fenced_and_mend_restores_everything(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        assert cluster.active_controller() == 101
        leader = await stage.write(1)
        follower = stage.follower()
        cluster.partition(101, leader)
        await stage.wait_until(lambda: cluster.leader("orders") not in (leader, None))
        cluster.kill(leader)
        cluster.pause(follower)
        cluster.mend()
        assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in cluster.node_ids)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


BadLink = Callable[[BreakableCluster, int, int], None]

BAD_LINKS: dict[str, BadLink] = {
    "cut one way": lambda cluster, source, target: cluster.cut_one_way(source, target),
    "late": lambda cluster, source, target: cluster.degrade(source, target, latency_ms=20_000, jitter_ms=10),
    "slow": lambda cluster, source, target: cluster.degrade(source, target, bytes_per_second=20),
    "limited": lambda cluster, source, target: cluster.degrade(source, target, bytes_max=20),
}


@pytest.mark.parametrize("spoil", BAD_LINKS.values(), ids=BAD_LINKS)
def test_degraded_link_also_applies_to_a_broker_that_restarts_during_it(stage: Stage, spoil: BadLink) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader, follower = await stage.write(1), stage.follower()
        others = sorted(set(cluster.broker_ids) - {follower})
        spoil(cluster, follower, leader)
        async with stage.producer() as producer:
            await producer.send("orders", b"what it misses", partition=0)
            await stage.wait_until(lambda: cluster.isr("orders") == others)
            cluster.kill(follower)
            cluster.start(follower)
            for number in range(20):
                await producer.send("orders", b"%d" % number, partition=0)
                await trio.sleep(0.02)
        assert follower not in cluster.isr("orders")
        cluster.join([(leader, follower)])
        cluster.restore(follower, leader)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_a_slightly_degraded_link_keeps_all_replicas_in_sync(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader, follower = await stage.write(1), stage.follower()
        cluster.degrade(leader, follower, latency_ms=20, jitter_ms=20, bytes_per_second=100_000)
        await stage.write(10)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
        cluster.heal()
        assert not cluster._qualities
        await stage.write(10)
        assert len(await stage.values()) == 21

    stage.play(story)


def test_fail_next_answers_requests_with_the_given_error_code(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.write(1)
        async with stage.producer() as producer:
            fault = cluster.fail_next("Produce", code="TOPIC_AUTHORIZATION_FAILED")
            with pytest.raises(DeliveryFailed) as failure:
                await producer.send("orders", b"refused", partition=0)
            assert failure.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await producer.send("orders", b"taken", partition=0)
        assert fault.applied == 1
        assert (await stage.values())[1:] == [b"taken"]

    stage.play(story)


def test_a_request_fault_applies_only_to_matching_requests(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        for topic in ("orders", "others"):
            await stage.write(1, topic)
        code = int(ErrorCode.INVALID_REQUIRED_ACKS)
        elsewhere = cluster.fail_next("Produce", code=code, node=stage.follower(), topic="orders", partition=0)
        by_partition = cluster.fail_next("Produce", code=code, topic="orders", partition=1)
        by_client = cluster.fail_next("Produce", code=code, topic="orders", partition=0, client="billing")
        async with stage.producer(client_id="shop") as shop, stage.producer(client_id="billing") as billing:
            await shop.send("orders", b"", partition=0)
            await shop.send("others", b"", partition=1)
            await billing.send("others", b"", partition=0)
            assert (elsewhere.applied, by_partition.applied, by_client.applied) == (0, 0, 0)
            for producer, partition in ((billing, 0), (shop, 1)):
                with pytest.raises(DeliveryFailed):
                    await producer.send("orders", b"", partition=partition)
        assert (elsewhere.applied, by_partition.applied, by_client.applied) == (0, 1, 1)

    stage.play(story)


def test_a_lost_produce_response_does_not_duplicate_a_record(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(1)
        async with stage.producer(request_timeout_ms=300) as producer:
            fault = stage.cluster.drop("Produce", after=True)
            await producer.send("orders", b"once", partition=0)
        assert fault.applied == 1
        assert (await stage.values())[1:] == [b"once"]

    stage.play(story)


def test_a_disconnect_fault_closes_connections_and_the_producer_delivers_its_record_once(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(1)
        async with stage.producer() as producer:
            fault = stage.cluster.disconnect("Produce", times=2)
            await producer.send("orders", b"once", partition=0)
        assert fault.applied == 2
        assert (await stage.values())[1:] == [b"once"]

    stage.play(story)


def test_a_request_fault_delays_a_request(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(1)
        async with stage.producer() as producer:
            fault = stage.cluster.delay("Produce", ms=150)
            before = trio.current_time()
            await producer.send("orders", b"late", partition=0)
            assert trio.current_time() - before >= 0.149
        assert fault.applied == 1

    stage.play(story)


def test_a_request_fault_without_a_count_lasts_until_ended_or_healed(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.write(1)
        async with stage.producer() as producer:
            with cluster.fail_next("Produce", code="INVALID_RECORD", times=None) as fault:
                for _ in range(3):
                    with pytest.raises(DeliveryFailed):
                        await producer.send("orders", b"refused", partition=0)
            await producer.send("orders", b"taken", partition=0)
            assert fault.applied == 3
            other = cluster.fail_next("Produce", code="INVALID_RECORD", times=None)
            cluster.heal()
            await producer.send("orders", b"taken", partition=0)
            assert other.applied == 0

    stage.play(story)


def test_a_request_fault_ends_with_the_process_of_its_node(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(1)
        fault = cluster.fail_next("Produce", code="INVALID_RECORD", times=2, node=leader)
        async with stage.producer() as producer:
            with pytest.raises(DeliveryFailed):
                await producer.send("orders", b"refused", partition=0)
            cluster.kill(leader)
            cluster.start(leader)
            await producer.send("orders", b"taken", partition=0)
        assert fault.applied == 1
        fault.end()

    stage.play(story)


def test_a_request_faults_count_is_kept_while_its_node_is_paused_and_killed(
    stage: Stage,
) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(1)
        fault = cluster.fail_next("Produce", code="INVALID_RECORD", times=None)
        async with stage.producer() as producer:
            with pytest.raises(DeliveryFailed):
                await producer.send("orders", b"refused", partition=0)
        cluster.pause(leader)
        assert fault.applied == 1
        cluster.kill(leader)
        assert fault.applied == 1
        fault.end()
        assert fault.applied == 1

    stage.play(story)


def test_a_request_fault_ended_while_its_node_is_paused_is_gone_after_resume(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(1)
        fault = cluster.fail_next("Produce", code="INVALID_RECORD", times=None)
        before = time.monotonic()
        cluster.pause(leader)
        cluster.heal()
        cluster.resume(leader)
        assert time.monotonic() - before < ANSWER_SECONDS_MAX
        async with stage.producer() as producer:
            await producer.send("orders", b"taken", partition=0)
        assert fault.applied == 0

    stage.play(story)


def test_inspecting_the_cluster_does_not_count_against_a_limited_request_fault(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(1)
        fault = stage.cluster.drop(times=None, client="nobody")
        everything = stage.cluster.fail_next("Metadata", code="LEADER_NOT_AVAILABLE", client="kraft-onlooker")
        await stage.wait_until(lambda: stage.cluster.isr("orders") == [1, 2, 3])
        assert (fault.applied, everything.applied) == (0, 0)

    stage.play(story)


Verb = Callable[[Stage], object]


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        (lambda stage: stage.cluster.kill(9), "there is no node 9: this cluster has 1, 2, 3, 101"),
        (lambda stage: stage.cluster.start(2), "node 2 runs already"),
        (lambda stage: (stage.cluster.kill(2), stage.cluster.kill(2)), "node 2 does not run"),
        (lambda stage: (stage.cluster.kill(3), stage.cluster.pause(3)), "node 3 does not run"),
        (lambda stage: stage.cluster.partition({1, 2}), "two groups"),
        (lambda stage: stage.cluster.partition({1, 2}, ()), "two groups"),
        (lambda stage: stage.cluster.partition({1, 2}, {2, 3}), "not on two"),
        (lambda stage: stage.cluster.partition({1}, {7}), "no node 7"),
        (lambda stage: stage.cluster.cut([1, 2]), "pairs of nodes, as .*: 1 is none"),
        (lambda stage: stage.cluster.join([(1, 2, 3)]), "pairs of nodes, as .* is none"),
        (lambda stage: stage.cluster.drop(node=8), "no node 8"),
        (lambda stage: (stage.cluster.pause(1), stage.cluster.drop(node=1)), "resume it first"),
    ],
)
def test_an_operation_that_the_cluster_does_not_support_is_an_error(stage: Stage, verb: Verb, says: str) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ClusterError, match=says):
            verb(stage)

    stage.play(story)


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        (lambda stage: stage.cluster.fail_next("Prodduce", code=6), "no API 'Prodduce'"),
        (lambda stage: stage.cluster.fail_next("Produce", code="OOPS"), "is no error code: give one of Kafka's names"),
        (lambda stage: stage.cluster.fail_next("Produce", code=31_000), "31000 is not a valid ErrorCode"),
        (lambda stage: stage.cluster.delay("Produce", ms=0), "a delay is"),
        (lambda stage: stage.cluster.drop("Produce", partition=1), "needs its topic"),
        (lambda stage: stage.cluster.drop("Produce", colour="red"), "no colour"),
    ],
)
def test_an_invalid_request_fault_is_refused(stage: Stage, verb: Verb, says: str) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ValueError, match=says):
            verb(stage)

    stage.play(story)


def test_an_unknown_partition_is_a_kafka_error(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        await stage.write(1)
        for place in (("nowhere", 0), ("orders", 7)):
            for ask in (stage.cluster.leader, stage.cluster.isr):
                with pytest.raises(KafkaError) as refusal:
                    ask(*place)
                assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    stage.play(story)
