"""The controller's decisions about the registration, heartbeats and unregistration of brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraft.control import BrokerHeartbeat, BrokerSession, RegisterBrokerCommand
from kraft.control.decision import FollowUp
from kraft.control.features import SUPPORTED_FEATURES
from kraft.image import Endpoint, FeatureRange
from kraft.image.events import BrokerRegistrationChange, RegisterBroker
from kraft.image.registrations import LOST_DIRECTORY
from kraft.sim.cluster.sizes import SLICES, small_sizes
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.decided_cluster import CLUSTER_ID, Cluster, directory_id, incarnation_id

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9999, "PLAINTEXT"),)


def registration(broker_id: int, life: int = 1, **fields: Any) -> RegisterBrokerCommand:
    given: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "broker_id": broker_id,
        "incarnation_id": incarnation_id(broker_id, life),
        "endpoints": ENDPOINTS,
        "log_dirs": (directory_id(broker_id),),
        "features": SUPPORTED_FEATURES,
        **fields,
    }
    return RegisterBrokerCommand(**given)


def heartbeat(cluster: Cluster, broker_id: int, **fields: Any) -> BrokerHeartbeat:
    given = {"broker_epoch": cluster.epoch(broker_id), "metadata_offset": cluster.image.offset, **fields}
    return BrokerHeartbeat(broker_id=broker_id, **given)


def test_new_broker_starts_fenced_with_the_offset_of_its_registration_record_as_broker_epoch() -> None:
    cluster = Cluster()
    offset = cluster.image.offset
    reply = cluster.decide_all(registration(1))
    assert (reply.error_code, reply.broker_epoch) == (ErrorCode.NONE, offset)
    assert cluster.image.brokers[1].fenced


def test_broker_epoch_is_the_offset_of_the_registration_record_even_after_partition_changes() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (1, 2, 3), (2, 1, 3))
    cluster.sessions.clear()
    decision = cluster.decide(registration(1, life=2))
    assert isinstance(decision.events[-1], RegisterBroker)
    assert decision.reply.broker_epoch == cluster.image.offset - 1
    assert len(decision.events) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (UUID(int=1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory_id(1), directory_id(1))}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory_id(2),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": (FeatureRange("metadata.version", 1, 2),)}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_broker_registration_is_rejected(fields: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster()
    cluster.add_broker(2)
    decision = cluster.decide(registration(1, **fields))
    assert (decision.reply.error_code, decision.events) == (code, ())
    assert decision.reply.error_message


@pytest.mark.parametrize("broker_id", [-1, -(2**31), 2**31])
def test_registration_with_an_unencodable_node_id_is_rejected(broker_id: int) -> None:
    cluster = Cluster()
    decision = cluster.decide(replace(registration(1), broker_id=broker_id))
    assert (decision.reply.error_code, decision.events) == (ErrorCode.INVALID_REGISTRATION, ())


def test_new_incarnation_is_rejected_while_the_old_session_is_live() -> None:
    cluster = Cluster()
    cluster.add_broker(1)
    assert cluster.decide(registration(1, life=2)).reply.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 8_999
    assert cluster.decide(registration(1, life=2)).reply.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.decide(registration(1, life=2)).reply.error_code is ErrorCode.NONE


def test_new_incarnation_is_rejected_while_the_fenced_old_incarnation_still_sends_heartbeats() -> None:
    cluster = Cluster()
    cluster.add_broker(1, fenced=True)
    assert cluster.decide(registration(1, life=2)).reply.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_new_incarnation_is_registered_at_once_if_the_old_one_is_proven_dead() -> None:
    cluster = Cluster()
    epoch = cluster.add_broker(1)
    assert cluster.decide(registration(1, life=2, dead_broker_epoch=epoch)).reply.error_code is ErrorCode.NONE


def test_proof_that_an_older_incarnation_died_does_not_let_a_new_one_replace_the_live_one() -> None:
    cluster = Cluster()
    epoch = cluster.add_broker(1)
    command = registration(1, life=2, dead_broker_epoch=epoch - 1)
    assert cluster.decide(command).reply.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_repeated_registration_of_an_incarnation_keeps_its_epoch_and_state() -> None:
    cluster = Cluster()
    epoch = cluster.add_broker(1)
    moved = registration(1, endpoints=(Endpoint("PLAINTEXT", "elsewhere", 1, "PLAINTEXT"),))
    assert cluster.decide(moved).reply.broker_epoch == epoch
    assert not cluster.image.brokers[1].fenced
    assert cluster.image.brokers[1].endpoints[0].host == "elsewhere"
    assert cluster.decide(moved).events == ()


def test_new_incarnation_leaves_every_isr_before_it_is_registered() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (1, 2, 3))
    cluster.decide_all(registration(1, life=2, dead_broker_epoch=cluster.epoch(1)))
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr) == (2, (2, 3))


def test_broker_leaves_the_elr_after_an_unclean_stop() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.add_topic("orders", (1, 2))
    cluster.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[min_isr("orders", 2)])
    cluster.decide_all(registration(1, life=2, dead_broker_epoch=cluster.epoch(1), previous_broker_epoch=-1))
    assert cluster.partition("orders").elr == ()


def test_broker_stays_in_the_elr_after_a_clean_stop() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.add_topic("orders", (1, 2))
    cluster.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[min_isr("orders", 2)])
    epoch = cluster.epoch(1)
    cluster.decide_all(registration(1, life=2, dead_broker_epoch=epoch, previous_broker_epoch=epoch))
    assert cluster.partition("orders").elr == (1,)


def test_broker_leaves_the_elr_if_only_an_incarnation_before_the_last_one_stopped_cleanly() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.add_topic("orders", (1, 2))
    cluster.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[min_isr("orders", 2)])
    epoch = cluster.epoch(1)
    cluster.decide_all(registration(1, life=2, dead_broker_epoch=epoch, previous_broker_epoch=epoch - 1))
    assert cluster.partition("orders").elr == ()


def min_isr(topic: str, count: int) -> Any:
    from kraft.wire import messages

    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.nested_class(resource, "configs")
    one = messages.build(config, name="min.insync.replicas", config_operation=0, value=str(count))
    return messages.build(resource, resource_type=2, resource_name=topic, configs=[one])


def test_heartbeat_with_a_stale_broker_epoch_is_rejected() -> None:
    cluster = Cluster()
    cluster.add_broker(1)
    stale = heartbeat(cluster, 1, broker_epoch=cluster.epoch(1) - 1)
    assert cluster.decide_all(stale).error_code is ErrorCode.STALE_BROKER_EPOCH
    unknown = BrokerHeartbeat(broker_id=9, broker_epoch=1, metadata_offset=0)
    assert cluster.decide_all(unknown).error_code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("fenced", "request_fields", "leads", "expected"),
    [
        # (current, requested) -> (is_fenced, should_shut_down, fenced afterwards, in controlled shutdown afterwards)
        (True, {"want_fence": True}, False, (True, False, True, False)),
        (True, {}, False, (False, False, False, False)),
        (True, {"metadata_offset": 0}, False, (True, False, True, False)),
        (True, {"want_shut_down": True}, False, (True, True, True, False)),
        (False, {}, True, (False, False, False, False)),
        (False, {"want_fence": True}, True, (True, False, True, False)),
        (False, {"want_fence": True, "want_shut_down": True}, True, (True, True, True, False)),
        (False, {"want_shut_down": True}, False, (True, True, True, False)),
        (False, {"want_shut_down": True}, True, (False, False, False, True)),
    ],
)
def test_heartbeat_moves_a_broker_from_its_current_state_to_the_expected_next_state(
    fenced: bool, request_fields: dict[str, Any], leads: bool, expected: tuple[bool, bool, bool, bool]
) -> None:
    cluster = Cluster()
    cluster.add_broker(1, fenced=fenced)
    cluster.add_broker(2)
    if leads:
        cluster.add_topic("orders", (1, 2))
    reply = cluster.decide_all(heartbeat(cluster, 1, **request_fields))
    broker = cluster.image.brokers[1]
    assert (reply.is_fenced, reply.should_shut_down, broker.fenced, broker.in_controlled_shutdown) == expected


def test_broker_is_unfenced_only_after_it_published_its_own_registration() -> None:
    cluster = Cluster()
    epoch = cluster.add_broker(1, fenced=True)
    reply = cluster.decide_all(heartbeat(cluster, 1, metadata_offset=epoch))
    assert (reply.is_caught_up, cluster.image.brokers[1].fenced) == (False, True)
    reply = cluster.decide_all(heartbeat(cluster, 1, metadata_offset=epoch + 1))
    assert (reply.is_caught_up, cluster.image.brokers[1].fenced) == (True, False)


def test_broker_is_not_unfenced_while_it_is_being_fenced() -> None:
    cluster = Cluster()
    cluster.add_broker(1, fenced=True)
    cluster.being_fenced = frozenset((1,))
    assert cluster.decide(heartbeat(cluster, 1)).events == ()
    cluster.add_broker(2)
    cluster.being_fenced = frozenset((2,))
    assert cluster.decide(heartbeat(cluster, 2)).reply.is_fenced


def test_unfencing_is_recorded_before_the_elections_that_it_allows() -> None:
    cluster = Cluster()
    cluster.add_broker(2)
    cluster.add_topic("orders", (2,))
    cluster.decide_all(heartbeat(cluster, 2, want_fence=True))
    assert cluster.partition("orders").leader == -1
    decision = cluster.decide(heartbeat(cluster, 2))
    assert isinstance(decision.events[0], BrokerRegistrationChange)
    assert cluster.partition("orders").leader == 2


def shutting_down() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (1, 2, 3), (1, 2, 3), (1,))
    return cluster


def test_controlled_shutdown_moves_leadership_and_leaves_unreplicated_partitions_leaderless() -> None:
    cluster = shutting_down()
    cluster.decide_all(heartbeat(cluster, 1, want_shut_down=True))
    assert [cluster.partition("orders", index).leader for index in range(3)] == [2, 2, -1]
    assert cluster.partition("orders", 2).elr == (1,)


def hold_offset(cluster: Cluster, effects: tuple[Any, ...]) -> None:
    """Store the shutdown offset in these effects in the cluster's sessions, as the controller does."""
    for effect in effects:
        if hasattr(effect, "offset"):
            session = cluster.sessions[effect.broker_id]
            cluster.sessions[effect.broker_id] = session._replace(shutdown_offset=effect.offset)


def shut_down(cluster: Cluster, broker_id: int) -> Any:
    decision = cluster.decide(heartbeat(cluster, broker_id, want_shut_down=True))
    hold_offset(cluster, decision.effects)
    while decision.follow_up is not None:
        decision = cluster.decide(decision.follow_up)
        hold_offset(cluster, decision.effects)
    return decision.reply


def test_controlled_shutdown_ends_once_every_active_broker_has_published_metadata_that_shows_it() -> None:
    cluster = shutting_down()
    assert not shut_down(cluster, 1).should_shut_down
    assert not shut_down(cluster, 1).should_shut_down
    cluster.sessions[2] = cluster.sessions[2]._replace(metadata_offset=cluster.image.offset)
    assert not shut_down(cluster, 1).should_shut_down
    cluster.sessions[3] = cluster.sessions[3]._replace(metadata_offset=cluster.image.offset)
    reply = shut_down(cluster, 1)
    assert (reply.should_shut_down, cluster.image.brokers[1].fenced) == (True, True)


def test_controlled_shutdown_does_not_wait_for_the_stopping_broker_itself_or_for_fenced_brokers() -> None:
    cluster = shutting_down()
    cluster.fence(2, 3)
    shut_down(cluster, 1)
    assert shut_down(cluster, 1).should_shut_down


def is_with_others(cluster: Cluster, broker_id: int) -> bool:
    """Return whether the broker leads a partition, or is in an ISR that has other members."""
    return any(
        state.leader == broker_id or (broker_id in state.isr and len(state.isr) > 1)
        for topic in cluster.image.topics
        for _, state in topic.partitions()
    )


@pytest.mark.parametrize("partitions", [3, 2_500])
def test_controlled_shutdown_is_recorded_after_the_broker_left_every_isr(partitions: int) -> None:
    """Between two slices, no command and no change of a partition finds an inactive broker in an ISR (M6)."""
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster, partitions)
    decision = cluster.decide(heartbeat(cluster, 1, want_shut_down=True))
    while decision.follow_up is not None:
        hold_offset(cluster, decision.effects)
        assert (cluster.image.brokers[1].is_active, is_with_others(cluster, 1)) == (True, True)
        again = cluster.decide(heartbeat(cluster, 1, want_shut_down=True))
        assert (again.events, again.follow_up) == ((), None)
        assert (again.reply.is_fenced, again.reply.should_shut_down) == (False, False)
        decision = cluster.decide(decision.follow_up)
    assert decision.events[-1] == BrokerRegistrationChange(1, cluster.epoch(1), in_controlled_shutdown=True)
    assert not is_with_others(cluster, 1)


def new_controller(cluster: Cluster) -> None:
    for broker_id in cluster.image.broker_ids():
        cluster.sessions[broker_id] = BrokerSession(cluster.epoch(broker_id), cluster.now_ms)


def test_new_controller_finishes_a_controlled_shutdown_that_another_started() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster, 1_500)
    cluster.decide(heartbeat(cluster, 1, want_shut_down=True))  # only the first slice: then the controller dies
    new_controller(cluster)
    assert cluster.partition("large", 1_499).leader == 1
    assert not shut_down(cluster, 1).should_shut_down
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert not is_with_others(cluster, 1)


def test_new_controller_waits_until_all_brokers_published_a_recorded_controlled_shutdown() -> None:
    cluster = shutting_down()
    shut_down(cluster, 1)
    new_controller(cluster)
    assert not shut_down(cluster, 1).should_shut_down
    for broker_id in (2, 3):
        cluster.sessions[broker_id] = cluster.sessions[broker_id]._replace(metadata_offset=cluster.image.offset)
    assert shut_down(cluster, 1).should_shut_down


def test_broker_fenced_during_its_controlled_shutdown_stays_fenced() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster, 1_500)
    decision = cluster.decide(heartbeat(cluster, 1, want_shut_down=True))
    hold_offset(cluster, decision.effects)
    cluster.fence(1)
    decision = cluster.decide(decision.follow_up)
    assert not any(isinstance(event, BrokerRegistrationChange) for event in decision.events)
    hold_offset(cluster, decision.effects)
    assert shut_down(cluster, 1).should_shut_down


def test_offline_directory_removes_the_broker_from_only_its_partitions() -> None:
    cluster = Cluster()
    cluster.add_broker(1, directories=2)
    cluster.add_brokers(2, 3)
    assignments = [{"partition_index": index, "broker_ids": [1, 2, 3]} for index in range(4)]
    create(cluster, "orders", assignments)
    here = [index for index in range(4) if cluster.partition("orders", index).directory_of(1) == directory_id(1, 1)]
    assert 0 < len(here) < 4
    cluster.decide_all(heartbeat(cluster, 1, offline_log_dirs=(directory_id(1, 1),)))
    for index in range(4):
        partition = cluster.partition("orders", index)
        assert (partition.leader == 2 and 1 not in partition.isr) == (index in here)
    assert cluster.image.brokers[1].log_dirs == (directory_id(1, 0),)
    assert cluster.decide(heartbeat(cluster, 1, offline_log_dirs=(directory_id(1, 1),))).events == ()


def create(cluster: Cluster, name: str, assignments: list[dict[str, Any]]) -> None:
    from kraft.wire import messages

    topic_class = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
    assignment_class = messages.nested_class(topic_class, "assignments")
    topic = messages.build(
        topic_class,
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[messages.build(assignment_class, **one) for one in assignments],
    )
    response = cluster.admin(ApiKey.CREATE_TOPICS, topics=[topic])
    assert response.topics[0].error_code == ErrorCode.NONE, response


def test_replica_in_an_offline_directory_is_never_elected() -> None:
    cluster = Cluster()
    cluster.add_broker(1, directories=2)
    create(cluster, "orders", [{"partition_index": 0, "broker_ids": [1]}])
    lost = cluster.partition("orders").directory_of(1)
    assert lost is not None
    cluster.decide_all(heartbeat(cluster, 1, offline_log_dirs=(lost,)))
    assert cluster.partition("orders").leader == -1
    cluster.decide_all(heartbeat(cluster, 1, want_fence=True))
    cluster.decide_all(heartbeat(cluster, 1))
    assert cluster.partition("orders").leader == -1


def test_broker_without_any_online_directory_is_in_no_isr() -> None:
    """Such a broker is alive, but partitions created on it could not be written."""
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.decide_all(heartbeat(cluster, 1, offline_log_dirs=(directory_id(1),)))
    broker = cluster.image.brokers[1]
    assert (broker.log_dirs, broker.has_any_directory) == ((LOST_DIRECTORY,), False)
    assert not broker.has_directory(LOST_DIRECTORY)
    create(cluster, "orders", [{"partition_index": 0, "broker_ids": [1, 2, 3]}])
    assert cluster.partition("orders").replicas == (1, 2, 3)
    assert (cluster.partition("orders").isr, cluster.partition("orders").leader) == ((2, 3), 2)


def test_unregistered_broker_leaves_isr_and_elr_but_stays_in_replica_lists() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (1, 2, 3))
    response = cluster.admin(ApiKey.UNREGISTER_BROKER, broker_id=1)
    assert response.error_code == ErrorCode.NONE
    assert 1 not in cluster.image.brokers
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (2, 3), 2)
    assert cluster.admin(ApiKey.UNREGISTER_BROKER, broker_id=1).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def large(cluster: Cluster, partitions: int = 2_500) -> None:
    cluster.add_topic("large", *[(1, 2)] * partitions)


def slices_of(cluster: Cluster, command: Any) -> tuple[list[int], Any]:
    """Return the number of events of each slice, and the reply of the last slice."""
    decision = cluster.decide(command)
    sizes = [len(decision.events)]
    hold_offset(cluster, decision.effects)
    while decision.follow_up is not None:
        assert decision.reply is None or FollowUp(decision.follow_up, is_answered=True) in decision.effects
        decision = cluster.decide(decision.follow_up)
        hold_offset(cluster, decision.effects)
        sizes.append(len(decision.events))
    return sizes, decision.reply


def test_registration_with_many_partitions_is_decided_in_slices_with_its_record_last() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster)
    sizes, reply = slices_of(cluster, registration(1, life=2, dead_broker_epoch=cluster.epoch(1)))
    assert sizes == [1_000, 1_000, 501]
    assert reply.broker_epoch == cluster.image.offset - 1
    assert all(state.isr == (2,) for _, state in cluster.image.topics.get("large").partitions())  # type: ignore[union-attr]


def test_registration_overtaken_by_another_process_between_slices_is_rejected() -> None:
    """The overtaken process may have died since. Its registration would replace the live process, which would then lead
    nothing."""
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster)
    epoch = cluster.epoch(1)
    began = cluster.decide(registration(1, life=2, dead_broker_epoch=epoch))
    newer = cluster.decide_all(registration(1, life=3, dead_broker_epoch=epoch))
    assert newer.error_code is ErrorCode.NONE
    overtaken = cluster.decide(began.follow_up)
    assert (overtaken.reply.error_code, overtaken.events) == (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ())
    assert cluster.epoch(1) == newer.broker_epoch


def test_registration_continues_if_the_same_process_repeats_it_between_slices() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster)
    command = registration(1, life=2, dead_broker_epoch=cluster.epoch(1))
    began = cluster.decide(command)
    again = cluster.decide_all(command)
    assert (again.error_code, cluster.decide_all(began.follow_up)) == (ErrorCode.NONE, again)


def test_large_plans_of_all_kinds_are_decided_in_slices() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    large(cluster)
    sizes, reply = slices_of(cluster, heartbeat(cluster, 1, want_shut_down=True))
    assert (sizes, reply.is_fenced) == ([1_000, 1_000, 501], False)
    sizes, reply = slices_of(cluster, heartbeat(cluster, 2, want_fence=True))
    assert (sizes, reply.is_fenced) == ([0, 500, 500, 500, 500, 501], True)
    sizes, reply = slices_of(cluster, heartbeat(cluster, 2))
    assert (sizes, reply.is_fenced) == ([1_001, 1_000, 500], False)
    request = cluster.admin_request(ApiKey.UNREGISTER_BROKER, broker_id=2)
    sizes, reply = slices_of(cluster, request)
    assert (sizes, reply.error_code) == ([1_000, 1_000, 501], ErrorCode.NONE)


def test_small_slice_limits_apply_to_plans_of_all_kinds() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    create(cluster, "orders", [{"partition_index": index, "broker_ids": [1, 2]} for index in range(3)])
    with small_sizes([SLICES]):
        lost = heartbeat(cluster, 1, offline_log_dirs=(directory_id(1),))
        assert slices_of(cluster, lost)[0] == [0, 1, 1, 2, 0]
        again = registration(1, life=2, dead_broker_epoch=cluster.epoch(1))
        assert slices_of(cluster, again)[0] == [1]
        stop = heartbeat(cluster, 2, want_shut_down=True)
        assert slices_of(cluster, stop)[0] == [1, 1, 2]
        fence = heartbeat(cluster, 2, want_fence=True)
        assert slices_of(cluster, fence)[0] == [0, 1]
        unfence = heartbeat(cluster, 2)
        assert slices_of(cluster, unfence)[0] == [2, 1, 1]


def test_large_offline_directory_is_handled_in_slices() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    create(cluster, "large", [{"partition_index": index, "broker_ids": [1, 2]} for index in range(1_500)])
    lost = heartbeat(cluster, 1, offline_log_dirs=(directory_id(1),))
    sizes, reply = slices_of(cluster, lost)
    assert (sizes, reply.error_code) == ([0, 1_000, 501, 0], ErrorCode.NONE)


def test_plans_for_a_broker_end_when_it_registers_again() -> None:
    from kraft.control.commands import START, HandleOfflineDirectories, ShutDownBroker

    cluster = Cluster()
    cluster.add_brokers(1, 2)
    old = heartbeat(cluster, 1)
    stop = ShutDownBroker(broker_id=1, broker_epoch=cluster.epoch(1), cursor=START)
    lose = HandleOfflineDirectories(heartbeat=old, directories=(directory_id(1),))
    cluster.add_broker(1)
    for command in (stop, lose):
        decision = cluster.decide(command)
        assert (decision.events, decision.reply.error_code) == ((), ErrorCode.STALE_BROKER_EPOCH)


def test_unregister_broker_needs_alter_permission_on_the_cluster() -> None:
    cluster = Cluster()
    cluster.add_broker(1)
    cluster.authorize = lambda *_: False
    response = cluster.admin(ApiKey.UNREGISTER_BROKER, broker_id=1)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
