"""Controllers, quorum and network together: registration, admin requests, failover, fast and slow fencing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from kraft.control import ActivateController, FenceBrokers
from kraft.control.brokers import fencing, heartbeats
from kraft.control.commands import ShutDownBroker
from kraft.control.decide import COMMANDS
from kraft.image import digest
from kraft.quorum.raft_driver import QuorumDriver
from kraft.seam import InvariantError, Seam, require
from kraft.seam.errors import sole_error
from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AlterPartitionRequest, PartitionToAlter
from tests.stages.admin_requests import altered, new_topic
from tests.stages.controllers import Cluster, FakeBroker
from tests.stages.tables import replace_row

Scenario = Callable[[Cluster, Seam], Awaitable[None]]


def play(scenario: Scenario, *, seed: int = 1, controllers: int = 3, brokers: int = 3, **extra: str) -> None:
    world = World(seed)

    async def main(world: World) -> None:
        cluster = Cluster(world, controllers, brokers, **extra)
        cluster.start()
        await cluster.ready()
        await scenario(cluster, world.node("client"))

    world.run(main)


async def create(cluster: Cluster, seam: Seam, name: str, partitions: int = 1, factor: int = 3, **configs: str) -> None:
    through = next(broker for broker in cluster.brokers.values() if cluster.world.is_running(broker.host))
    response = await through.forward(
        seam,
        ApiKey.CREATE_TOPICS,
        topics=[new_topic(name, partitions, factor, configs={k.replace("_", "."): v for k, v in configs.items()})],
    )
    assert response.topics[0].error_code == ErrorCode.NONE, response


def leaders(cluster: Cluster, name: str) -> list[int]:
    topic = cluster.image.topics.get(name)
    assert topic is not None
    return [state.leader for _, state in topic.partitions()]


def test_brokers_register_and_are_unfenced_and_controllers_register() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        assert cluster.unfenced() == {1, 2, 3}
        await cluster.wait(lambda: set(cluster.image.controllers) == {101, 102, 103})
        assert cluster.image.cluster_id == "controller-test-cluster"

    play(scenario)


def test_all_controllers_have_the_same_image() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 10)
        await cluster.world.sleep_ms(1_000)
        digests = {digest(member.publisher.image) for member in cluster.controllers.values() if member.publisher}
        assert len(digests) == 1

    play(scenario)


def test_answered_changes_survive_the_loss_of_the_active_controller() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 5, 3, retention_ms="777")
        first = cluster.active
        assert first is not None
        epoch = first.quorum.leader_and_epoch[1]
        cluster.kill_controller(first.config.node_id)
        took = await cluster.wait(lambda: cluster.active is not None)
        assert took <= 800
        assert cluster.active is not None
        assert cluster.active.quorum.leader_and_epoch[1] > epoch
        assert cluster.image.topic_configs("orders")["retention.ms"] == "777"
        await create(cluster, seam, "users")
        assert cluster.unfenced() == {1, 2, 3}

    play(scenario)


def test_killed_broker_is_fenced_at_once_and_its_partitions_get_new_leaders() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6)
        assert 1 in leaders(cluster, "orders")
        cluster.kill_broker(1)
        took = await cluster.wait(lambda: 1 not in cluster.unfenced())
        assert 50 <= took <= 250
        assert 1 not in leaders(cluster, "orders")
        assert -1 not in leaders(cluster, "orders")

    play(scenario)


def test_brokers_killed_together_are_fenced_together() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6)
        cluster.kill_broker(1, 2)
        await cluster.wait(lambda: cluster.unfenced() == {3})
        assert set(leaders(cluster, "orders")) == {3}
        topic = cluster.image.topics.get("orders")
        assert topic is not None
        assert max(state.leader_epoch for _, state in topic.partitions()) == 1

    play(scenario)


def test_broker_cut_off_by_a_network_partition_is_fenced_only_at_its_session_timeout() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        for controller in cluster.controllers:
            cluster.world.partition("b1", f"c{controller}")
        took = await cluster.wait(lambda: 1 not in cluster.unfenced())
        assert 8_000 <= took <= 9_600

    play(scenario)


def test_lost_connection_of_a_live_broker_does_not_fence_it() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        for _ in range(10):
            for controller in cluster.controllers:
                cluster.world.reset_links("b1", f"c{controller}")
            await cluster.world.sleep_ms(130)
            assert cluster.unfenced() == {1, 2, 3}

    play(scenario)


def test_restarted_broker_is_registered_and_unfenced_at_once() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6)
        first = cluster.brokers[1].epoch
        cluster.kill_broker(1)
        cluster.world.restart("b1")
        took = await cluster.wait(lambda: cluster.brokers[1].epoch > first and not cluster.brokers[1].is_fenced)
        assert took <= 1_000
        assert cluster.unfenced() == {1, 2, 3}
        await cluster.world.sleep_ms(3_000)
        assert cluster.unfenced() == {1, 2, 3}

    play(scenario)


def test_second_process_with_the_id_of_a_live_broker_is_rejected() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        twin = FakeBroker(1, cluster.brokers[1].controllers, life=50, host="twin")
        cluster.world.start("twin", twin.main)
        await cluster.world.sleep_ms(3_000)
        assert twin.epoch == -1
        assert set(twin.refusals) == {ErrorCode.DUPLICATE_BROKER_REGISTRATION}
        assert cluster.unfenced() == {1, 2, 3}
        cluster.kill_broker(1)
        took = await cluster.wait(lambda: not twin.is_fenced)
        assert took <= 1_000

    play(scenario)


def test_second_of_two_concurrent_registrations_with_one_id_is_rejected() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        for controller in cluster.controllers:  # so that one is decided while the other's record is not committed yet
            cluster.world.slow_disk(f"c{controller}", 30)
        both = [FakeBroker(9, cluster.brokers[1].controllers, life=50 * nth, host=f"twin-{nth}") for nth in (1, 2)]
        for twin in both:
            cluster.world.start(twin.host, twin.main)
        await cluster.wait(lambda: 9 in cluster.unfenced())
        await cluster.world.sleep_ms(1_000)
        kept_out, let_in = sorted(both, key=lambda twin: twin.epoch)
        assert (kept_out.epoch, set(kept_out.refusals)) == (-1, {ErrorCode.DUPLICATE_BROKER_REGISTRATION})
        assert (let_in.refusals, let_in.epoch) == ([], cluster.image.brokers[9].broker_epoch)

    play(scenario)


def test_second_process_with_the_id_of_a_frozen_broker_is_rejected_until_the_session_ends() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        cluster.world.pause("b1")
        twin = FakeBroker(1, cluster.brokers[1].controllers, life=50, host="twin")
        cluster.world.start("twin", twin.main)
        active = cluster.active
        assert active is not None
        old = active.publisher.image.brokers[1]
        # like the failure detector: a probe is always in flight before the one for the registration
        for _ in range(400):
            active.prober.probe(1, old.incarnation_id, active.prober.endpoint_of(old), lambda _: None)
            await cluster.world.sleep_ms(13)
        assert (twin.epoch, set(twin.refusals)) == (-1, {ErrorCode.DUPLICATE_BROKER_REGISTRATION})
        await cluster.wait(lambda: twin.epoch > old.broker_epoch)

    play(scenario)


def test_controller_and_broker_killed_together_are_both_replaced() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6)
        first = cluster.active
        assert first is not None
        cluster.kill_controller(first.config.node_id)
        cluster.kill_broker(1)
        took = await cluster.wait(lambda: cluster.active is not None and 1 not in cluster.unfenced())
        assert took <= 1_200
        assert -1 not in leaders(cluster, "orders")
        assert 1 not in leaders(cluster, "orders")

    play(scenario)


def test_controlled_shutdown_moves_leadership_before_the_broker_stops() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6)
        cluster.brokers[1].wants_shutdown = True
        await cluster.wait(lambda: cluster.brokers[1].should_shut_down)
        assert 1 not in leaders(cluster, "orders")
        assert cluster.unfenced() == {2, 3}

    play(scenario)


def test_unclean_election_waits_for_the_session_timeout_after_a_fast_fence() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "lossy", 1, 2, unclean_leader_election_enable="true")
        topic = cluster.image.topics.get("lossy")
        assert topic is not None
        first, second = topic.partition(0).replicas
        cluster.kill_broker(second)
        await cluster.wait(lambda: second not in cluster.unfenced())
        cluster.kill_broker(first)
        await cluster.wait(lambda: first not in cluster.unfenced())
        cluster.world.restart(f"b{second}")
        await cluster.wait(lambda: second in cluster.unfenced())
        assert leaders(cluster, "lossy") == [-1]
        took = await cluster.wait(lambda: leaders(cluster, "lossy") == [second])
        assert took >= 5_000

    play(scenario)


def test_unclean_election_waits_for_the_session_timeout_of_a_broker_that_restarted_at_once() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "lossy", 1, 2, unclean_leader_election_enable="true")
        topic = cluster.image.topics.get("lossy")
        assert topic is not None
        first, second = topic.partition(0).replicas
        (third,) = {1, 2, 3} - {first, second}
        cluster.kill_broker(second)
        await cluster.wait(lambda: second not in cluster.unfenced())
        cluster.world.restart(f"b{second}")
        await cluster.wait(lambda: second in cluster.unfenced())
        epoch = cluster.brokers[first].epoch
        cluster.brokers[first].recovers = True
        cluster.world.power_off(f"b{first}")  # no connection ends, so no broker is probed before it registers again
        cluster.world.restart(f"b{first}")
        await cluster.wait(lambda: cluster.brokers[first].epoch > epoch)
        cluster.kill_broker(third)  # its return triggers elections for all partitions without a leader
        await cluster.wait(lambda: third not in cluster.unfenced())
        cluster.world.restart(f"b{third}")
        await cluster.wait(lambda: third in cluster.unfenced())
        assert leaders(cluster, "lossy") == [-1]
        took = await cluster.wait(lambda: leaders(cluster, "lossy") == [second])
        assert took >= 5_000

    play(scenario)


def test_isolated_active_controller_answers_nothing_and_its_successor_decides() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        first = cluster.active
        assert first is not None
        number = first.config.node_id
        for other in cluster.controllers:
            if other != number:
                cluster.world.partition(f"c{number}", f"c{other}")
        await create(cluster, seam, "orders")
        assert cluster.active is not None
        assert cluster.active.config.node_id != number
        assert cluster.active.publisher.image.topics.get("orders") is not None
        for other in cluster.controllers:
            if other != number:
                cluster.world.heal(f"c{number}", f"c{other}")
        await cluster.wait(lambda: first.publisher.image.offset == cluster.image.offset)
        assert digest(first.publisher.image) == digest(cluster.image)

    play(scenario)


def test_configs_are_altered_through_a_broker() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders")
        response = await cluster.brokers[1].forward(
            seam, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[altered(2, "orders", ("retention.ms", 0, "5"))]
        )
        assert response.responses[0].error_code == ErrorCode.NONE
        assert cluster.image.topic_configs("orders")["retention.ms"] == "5"

    play(scenario)


def test_controller_that_was_down_catches_up_from_a_snapshot() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        for number in range(30):
            await create(cluster, seam, f"topic-{number}", 20)
        await cluster.world.sleep_ms(1_000)
        standby = next(one for one, member in cluster.controllers.items() if member.controller is not cluster.active)
        cluster.kill_controller(standby)
        await create(cluster, seam, "while-it-was-down")
        cluster.world.restart(f"c{standby}")
        member = cluster.controllers[standby]
        await cluster.wait(lambda: member.publisher and member.publisher.image.offset == cluster.image.offset)
        assert member.publisher is not None
        assert digest(member.publisher.image) == digest(cluster.image)

    play(scenario, metadata_log_max_record_bytes_between_snapshots="4096")


def test_simulated_controllers_run_identically_for_the_same_seed() -> None:
    def once() -> str:
        world = World(77)

        async def main(world: World) -> None:
            cluster = Cluster(world)
            cluster.start()
            await cluster.ready()
            seam = world.node("client")
            await create(cluster, seam, "orders", 6)
            cluster.kill_broker(2)
            await cluster.wait(lambda: cluster.unfenced() == {1, 3})

        world.run(main)
        return str(world.trace_hash)

    assert once() == once()


def test_leadership_returns_to_preferred_replicas_after_the_check_interval() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6, 3)
        before = leaders(cluster, "orders")
        cluster.kill_broker(1)
        await cluster.wait(lambda: 1 not in cluster.unfenced())
        cluster.world.restart("b1")
        await cluster.wait(lambda: 1 in cluster.unfenced())
        assert 1 not in leaders(cluster, "orders")
        await rejoin(cluster, 1)
        await cluster.wait(lambda: leaders(cluster, "orders") == before, 7_000)

    play(scenario, leader_imbalance_check_interval_seconds="5")


async def rejoin(cluster: Cluster, broker_id: int) -> None:
    """Let the leaders propose this broker for their ISRs again, as they do once it has caught up."""
    topic = cluster.image.topics.get("orders")
    assert topic is not None
    for index, state in topic.partitions():
        if state.leader not in cluster.brokers or broker_id in state.isr:
            continue
        leader = cluster.brokers[state.leader]
        proposed = (*state.isr, broker_id)
        partition = PartitionToAlter(
            topic_id=topic.topic_id,
            partition_id=index,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=tuple((one, cluster.brokers[one].epoch) for one in proposed),
        )
        message = AlterPartitionRequest(broker_id=state.leader, broker_epoch=leader.epoch, partitions=(partition,))
        assert cluster.active is not None
        answer = await leader.ask(cluster.active.config.node_id, message)
        assert answer.partitions[0].error_code == ErrorCode.NONE


def test_leadership_does_not_move_if_auto_rebalance_is_disabled() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 6, 3)
        cluster.kill_broker(1)
        await cluster.wait(lambda: 1 not in cluster.unfenced())
        cluster.world.restart("b1")
        await cluster.wait(lambda: 1 in cluster.unfenced())
        await rejoin(cluster, 1)
        moved = leaders(cluster, "orders")
        await cluster.world.sleep_ms(12_000)
        assert leaders(cluster, "orders") == moved

    play(scenario, leader_imbalance_check_interval_seconds="5", auto_leader_rebalance_enable="false")


def test_leaderless_partitions_get_a_leader_once_unclean_elections_are_enabled() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 1, 2)
        topic = cluster.image.topics.get("orders")
        assert topic is not None
        first, second = topic.partition(0).replicas
        cluster.kill_broker(second)
        await cluster.wait(lambda: second not in cluster.unfenced())
        cluster.kill_broker(first)
        await cluster.wait(lambda: first not in cluster.unfenced())
        cluster.world.restart(f"b{second}")
        await cluster.wait(lambda: second in cluster.unfenced())
        await cluster.world.sleep_ms(20_000)
        assert leaders(cluster, "orders") == [-1]
        through = cluster.brokers[second]
        allow = altered(2, "orders", ("unclean.leader.election.enable", 0, "true"))
        await through.forward(seam, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[allow])
        await cluster.wait(lambda: leaders(cluster, "orders") == [second], 16_000)

    play(scenario, unclean_leader_election_interval_ms="15000")


def test_sole_replica_of_a_partition_leads_again_when_its_broker_returns() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 1, 1)
        (only,) = leaders(cluster, "orders")
        cluster.kill_broker(only)
        await cluster.wait(lambda: leaders(cluster, "orders") == [-1])
        cluster.world.restart(f"b{only}")
        await cluster.wait(lambda: leaders(cluster, "orders") == [only], 1_500)
        topic = cluster.image.topics.get("orders")
        assert topic is not None
        assert topic.partition(0).leader_recovery_state == 1

    play(scenario)


def test_single_controller_restarts_with_its_committed_state() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 3)
        before = digest(cluster.image)
        cluster.world.power_off("c101")
        cluster.controllers[101].controller = None
        cluster.world.restart("c101")
        await cluster.wait(lambda: cluster.active is not None)
        assert cluster.image.topics.get("orders") is not None
        assert before
        await cluster.wait(lambda: cluster.unfenced() == {1, 2, 3})

    play(scenario, controllers=1)


def test_timers_wait_while_a_command_holds_the_queue_and_run_afterwards() -> None:
    async def scenario(cluster: Cluster, client: Seam) -> None:
        active = cluster.active
        assert active is not None
        honest = active.queue.run_next
        active.queue.run_next = lambda: False  # type: ignore[method-assign]

        async def create_large() -> None:
            topics = [new_topic("large", 3_000, 3)]
            await cluster.brokers[1].forward(client, ApiKey.CREATE_TOPICS, topics=topics)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_large)
            await cluster.wait(lambda: active.queue.is_held)
            cluster.world.pause("b3")
            await cluster.world.sleep_ms(15_000)
            assert cluster.unfenced() == {1, 2, 3}, "nothing is decided meanwhile"
            active.queue.run_next = honest  # type: ignore[method-assign]
            active.work_available()
            await cluster.wait(lambda: cluster.unfenced() == {1, 2}, limit_ms=200)
        large = cluster.image.topics.get("large")
        assert large is not None
        assert large.partition_count == 3_000

    play(scenario)


def test_timers_do_not_spin_while_a_resignation_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log accepts nothing meanwhile, so a broker whose session has expired cannot be fenced."""

    async def scenario(cluster: Cluster, _client: Seam) -> None:
        active = cluster.active
        assert active is not None
        honest, looks = active.run_due_timers, 0

        def counted() -> None:
            nonlocal looks
            looks += 1
            require(looks < 100, "virtual time stands still while the timers look around")
            honest()

        cluster.world.pause("b3")
        await cluster.world.sleep_ms(8_000)
        active.run_due_timers = counted  # type: ignore[method-assign]
        with monkeypatch.context() as patch:
            patch.setattr(QuorumDriver, "is_blocked", property(lambda _: True))
            patch.setattr(QuorumDriver, "append", lambda *_: None)
            await cluster.world.sleep_ms(2_000)
        assert cluster.unfenced() == {1, 2, 3}
        active.timers_changed()
        await cluster.wait(lambda: cluster.unfenced() == {1, 2}, limit_ms=200)

    play(scenario)


@pytest.mark.slow
def test_sessions_expire_while_very_large_topics_are_created_without_a_pause() -> None:
    """Each step of the command that holds the queue takes 50 ms, and three clients always have a request waiting. The
    queue is therefore free only for a moment at a time."""

    async def scenario(cluster: Cluster, client: Seam) -> None:
        active = cluster.active
        assert active is not None
        honest, tokens, made = active.queue.run_next, [0], [0]

        def one_step() -> bool:
            if active.queue.is_held:
                if tokens[0] == 0:
                    return False
                tokens[0] = 0
            return honest()

        active.queue.run_next = one_step  # type: ignore[method-assign]

        async def steps() -> None:
            while True:
                await cluster.world.sleep_ms(50)
                tokens[0] = 1
                active.work_available()

        async def ask_on_and_on(name: str) -> None:
            number = 0
            while True:
                number += 1
                topics = [new_topic(f"{name}-{number}", 1_100, 3)]
                await cluster.brokers[1].forward(client, ApiKey.CREATE_TOPICS, topics=topics)
                made[0] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(steps)
            for name in ("a", "b", "c"):
                nursery.start_soon(ask_on_and_on, name)
            await cluster.world.sleep_ms(200)
            cluster.world.pause("b3")
            await cluster.wait(lambda: 3 in active.queue.brokers_being_fenced(), 2_300)
            before = made[0]
            await cluster.wait(lambda: 3 not in cluster.unfenced(), 8_000)
            assert made[0] > before > 5
            nursery.cancel_scope.cancel()

    play(scenario, broker_session_timeout_ms="2000", broker_heartbeat_interval_ms="500")


class FailsInTheMiddle:
    """Stands in for the decision of a plan: its later slices raise until `is_healed`."""

    def __init__(self, honest: Callable[..., Any], is_later: Callable[[Any], bool]) -> None:
        self.honest = honest
        self.is_later = is_later
        self.is_healed = False
        self.failures = 0

    def __call__(self, image: Any, context: Any, command: Any) -> Any:
        if self.is_later(command) and not self.is_healed:
            self.failures += 1
            raise KeyError("planted")
        return self.honest(image, context, command)


def test_fence_whose_later_slice_raises_is_retried_by_the_same_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fails = FailsInTheMiddle(COMMANDS[FenceBrokers], lambda command: command.cursor is not None)
    replace_row(monkeypatch, COMMANDS, FenceBrokers, fails)
    monkeypatch.setattr(fencing, "FENCE_CHANGES_PER_SLICE_MAX", 2)

    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 30)
        active = cluster.active
        cluster.world.pause("b3")
        await cluster.wait(lambda: fails.failures > 0)
        await cluster.world.sleep_ms(5_000)
        assert 3 <= fails.failures <= 6
        assert cluster.active is active
        assert cluster.unfenced() == {1, 2, 3}
        fails.is_healed = True
        await cluster.wait(lambda: cluster.unfenced() == {1, 2}, 1_500)

    play(scenario)


def test_controlled_shutdown_whose_later_slice_raises_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = FailsInTheMiddle(COMMANDS[ShutDownBroker], lambda command: True)
    replace_row(monkeypatch, COMMANDS, ShutDownBroker, fails)
    monkeypatch.setattr(heartbeats, "leave_partitions", partial(heartbeats.leave_partitions, limit=2))

    async def scenario(cluster: Cluster, seam: Seam) -> None:
        await create(cluster, seam, "orders", 9)
        active = cluster.active
        leaving = cluster.brokers[3]
        leaving.wants_shutdown = True
        await cluster.wait(lambda: fails.failures > 1)
        assert not leaving.should_shut_down
        fails.is_healed = True
        await cluster.wait(lambda: leaving.should_shut_down, 2_000)
        assert cluster.active is active

    play(scenario)


def test_controller_that_cannot_become_active_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> Any:
        raise KeyError("planted")

    async def main(world: World) -> None:
        cluster = Cluster(world, controllers=1, brokers=0)
        replace_row(monkeypatch, COMMANDS, ActivateController, raising)
        ended: list[BaseException] = []
        world.start("c101", cluster.controllers[101].main, on_failure=lambda _, error: ended.append(error))
        await world.sleep_ms(5_000)
        (error,) = ended
        assert isinstance(sole_error(error), InvariantError)

    World(1).run(main)
