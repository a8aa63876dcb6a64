"""Groups that migrate between the protocols while their members work. Source: KIP-848."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.consumer_group.embedded_protocol import encode_assignment
from kraft.broker.consumer_group.settings import ConsumerGroupSettings, MigrationPolicy
from kraft.broker.group.requests import CLASSIC_TYPE, CONSUMER_TYPE, Leaver, ListRequest
from kraft.wire.error_codes import ErrorCode
from tests.broker.consumer_group.consumer_bench import ConsumerBench
from tests.broker.consumer_group.migrating_clients import Client, MigratingGroup, subscription
from tests.stages.group_bench import GROUP

KINDS = pytest.mark.parametrize("is_cooperative", [True, False], ids=["cooperative", "eager"])


def with_policy(policy: MigrationPolicy, **settings: int) -> ConsumerBench:
    found = ConsumerGroupSettings(migration_policy=policy, **settings)
    return ConsumerBench(settings_of=lambda group: found)


def classic_group(bench: ConsumerBench, *instance_ids: str | None, is_cooperative: bool = True) -> MigratingGroup:
    group = MigratingGroup(bench)
    for instance_id in instance_ids:
        group.start(True, instance_id, is_cooperative=is_cooperative)
    group.settle()
    assert bench.state == "Stable"
    assert group.covered == group.all_partitions
    return group


def is_classic(bench: ConsumerBench) -> bool:
    """Return whether the group is a classic one; it is never both."""
    newest = bench.machine.newest
    assert (GROUP in newest.groups) != (GROUP in newest.consumers)
    assert (GROUP in bench.machine.groups) == (GROUP in newest.groups)
    return GROUP in newest.groups


def replace(group: MigratingGroup, old: Client, *, is_classic: bool, is_cooperative: bool = True) -> Client:
    """Restart a client with the other protocol, and let the group settle."""
    group.stop(old)
    options = {"is_cooperative": is_cooperative} if is_classic else {}
    new = group.start(is_classic, old.instance_id, **options)
    group.settle()
    assert group.covered == group.all_partitions
    return new


# rolling restarts


@KINDS
def test_a_group_rolls_to_the_new_protocol_and_back_while_all_members_commit(is_cooperative: bool) -> None:
    bench = ConsumerBench()
    group = classic_group(bench, None, None, None, is_cooperative=is_cooperative)
    offset = 100
    for to_classic in (False, True):
        for old in list(group.clients):
            replace(group, old, is_classic=to_classic, is_cooperative=is_cooperative)
            assert sorted(len(client.owned) for client in group.clients) == [2, 2, 2]
            offset += 1
            for client in group.clients:
                assert client.commit(offset) is ErrorCode.NONE
            assert (bench.committed("orders"), bench.committed("trades")) == (offset, offset)
        assert is_classic(bench) == to_classic
        if not to_classic:
            assert all(member.classic is None for member in bench.consumers.members.values())
    assert (bench.state, len(bench.group.members)) == ("Stable", 3)


@KINDS
def test_a_rolling_group_loses_no_partition_when_its_coordinator_moves_at_every_step(is_cooperative: bool) -> None:
    bench = ConsumerBench()
    group = classic_group(bench, None, None, None, is_cooperative=is_cooperative)
    for to_classic in (False, True):
        for old in list(group.clients):
            group.stop(old)
            bench.move()
            group.start(to_classic, **({"is_cooperative": is_cooperative} if to_classic else {}))
            for _ in range(20):
                group.settle(1)
                bench.move()
            group.settle(60)
            assert group.covered == group.all_partitions
        assert is_classic(bench) == to_classic


@KINDS
def test_static_members_keep_their_partitions_when_they_are_restarted_with_the_other_protocol(
    is_cooperative: bool,
) -> None:
    bench = ConsumerBench()
    group = classic_group(bench, "i1", "i2", "i3", is_cooperative=is_cooperative)
    before = {client.instance_id: client.owned for client in group.clients}
    for to_classic in (False, True):
        for old in list(group.clients):
            replace(group, old, is_classic=to_classic, is_cooperative=is_cooperative)
            if not is_classic(bench):
                assert {client.instance_id: client.owned for client in group.clients} == before
        assert is_classic(bench) == to_classic
    assert (bench.state, set(bench.group.static_members)) == ("Stable", {"i1", "i2", "i3"})


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["restart as classic", "restart as consumer", "crash"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["move", "sleep"]), st.just(0)),
    ),
    min_size=10,
    max_size=80,
)


@given(CHANGES, st.booleans(), st.booleans())
def test_no_partition_ever_has_two_owners_and_all_have_one_in_the_end(
    changes: list[tuple[str, int]], is_cooperative: bool, is_static: bool
) -> None:
    bench = ConsumerBench()
    group = MigratingGroup(bench)
    for number in range(3):
        group.start(True, f"i{number}" if is_static else None, is_cooperative=is_cooperative)
    for change, number in changes:
        client = group.clients[number % len(group.clients)]
        if change == "step":
            group.step(client)
        elif change == "move":
            bench.move()
        elif change == "sleep":
            bench.sleep(100)
        else:
            if change == "crash":
                group.clients.remove(client)
                group.settle(0 if is_static else 46)
            else:
                group.stop(client)
            to_classic = change == "restart as classic"
            group.start(to_classic, client.instance_id, **({"is_cooperative": is_cooperative} if to_classic else {}))
        group.check()
    group.settle(100)
    assert group.covered == group.all_partitions
    assert not any(client.is_fenced for client in group.clients)


# upgrade


def test_the_first_consumer_heartbeat_upgrades_the_group_in_one_write_and_keeps_its_generation() -> None:
    bench = ConsumerBench()
    classic_group(bench, None, None)
    generation, length, held = bench.group.generation, len(bench.log), dict(bench.group.members)
    bench.commits_at_once = False
    bench.ask_heartbeat("new", 0, rebalance_timeout_ms=30_000, subscribed_names=("orders",), owned={})
    assert bench.consumers.epoch == generation + 1
    assert {member: bench.consumers.assignment_of(member).epoch for member in held} == dict.fromkeys(held, generation)
    assert all(bench.consumers.members[member].classic is not None for member in held)
    bench.move_after_loss(length)
    assert is_classic(bench)
    assert (bench.state, bench.group.generation, set(bench.group.members)) == ("Stable", generation, set(held))


def test_a_group_whose_assignor_adds_user_data_is_not_upgraded() -> None:
    bench = ConsumerBench()
    member = bench.join(protocols=(("custom", subscription(("orders",))),)).reply.member_id
    assignment = encode_assignment(0, {"orders": frozenset({0})})[:-4] + b"\0\0\0\1x"
    bench.sync(member, 1, (member, assignment))
    reply = bench.enter("new", "orders")
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert reply.message is not None
    assert "user data" in reply.message
    assert is_classic(bench)
    assert bench.heartbeat(member, 1) is ErrorCode.NONE


def test_a_group_with_malformed_metadata_is_not_upgraded() -> None:
    bench = ConsumerBench()
    member = bench.join(protocols=(("custom", b"\0\0\0\0"),)).reply.member_id
    bench.sync(member, 1)
    reply = bench.enter("new", "orders")
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in (reply.message or "")
    assert bench.heartbeat(member, 1) is ErrorCode.NONE


def test_a_group_of_another_protocol_type_is_not_upgraded() -> None:
    bench = ConsumerBench()
    member = bench.join(protocol_type="connect", protocols=(("sessioned", b"x"),)).reply.member_id
    bench.sync(member, 1)
    reply = bench.enter("new", "orders")
    assert (reply.error, is_classic(bench)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert "'connect'" in (reply.message or "")


def test_a_classic_group_that_is_too_large_for_a_consumer_group_is_not_upgraded() -> None:
    bench = with_policy(MigrationPolicy.BIDIRECTIONAL, members_max=1)
    classic_group(bench, None, None)
    assert bench.enter("new", "orders").error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_the_policy_decides_whether_a_group_is_upgraded(policy: MigrationPolicy) -> None:
    bench = with_policy(policy)
    classic_group(bench, None)
    expected = ErrorCode.NONE if policy.upgrades else ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.enter("new", "orders").error is expected
    assert is_classic(bench) != policy.upgrades


def test_clients_that_wait_in_the_classic_group_are_asked_to_join_again() -> None:
    bench = ConsumerBench(initial_rebalance_delay_ms=3_000)
    waiting = bench.join(protocols=(("range", subscription(("orders",))),))
    assert waiting.is_parked
    assert bench.enter("new", "orders").error is ErrorCode.NONE
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_without_an_assignment_keep_what_they_said_they_own_when_the_group_is_upgraded() -> None:
    """The assignments of the classic group are forgotten when its rebalance begins again before the leader's sync."""
    bench = ConsumerBench()
    group = classic_group(bench, None, None)
    owners = list(group.clients)
    third = group.start(True)
    for client in (third, third, third, *owners, *owners):
        group.step(client)
    assert bench.state == "CompletingRebalance"
    bench.join(protocols=(("cooperative-sticky", subscription(("orders", "trades"))),))
    assert {member.assignment for member in bench.group.members.values()} == {b""}
    assert bench.enter("new", "orders", "trades").assignment == {}
    for client in owners:
        held = bench.consumers.assignment_of(client.member_id).assigned
        assert {(bench.topics.name_of(topic_id), n) for topic_id, rows in held.items() for n in rows} == client.owned


def test_partitions_that_a_cooperative_member_has_yet_to_give_up_go_to_nobody_when_the_group_is_upgraded() -> None:
    bench = ConsumerBench({"orders": 4})
    group = MigratingGroup(bench)
    first, second = group.start(True), group.start(True)
    first.topics = second.topics = ("orders",)
    for _ in range(8):
        first.step()
    assert len(first.owned) == 4
    for client in (second, second, second, first, first, first, second):
        client.step()
    assert len(first.owned) == 4, "it has not fetched its assignment"
    consumer = group.start(False)
    consumer.topics = ("orders",)
    for _ in range(3):
        consumer.step()
        assert not consumer.owned & first.owned
    group.check()
    group.settle(20)
    assert group.covered == group.all_partitions


def test_a_refused_heartbeat_leaves_clients_that_wait_in_the_classic_group_alone() -> None:
    bench = ConsumerBench(initial_rebalance_delay_ms=3_000)
    waiting = bench.join(protocols=(("range", subscription(("orders",))),))
    assert bench.enter("new", subscribed_regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert waiting.is_parked
    assert is_classic(bench)
    bench.sleep(3_000)
    assert waiting.error is ErrorCode.NONE


# members with the classic protocol


def mixed() -> tuple[ConsumerBench, MigratingGroup, Client, Client]:
    bench = ConsumerBench()
    group = classic_group(bench, None)
    classic, consumer = group.clients[0], group.start(False)
    group.settle()
    return bench, group, classic, consumer


def test_a_classic_member_has_its_epoch_as_generation_and_no_leader() -> None:
    bench, _, classic, _ = mixed()
    reply = bench.join(classic.member_id, protocols=(("roundrobin", subscription(("orders",))),)).reply
    assert (reply.error, reply.protocol, reply.leader, reply.members) == (ErrorCode.NONE, "roundrobin", "", ())
    assert reply.generation == bench.consumers.assignment_of(classic.member_id).epoch


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [
        ((("other", subscription(("orders",))),), "consumer"),
        ((("cooperative-sticky", b"\0"),), "consumer"),
        ((), "consumer"),
        ((("cooperative-sticky", subscription(("orders",))),), "connect"),
    ],
    ids=["not common", "malformed", "none", "other type"],
)
def test_a_classic_client_with_unsuitable_protocols_may_not_join(
    protocols: tuple[tuple[str, bytes], ...], protocol_type: str
) -> None:
    bench, _, _, _ = mixed()
    asked = bench.join(protocols=protocols, protocol_type=protocol_type)
    assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_client_with_an_unknown_member_or_generation_gets_the_error_of_the_classic_protocol() -> None:
    bench, _, classic, consumer = mixed()
    assert bench.heartbeat("nobody", classic.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(consumer.member_id, consumer.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(classic.member_id, classic.epoch + 1) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(classic.member_id, classic.epoch, "nothing") is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(classic.member_id, classic.epoch - 1).error is ErrorCode.ILLEGAL_GENERATION
    wrong = bench.sync(classic.member_id, classic.epoch, protocol="other", protocol_type="consumer")
    assert wrong.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.leave(consumer.member_id, "nobody") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_a_full_consumer_group_lets_no_classic_client_join() -> None:
    bench = with_policy(MigrationPolicy.BIDIRECTIONAL, members_max=1)
    bench.enter("only", "orders")
    asked = bench.join(protocols=(("range", subscription(("orders",))),))
    assert asked.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_classic_member_that_does_not_join_again_in_time_is_removed() -> None:
    bench, _, classic, _ = mixed()
    bench.enter("third", "orders", "trades")
    for _ in range(29):
        assert bench.heartbeat(classic.member_id, classic.epoch) is ErrorCode.REBALANCE_IN_PROGRESS
        bench.sleep(1_000)
    assert classic.member_id in bench.consumers.members
    bench.sleep(1_000)
    assert classic.member_id not in bench.consumers.members


def test_a_classic_member_that_does_not_fetch_its_assignment_in_time_is_removed() -> None:
    bench, _, classic, _ = mixed()
    reply = bench.join(classic.member_id, protocols=(("roundrobin", subscription(("orders",))),)).reply
    for _ in range(29):
        bench.heartbeat(reply.member_id, reply.generation)
        bench.sleep(1_000)
    assert classic.member_id in bench.consumers.members
    bench.sleep(1_000)
    assert classic.member_id not in bench.consumers.members


def test_a_classic_member_keeps_its_own_session_timeout_also_after_the_coordinator_moved() -> None:
    bench, _, classic, _ = mixed()
    bench.move()
    bench.sleep(9_999)
    assert classic.member_id in bench.consumers.members
    bench.sleep(1)
    assert classic.member_id not in bench.consumers.members


def test_classic_members_that_leave_are_removed_in_one_write() -> None:
    bench = ConsumerBench()
    group = classic_group(bench, None, "i1")
    group.start(False)
    group.settle()
    dynamic, static = group.clients[0], group.clients[1]
    epoch = bench.consumers.epoch
    assert bench.leave(dynamic.member_id, dynamic.member_id, Leaver("", "i1")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert bench.consumers.epoch == epoch + 1
    assert not {dynamic.member_id, static.member_id} & set(bench.consumers.members)


# downgrade


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_the_policy_decides_whether_a_group_is_downgraded(policy: MigrationPolicy) -> None:
    settings = [ConsumerGroupSettings()]
    bench = ConsumerBench(settings_of=lambda group: settings[0])
    group = classic_group(bench, None)
    consumer = group.start(False)
    group.settle()
    settings[0] = ConsumerGroupSettings(migration_policy=policy)
    group.stop(consumer)
    assert is_classic(bench) == policy.downgrades
    group.settle()
    assert group.covered == group.all_partitions


def test_a_group_whose_last_consumer_member_expires_is_downgraded() -> None:
    bench, group, classic, consumer = mixed()
    group.clients.remove(consumer)
    group.settle(60)
    assert is_classic(bench)
    assert classic.owned == group.all_partitions


def test_a_group_is_downgraded_although_the_metadata_of_its_common_protocol_are_malformed() -> None:
    bench = ConsumerBench()
    bench.enter("new", "orders")
    member = bench.join(protocols=(("own", subscription(("orders",))), ("common", b"\0"))).reply.member_id
    bench.join(protocols=(("common", subscription(("orders",))),))
    bench.beat("new", -1)
    assert is_classic(bench)
    assert (bench.group.protocol, member in bench.group.members) == ("common", True)


def test_a_group_without_classic_members_is_not_downgraded() -> None:
    bench = ConsumerBench()
    bench.enter("one", "orders")
    bench.enter("two", "orders")
    bench.beat("one", -1)
    bench.beat("two", -1)
    assert not is_classic(bench)


def test_a_downgraded_group_rebalances_although_its_coordinator_ends_before_it_could_begin_that() -> None:
    bench, group, classic, consumer = mixed()
    bench.commits_at_once = False
    bench.ask_heartbeat(consumer.member_id, -1)
    group.clients.remove(consumer)
    assert is_classic(bench)
    bench.move()
    bench.commits_at_once = True
    bench.commit()
    assert bench.state == "PreparingRebalance"
    group.settle()
    assert classic.owned == group.all_partitions


def test_a_downgrade_that_is_not_written_leaves_the_consumer_group_as_it_was() -> None:
    bench, _, classic, consumer = mixed()
    before = bench.consumers
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.beat(consumer.member_id, -1).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuses_appends = None
    assert bench.consumers == before
    assert bench.heartbeat(classic.member_id, classic.epoch) is ErrorCode.NONE


def test_a_static_classic_member_that_replaces_the_last_consumer_member_with_other_topics_causes_a_rebalance() -> None:
    """KAFKA-20273."""
    bench = ConsumerBench()
    group = classic_group(bench, "i1", "i2")
    replace(group, group.clients[1], is_classic=False)
    group.stop(group.clients[1])
    new = group.start(True, "i2")
    new.topics = ("orders",)
    group.settle()
    assert is_classic(bench)
    assert group.covered == group.all_partitions
    assert all(topic == "orders" for topic, _ in new.owned)


# lists


@pytest.mark.parametrize("to_classic", [True, False])
def test_a_list_has_a_group_once_while_its_migration_is_not_committed(to_classic: bool) -> None:
    bench = ConsumerBench()
    group = classic_group(bench, None)
    if to_classic:
        group.start(False)
        group.settle()
    bench.commits_at_once = False
    bench.commit_offset(5)
    bench.stage(5, topic="trades")
    asked = bench.ask(ListRequest())
    listed_at = bench.machine.end_offset
    if to_classic:
        bench.ask_heartbeat(group.clients[1].member_id, -1)
    else:
        bench.ask_heartbeat("new", 0, rebalance_timeout_ms=1, subscribed_names=("orders",), owned={})
    assert is_classic(bench) == to_classic
    bench.machine.advance(listed_at)
    for end, after in bench.waiting:
        if end <= listed_at:
            bench.take(bench.machine.stored(after, bench.now))
    assert [(row.group, row.group_type) for row in asked.reply.groups] == [
        (GROUP, CONSUMER_TYPE if to_classic else CLASSIC_TYPE)
    ]
