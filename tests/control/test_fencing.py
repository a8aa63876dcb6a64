"""Fencing: plans in slices, outdated targets, and no unclean election by a fast fence. Planted bugs are at the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft.control import ElectLeaderless, FenceBrokers, FenceCause, FenceTarget
from kraft.control.brokers import fencing as fencing_module
from kraft.control.commands import START, Cursor
from kraft.control.decision import FENCE_CHANGES_PER_SLICE_MAX, PARTITIONS_PER_SLICE_MAX
from kraft.control.partitions import plans
from kraft.image import BatchBuilder, MetadataImage, PartitionState
from kraft.image.events import BrokerRegistrationChange, Config, Partition, PartitionChange, RemoveTopic, Topic
from kraft.wire.api_keys import ApiKey
from tests.stages.admin_requests import new_topic
from tests.stages.decided_cluster import Cluster, topic_id


def target(cluster: Cluster, broker_id: int, **changed: Any) -> FenceTarget:
    session = cluster.sessions[broker_id]
    return FenceTarget(broker_id, session.broker_epoch, session.connection_number)._replace(**changed)


def died(cluster: Cluster, *broker_ids: int) -> FenceBrokers:
    targets = tuple(target(cluster, broker_id) for broker_id in broker_ids)
    return FenceBrokers(targets=targets, cause=FenceCause.PROCESS_DIED)


def expired(cluster: Cluster, *broker_ids: int) -> FenceBrokers:
    for broker_id in broker_ids:
        session = cluster.sessions[broker_id]
        cluster.sessions[broker_id] = session._replace(last_heard_ms=cluster.now_ms - 9_000)
    targets = tuple(target(cluster, broker_id) for broker_id in broker_ids)
    return FenceBrokers(targets=targets, cause=FenceCause.SESSION_EXPIRED)


def three_brokers() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    return cluster


def test_partition_changes_of_a_fence_come_before_its_fence_record() -> None:
    cluster = three_brokers()
    cluster.add_topic("orders", (1, 2, 3))
    decision = cluster.decide(died(cluster, 1))
    assert [type(event) for event in decision.events] == [PartitionChange, BrokerRegistrationChange]
    assert cluster.partition("orders").leader == 2
    assert cluster.image.brokers[1].fenced


def test_brokers_that_died_together_do_not_become_leaders_for_each_other() -> None:
    cluster = three_brokers()
    cluster.add_topic("orders", (1, 2, 3))
    decision = cluster.decide(died(cluster, 1, 2))
    changes = [event for event in decision.events if isinstance(event, PartitionChange)]
    assert [change.leader for change in changes] == [3]
    assert cluster.partition("orders").isr == (3,)


def test_plan_finds_affected_partitions_from_any_cursor_and_checks_equal_states_once() -> None:
    cluster = three_brokers()
    chance = random.Random(5)
    orders = [chance.choice(((1, 2, 3), (2, 3, 1), (3, 1, 2))) for _ in range(1_000)]
    orders[256:768] = [(3, 1, 2)] * 512  # leaves without any affected partition
    cluster.image = image_of_shared(cluster, orders)
    asked: list[PartitionState] = []

    def leads(state: PartitionState) -> bool:
        asked.append(state)
        return state.leader == 1

    wanted = [("orders", number) for number, replicas in enumerate(orders) if replicas[0] == 1]
    for cursor in (START, Cursor("orders", 0), Cursor("orders", 255), Cursor("orders", 300), Cursor("orders", 999)):
        asked.clear()
        located = plans.partitions_where(cluster.image, cursor, leads)
        found = [(one.name, one.partition_id) for one in located if isinstance(one, plans.Located)]
        assert found == [(f"orders-{number}", number) for _, number in wanted if number >= cursor.partition]
        assert len(asked) <= 3
    assert list(plans.partitions_where(cluster.image, Cursor("others", 0), leads)) == []


def test_plan_ends_a_slice_after_checking_very_many_unaffected_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "LEAVES_PER_SLICE_MAX", 2)
    cluster = three_brokers()
    rows = [Partition(topic_id(1), number, (2, 3), (2, 3), leader=2) for number in range(2_000)]
    cluster.add_topic("orders", *rows, (1, 2, 3))
    command: Any = died(cluster, 1)
    slices = []
    while command is not None:
        decision = cluster.decide(command)
        slices.append([event.partition_id for event in decision.events if isinstance(event, PartitionChange)])
        command = decision.follow_up
    assert len(slices) > 4
    assert [numbers for numbers in slices if numbers] == [[2_000]]
    assert cluster.image.brokers[1].fenced
    assert cluster.partition("orders", 2_000).leader == 2


def image_of_shared(cluster: Cluster, orders: list[tuple[int, ...]]) -> MetadataImage:
    """Return an image of a topic with these replicas, replayed from bytes as nodes do it: partitions with equal states
    share one object."""
    events = [
        Topic("orders", topic_id(1)),
        *(Partition(topic_id(1), number, one, one, leader=one[0]) for number, one in enumerate(orders)),
    ]
    batch = BatchBuilder(cluster.image, events)
    batch.take(len(events))
    return batch.build(cluster.image.offset + len(events), 1)[0]


@pytest.mark.parametrize(
    "changed",
    [{"broker_epoch": 1}, {"connection_number": 77}, {"connection_number": None}],
)
def test_fence_is_void_if_broker_epoch_or_connection_is_outdated(changed: dict[str, Any]) -> None:
    cluster = three_brokers()
    cluster.add_topic("orders", (1, 2, 3))
    command = FenceBrokers(targets=(target(cluster, 1, **changed),), cause=FenceCause.PROCESS_DIED)
    assert cluster.decide(command).events == ()


def test_fence_for_an_expired_session_is_void_if_a_heartbeat_came_first() -> None:
    cluster = three_brokers()
    command = expired(cluster, 1)
    cluster.sessions[1] = cluster.sessions[1]._replace(last_heard_ms=cluster.now_ms)
    assert cluster.decide(command).events == ()


def test_fence_with_current_and_outdated_targets_fences_only_the_current_ones() -> None:
    cluster = three_brokers()
    command = died(cluster, 1, 2)
    cluster.sessions[2] = cluster.sessions[2]._replace(connection_number=5000)
    cluster.decide_all(command)
    assert [broker.fenced for broker in cluster.image.sorted_brokers()] == [True, False, False]


def many_partitions(count: int) -> Cluster:
    cluster = three_brokers()
    cluster.add_topic("many", *[(1, 2, 3)] * count)
    return cluster


def test_large_fence_is_decided_in_slices_with_the_fence_record_last() -> None:
    cluster = many_partitions(2_500)
    decision = cluster.decide(died(cluster, 1))
    sizes = [len(decision.events)]
    while decision.follow_up is not None:
        assert not cluster.image.brokers[1].fenced
        cluster.being_fenced = frozenset((1,))
        decision = cluster.decide(decision.follow_up)
        sizes.append(len(decision.events))
    assert sizes == [500, 500, 500, 500, 501]
    assert max(sizes) <= FENCE_CHANGES_PER_SLICE_MAX + 1
    assert cluster.image.brokers[1].fenced
    assert all(state.leader == 2 for _, state in cluster.image.topics.get("many").partitions())  # type: ignore[union-attr]


def test_each_slice_is_decided_on_the_newest_image() -> None:
    cluster = many_partitions(1_500)
    first = cluster.decide(died(cluster, 1))
    cluster.being_fenced = frozenset((1,))
    cluster.decide(cluster.admin_request(ApiKey.CREATE_TOPICS, topics=[new_topic("a-new-one", 6, 3)]))
    many = cluster.image.topics.get("many")
    assert many is not None
    cluster.apply([PartitionChange(many.topic_id, 1_400, isr=(1, 3))])
    cluster.decide_all(first.follow_up)
    assert cluster.image.brokers[1].fenced
    assert cluster.partition("many", 1_400).leader == 3
    for topic in cluster.image.topics:
        assert all(state.leader != 1 and 1 not in state.isr for _, state in topic.partitions())


def test_plan_skips_a_topic_deleted_between_slices() -> None:
    cluster = many_partitions(1_500)
    first = cluster.decide(died(cluster, 1))
    many = cluster.image.topics.get("many")
    assert many is not None
    cluster.apply([RemoveTopic(many.topic_id)])
    cluster.decide_all(first.follow_up)
    assert cluster.image.brokers[1].fenced


def test_heartbeat_or_new_connection_between_slices_does_not_stop_a_fence() -> None:
    cluster = many_partitions(1_500)
    first = cluster.decide(died(cluster, 1))
    cluster.being_fenced = frozenset((1,))
    cluster.sessions[1] = cluster.sessions[1]._replace(connection_number=6000, last_heard_ms=cluster.now_ms)
    cluster.decide_all(first.follow_up)
    assert cluster.image.brokers[1].fenced


def test_broker_that_registered_again_between_slices_is_not_fenced() -> None:
    cluster = many_partitions(1_500)
    first = cluster.decide(died(cluster, 1))
    cluster.add_broker(1)  # a newer broker epoch
    cluster.decide_all(first.follow_up)
    assert not cluster.image.brokers[1].fenced


def test_reply_of_a_fence_comes_with_its_last_slice() -> None:
    cluster = many_partitions(1_500)
    command = FenceBrokers(targets=(target(cluster, 1),), cause=FenceCause.REQUESTED, reply="done")
    first = cluster.decide(command)
    assert first.reply is None
    assert cluster.decide_all(first.follow_up) == "done"


def unclean_topic(*partitions: tuple[int, ...]) -> Cluster:
    cluster = three_brokers()
    cluster.add_topic("lossy", *partitions)
    cluster.apply([Config(2, "lossy", "unclean.leader.election.enable", "true")])
    return cluster


def shrink(cluster: Cluster, isr: tuple[int, ...]) -> None:
    topic = cluster.image.topics.get("lossy")
    assert topic is not None
    cluster.apply([PartitionChange(topic.topic_id, 0, isr=isr)])


def test_fast_fence_never_starts_an_unclean_election() -> None:
    cluster = unclean_topic((1, 2, 3))
    shrink(cluster, (1,))
    cluster.decide_all(died(cluster, 1))
    partition = cluster.partition("lossy")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))


def test_expired_session_starts_an_unclean_election_if_the_topic_allows_it() -> None:
    cluster = unclean_topic((1, 2, 3))
    shrink(cluster, (1,))
    cluster.decide_all(expired(cluster, 1))
    partition = cluster.partition("lossy")
    assert (partition.leader, partition.isr) == (2, (2,))


def test_expired_session_starts_no_unclean_election_if_the_topic_forbids_it() -> None:
    cluster = three_brokers()
    cluster.add_topic("lossy", (1, 2, 3))
    shrink(cluster, (1,))
    cluster.decide_all(expired(cluster, 1))
    assert cluster.partition("lossy").leader == -1


def test_unclean_election_waits_for_the_session_timeout_of_a_fast_fence() -> None:
    cluster = unclean_topic((1, 2, 3))
    shrink(cluster, (1,))
    cluster.decide_all(died(cluster, 1))
    cluster.recently_fenced = frozenset((1,))
    cluster.decide_all(ElectLeaderless())
    cluster.decide_all(expired(cluster, 3))
    assert cluster.partition("lossy").leader == -1
    cluster.recently_fenced = frozenset()
    cluster.decide_all(ElectLeaderless())
    assert cluster.partition("lossy").leader == 2


def test_elections_prefer_isr_members_whose_connection_is_up() -> None:
    cluster = three_brokers()
    cluster.add_topic("orders", (1, 2, 3))
    cluster.sessions[2] = cluster.sessions[2]._replace(is_connected=False)
    cluster.decide_all(died(cluster, 1))
    assert cluster.partition("orders").leader == 3


def test_broker_being_fenced_gets_no_new_partitions_and_no_leadership() -> None:
    from kraft.wire import messages

    cluster = three_brokers()
    cluster.being_fenced = frozenset((1,))
    topic_class = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
    topic = messages.build(topic_class, name="orders", num_partitions=6, replication_factor=3)
    cluster.admin(ApiKey.CREATE_TOPICS, topics=[topic])
    for index in range(6):
        partition = cluster.partition("orders", index)
        assert partition.leader != 1
        assert 1 not in partition.isr


# planted bugs: one of the tests above must fail for each


def accept_outdated_targets(*_arguments: Any) -> bool:
    return True


@pytest.mark.parametrize("changed", [{"connection_number": 77}])
def test_checks_catch_a_fence_without_the_connection_number(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(fencing_module, "_is_due", accept_outdated_targets)
    with pytest.raises(AssertionError):
        test_fence_is_void_if_broker_epoch_or_connection_is_outdated(changed)


def test_checks_catch_a_fence_without_the_broker_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_id_alone(image: Any, fence_target: FenceTarget) -> bool:
        return fence_target.broker_id in image.brokers

    monkeypatch.setattr(fencing_module, "_is_registered", by_id_alone)
    with pytest.raises(Exception, match="does not fit"):
        test_broker_that_registered_again_between_slices_is_not_fenced()


def test_checks_catch_a_fast_fence_that_may_be_unclean(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fencing_module.leave_partitions

    def unclean(*arguments: Any, **options: Any) -> Any:
        return honest(*arguments, **{**options, "may_be_unclean": True})

    monkeypatch.setattr(fencing_module, "leave_partitions", unclean)
    with pytest.raises(AssertionError):
        test_fast_fence_never_starts_an_unclean_election()


def test_checks_catch_fencing_dead_brokers_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fencing_module.leave_partitions

    def only_the_first(image: Any, context: Any, brokers: frozenset[int], *rest: Any, **options: Any) -> Any:
        return honest(image, context, frozenset((min(brokers),)), *rest, **options)

    monkeypatch.setattr(fencing_module, "leave_partitions", only_the_first)
    with pytest.raises(AssertionError):
        test_brokers_that_died_together_do_not_become_leaders_for_each_other()


def test_checks_catch_a_plan_whose_slices_are_all_decided_on_the_image_at_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = fencing_module.leave_partitions
    seen: list[Any] = []

    def on_the_first_image(image: Any, *rest: Any, **options: Any) -> Any:
        seen.append(image)
        return honest(seen[0], *rest, **options)

    monkeypatch.setattr(fencing_module, "leave_partitions", on_the_first_image)
    with pytest.raises(AssertionError):
        test_each_slice_is_decided_on_the_newest_image()


def test_fence_handles_partitions_led_by_the_dead_broker_first() -> None:
    cluster = three_brokers()
    led = [(1, 2, 3) if number % 3 == 0 else (2, 3, 1) for number in range(3_000)]
    cluster.add_topic("many", *led)
    decision = cluster.decide(died(cluster, 1))
    slices = [decision.events]
    while decision.follow_up is not None:
        cluster.being_fenced = frozenset((1,))
        decision = cluster.decide(decision.follow_up)
        slices.append(decision.events)
    changes = [event for events in slices for event in events if isinstance(event, PartitionChange)]
    assert [change.leader >= 0 for change in changes] == [True] * 1_000 + [False] * 2_000
    assert len({(change.topic_id, change.partition_id) for change in changes}) == len(changes)
    assert max(len(events) for events in slices) <= FENCE_CHANGES_PER_SLICE_MAX + 1
    for topic in cluster.image.topics:
        assert all(state.leader in (2, 3) and 1 not in state.isr for _, state in topic.partitions())


def test_elections_continue_after_a_thousand_partitions_without_a_candidate() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    count = 2 * PARTITIONS_PER_SLICE_MAX + 1
    rows = [Partition(topic_id(1), number, (1, 2), (), leader=-1, elr=(1,)) for number in range(count)]
    cluster.add_topic("orders", *rows, Partition(topic_id(1), count, (3,), (), leader=-1, elr=(3,)))
    cluster.fence(1, 2)
    command: Any = ElectLeaderless()
    slices = []
    while command is not None:
        decision = cluster.decide(command)
        slices.append(len(decision.events))
        command = decision.follow_up
    assert slices == [0, 0, 1]
    assert cluster.partition("orders", count).leader == 3
