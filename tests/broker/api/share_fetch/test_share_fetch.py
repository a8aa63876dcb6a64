"""ShareFetch and ShareAcknowledge on whole brokers: acquiring, acknowledging, locks, sessions, and changes of leaders
(KIP-932)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from kraft.broker.share_coordinator.requests import StateReply, WriteStateRequest
from kraft.broker.share_partition.states import AcknowledgementBatch
from kraft.image import ConfigResourceType
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.share_fetch.share_member import ACCEPT, REJECT, RELEASE, RENEW, Share, ShareMember
from tests.stages.admin_requests import altered

Shared = Callable[[Share, ShareMember], Awaitable[None]]
LOCK_MS = 30_000
WRITES = 400
SET = 0
"""Operation code of a request that changes a setting."""
BATCH_BYTES = 100
"""More than the size of a batch with one record, and less than that of two batches."""


@pytest.fixture
def shared(run: Any) -> Callable[..., None]:
    """Run a test with a share group that begins at offset 0, and one member."""

    def run_shared(test: Shared, *, begins: bool = True, **settings: str) -> None:
        async def main(world: Any, cluster: Any, _: Any) -> None:
            share = Share(world, cluster)
            if begins:
                await share.begin()
            await test(share, ShareMember(share))

        run(main, **settings)

    return run_shared


def test_a_member_gets_records_and_another_member_gets_the_next_ones(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a", "b")
        await share.append("c")
        found = await member.acquire(max_records=2)
        assert (found.acquired, found.values) == ([(0, 1, 1)], {0: "a", 1: "b"})
        other = ShareMember(share, "m2")
        assert (await other.acquire()).values == {2: "c"}
        assert (await other.fetch()).acquired == []

    shared(test)


def test_an_acknowledged_record_is_not_delivered_again_after_the_leader_has_died(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a", "b", "c")
        await member.acquire()
        assert await member.acknowledge((0, 0, ACCEPT), (1, 1, REJECT)) is ErrorCode.NONE
        share.world.kill(share.cluster.name(share.leader))
        await share.world.sleep_ms(3_000)
        other = ShareMember(share, "m2")
        assert (await other.acquire()).acquired == [(2, 2, 1)]

    shared(test)


def test_acknowledgements_of_two_members_at_once_are_both_kept_after_the_leader_has_died(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        for value in ("a", "b", "c"):
            await share.append(value)
        other = ShareMember(share, "m2")
        assert (await member.acquire(max_records=1)).acquired == [(0, 0, 1)]
        assert (await other.acquire(max_records=1)).acquired == [(1, 1, 1)]
        errors: list[ErrorCode] = []
        share.led.acknowledge("m1", [AcknowledgementBatch(0, 0, (ACCEPT,))], errors.append)
        share.led.acknowledge("m2", [AcknowledgementBatch(1, 1, (ACCEPT,))], errors.append)
        await share.world.sleep_ms(1_000)
        assert errors == [ErrorCode.NONE, ErrorCode.NONE]
        share.world.kill(share.cluster.name(share.leader))
        await share.world.sleep_ms(3_000)
        assert (await ShareMember(share, "m3").acquire()).acquired == [(2, 2, 1)]

    shared(test)


def test_a_released_record_is_delivered_again_with_a_higher_count(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a", "b")
        await member.acquire()
        found = await member.acquire((0, 0, RELEASE), (1, 1, ACCEPT))
        assert (found.acknowledge_error, found.acquired, found.values) == (ErrorCode.NONE, [(0, 0, 2)], {0: "a"})

    shared(test)


def test_a_parked_fetch_is_answered_when_a_record_is_appended(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        began_ms = share.world.now_ns // 1_000_000
        found: list[Any] = []

        async def wait() -> None:
            found.append(await member.fetch(wait_ms=20_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await share.world.sleep_ms(500)
            await share.append("b")
        assert found[0].values == {1: "b"}
        assert share.world.now_ns // 1_000_000 - began_ms < 2_000

    shared(test)


def test_a_parked_fetch_is_answered_when_a_lock_expires(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        other = ShareMember(share, "m2")
        found = await other.fetch(wait_ms=2 * LOCK_MS)
        assert found.acquired == [(0, 0, 2)]
        assert await member.acknowledge((0, 0, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
        assert await other.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE

    shared(test)


def test_a_parked_fetch_is_answered_empty_at_its_deadline(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        began_ms = share.world.now_ns // 1_000_000
        assert (await member.fetch(wait_ms=1_000)).acquired == []
        assert 1_000 <= share.world.now_ns // 1_000_000 - began_ms < 1_200

    shared(test)


def test_a_fetch_waits_until_its_minimum_of_bytes_can_be_acquired(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        began_ms = share.world.now_ns // 1_000_000
        found: list[Any] = []

        async def wait() -> None:
            found.append(await member.fetch(wait_ms=20_000, min_bytes=BATCH_BYTES + 1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await share.world.sleep_ms(500)
            assert found == []
            assert share.led.state.runs == ()
            await share.append("b")
        assert found[0].values == {0: "a", 1: "b"}
        assert share.world.now_ns // 1_000_000 - began_ms < 2_000

    shared(test)


def test_a_fetch_gets_fewer_bytes_than_its_minimum_at_its_deadline(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        began_ms = share.world.now_ns // 1_000_000
        assert (await member.fetch(wait_ms=1_000, min_bytes=BATCH_BYTES + 1)).values == {0: "a"}
        assert 1_000 <= share.world.now_ns // 1_000_000 - began_ms < 1_500

    shared(test)


def test_a_fetch_with_a_minimum_does_not_wait_for_records_that_are_no_longer_in_the_log(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await member.fetch(wait_ms=500)
        for value in ("a", "b", "c"):
            await share.append(value)
        share.partition.log.advance_log_start(1)
        began_ms = share.world.now_ns // 1_000_000
        assert (await member.fetch(wait_ms=20_000, min_bytes=BATCH_BYTES)).values == {1: "b", 2: "c"}
        assert share.world.now_ns // 1_000_000 - began_ms < 1_000

    shared(test)


def test_a_fetch_with_a_minimum_of_0_bytes_does_not_wait_for_records(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        began_ms = share.world.now_ns // 1_000_000
        assert (await member.fetch(wait_ms=20_000, min_bytes=0)).acquired == []
        assert share.world.now_ns // 1_000_000 - began_ms < 1_000

    shared(test)


def test_a_partition_with_an_error_ends_the_wait_for_bytes(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        other = next(one for one in share.cluster.broker_ids if one != share.leader)
        member.client = await share.cluster.connect(other, member.seam)
        found = await member.fetch(wait_ms=20_000, min_bytes=BATCH_BYTES)
        assert found.error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    shared(test)


def test_the_expiry_of_a_lock_is_persisted_although_its_first_write_fails(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        persister = share.persister
        ask, failures = persister.ask, [2]

        def fail_first(request: Any, ticket: Any) -> None:
            if isinstance(request, WriteStateRequest) and failures[0]:
                failures[0] -= 1
                ticket(request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                ask(request, ticket)

        persister.ask = fail_first
        await share.world.sleep_ms(LOCK_MS + 10_000)
        assert failures == [0]
        share.world.kill(share.cluster.name(share.leader))
        await share.world.sleep_ms(3_000)
        assert (await ShareMember(share, "m2").acquire()).acquired == [(0, 0, 2)]

    shared(test)


def test_failed_writes_of_expired_locks_are_repeated_as_one_write(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        persister = share.persister
        ask, sent, is_failing = persister.ask, [], [True]

        def fail_for_a_while(request: Any, ticket: Any) -> None:
            if isinstance(request, WriteStateRequest):
                sent.append(request.batches)
                if is_failing[0]:
                    ticket(request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                    return
            ask(request, ticket)

        persister.ask = fail_for_a_while
        await share.world.sleep_ms(LOCK_MS + 100)
        await share.append("b")
        assert (await member.acquire()).acquired == [(0, 0, 2), (1, 1, 1)]
        await share.world.sleep_ms(LOCK_MS + 100)
        is_failing[0] = False
        sent.clear()
        await share.world.sleep_ms(40_000)
        assert sent == [((0, 0, 0, 2), (1, 1, 0, 1))]

    shared(test)


def test_a_request_that_is_handled_after_its_connection_has_ended_opens_no_session(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        node: Any = share.cluster.node(share.leader)
        broker: Any = node.broker.broker
        handlers, late = broker.dispatcher._handlers, []
        handle = handlers[ApiKey.SHARE_FETCH]

        def keep(request: Any, session: Any) -> None:
            """Keep the request, as the dispatcher does with one that is long."""
            request.body = memoryview(bytearray(request.body))
            late.append((request, session))

        handlers[ApiKey.SHARE_FETCH] = keep
        await member.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.fetch)
            await share.world.sleep_ms(100)
            share.world.kill("member-m1")
            await share.world.sleep_ms(100)
            nursery.cancel_scope.cancel()
        ((request, session),) = late
        assert request.connection.is_closed
        handle(request, session)
        assert len(broker.shares.sessions) == 0

    shared(test)


def test_a_share_partition_of_a_deleted_topic_is_forgotten_while_its_members_stay(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        node: Any = share.cluster.node(share.leader)
        broker: Any = node.broker.broker
        assert len(broker.shares) == 1
        client = await share.cluster.connect(share.cluster.broker_ids[0], share.world.node("admin"))
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders", "topic_id": None}], timeout=10_000)
        await share.world.sleep_ms(1_000)
        assert (len(broker.shares), len(broker.shares.sessions)) == (0, 1)

    shared(test)


def test_a_renewed_lock_lasts_longer(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        await share.world.sleep_ms(20_000)
        assert await member.acknowledge((0, 0, RENEW), is_renew_ack=True) is ErrorCode.NONE
        await share.world.sleep_ms(20_000)
        assert await member.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE
        assert share.led.state.start_offset == 1

    shared(test)


def test_a_renewal_needs_a_request_that_says_so_and_fetches_nothing(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        assert await member.acknowledge((0, 0, RENEW)) is ErrorCode.INVALID_REQUEST
        refused = await member.respond((0, 0, RENEW), is_renew_ack=True)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
        found = await member.fetch((0, 0, RENEW), is_renew_ack=True, **nothing)
        assert (found.acknowledge_error, found.acquired) == (ErrorCode.NONE, [])

    shared(test)


async def lower_limit(share: Share, member: ShareMember, deliveries: int) -> None:
    """Set the group's limit of deliveries."""
    client = await share.cluster.connect(share.leader, member.seam)
    resource = altered(ConfigResourceType.GROUP, "g", ("share.delivery.count.limit", SET, str(deliveries)))
    changed = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert changed.responses[0].error_code == ErrorCode.NONE


def test_an_expired_lock_archives_a_record_that_has_reached_a_lowered_limit(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        assert (await member.acquire((0, 0, RELEASE))).acquired == [(0, 0, 2)]
        await lower_limit(share, member, 2)
        await share.world.sleep_ms(LOCK_MS + 1_000)
        assert share.led.state.start_offset == 1
        assert (await ShareMember(share, "m2").fetch(wait_ms=1_000)).acquired == []

    shared(test)


def test_any_number_of_waiting_writes_may_be_answered_at_once(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append(*map(str, range(WRITES)))
        await member.acquire()
        persister = share.persister
        held: list[Any] = []
        persister.ask = lambda request, ticket: held.append(ticket)
        errors: list[ErrorCode] = []
        for offset in range(WRITES):
            share.led.acknowledge("m1", [AcknowledgementBatch(offset, offset, (ACCEPT,))], errors.append)
        persister.ask = lambda request, ticket: ticket(StateReply(ErrorCode.NONE))
        held[0](StateReply(ErrorCode.NONE))
        assert errors == [ErrorCode.NONE] * WRITES
        assert share.led.state.start_offset == WRITES

    shared(test)


def test_a_final_request_gives_the_records_back_at_once(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a", "b")
        await member.acquire()
        closed = await member.respond((0, 0, ACCEPT), share_session_epoch=-1)
        assert closed.error_code == ErrorCode.NONE
        other = ShareMember(share, "m2")
        assert (await other.acquire()).acquired == [(1, 1, 2)]
        assert await member.acknowledge((1, 1, ACCEPT)) is ErrorCode.SHARE_SESSION_NOT_FOUND

    shared(test)


def test_a_final_acknowledgement_ends_the_session(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a", "b")
        await member.acquire()
        assert await member.acknowledge((0, 0, ACCEPT), share_session_epoch=-1) is ErrorCode.NONE
        other = ShareMember(share, "m2")
        assert (await other.acquire()).acquired == [(1, 1, 2)]

    shared(test)


def test_a_lost_connection_gives_the_records_back(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        share.world.kill("member-m1")
        other = ShareMember(share, "m2")
        assert (await other.acquire()).acquired == [(0, 0, 2)]

    shared(test)


def test_a_record_whose_members_all_lose_their_connections_is_archived_after_its_last_delivery(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        counts = []
        for number in range(3):
            crashing = ShareMember(share, f"crashing-{number}")
            ((_, _, count),) = (await crashing.acquire()).acquired
            counts.append(count)
            share.world.kill(f"member-{crashing.name}")
        assert counts == [1, 2, 3]
        await share.append("b")
        assert (await member.acquire()).values == {1: "b"}
        assert share.led.state.start_offset == 1

    shared(test, group_share_delivery_count_limit="3")


def test_the_delivery_count_of_a_record_whose_session_ended_survives_the_death_of_the_leader(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        assert await member.acknowledge(share_session_epoch=-1, named=False) is ErrorCode.NONE
        other = ShareMember(share, "m2")
        assert (await other.acquire()).acquired == [(0, 0, 2)]
        assert await other.acknowledge(share_session_epoch=-1, named=False) is ErrorCode.NONE
        while share.led is not None:
            await share.world.sleep_ms(5)
        share.world.kill(share.cluster.name(share.leader))
        await share.world.sleep_ms(3_000)
        assert (await ShareMember(share, "m3").acquire()).acquired == [(0, 0, 3)]

    shared(test)


def test_a_session_that_ends_archives_a_record_that_has_reached_a_lowered_limit(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        assert (await member.acquire((0, 0, RELEASE))).acquired == [(0, 0, 2)]
        await lower_limit(share, member, 2)
        assert await member.acknowledge(share_session_epoch=-1, named=False) is ErrorCode.NONE
        await share.append("b")
        assert (await ShareMember(share, "m2").acquire()).values == {1: "b"}

    shared(test)


def test_a_fetch_whose_session_ends_while_its_acknowledgements_are_persisted_acquires_nothing(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await share.append("b")
        await member.acquire(max_records=1)
        coordinator = share.states.broker
        assert coordinator != share.leader
        share.world.kill(share.cluster.name(coordinator))
        found: list[Any] = []

        async def fetch() -> None:
            found.append(await member.fetch((0, 0, ACCEPT), wait_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await share.world.sleep_ms(50)
            assert share.led.state.runs[0].value.write
            share.end_session("m1")
        assert (found[0].acknowledge_error, found[0].acquired) == (ErrorCode.NONE, [])
        assert (await ShareMember(share, "m2").acquire()).acquired == [(1, 1, 1)]

    shared(test)


def test_epochs_of_share_sessions_are_checked(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        assert await member.acknowledge(share_session_epoch=0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await member.acknowledge(share_session_epoch=1) is ErrorCode.SHARE_SESSION_NOT_FOUND
        refused = await member.respond((0, 0, ACCEPT), share_session_epoch=0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        member.epoch = 0
        await member.fetch()
        refused = await member.respond(share_session_epoch=5)
        assert refused.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert (await member.respond()).error_code == ErrorCode.NONE

    shared(test)


def test_a_broker_keeps_a_limited_number_of_share_sessions(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await member.fetch()
        refused = await ShareMember(share, "m2").respond()
        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        await member.respond(share_session_epoch=-1)
        assert (await ShareMember(share, "m3").respond()).error_code == ErrorCode.NONE

    shared(test, group_share_max_share_sessions="1")


def test_a_session_fetches_partitions_that_the_request_does_not_name_again(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await member.fetch()
        await share.append("a")
        assert (await member.acquire(named=False)).values == {0: "a"}
        forgotten = [{"topic_id": share.states.topic_id, "partitions": [0]}]
        await share.append("b")
        assert (await member.fetch(named=False, forgotten_topics_data=forgotten)).acquired == []

    shared(test)


def test_a_strict_limit_delivers_part_of_a_log_batch(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a", "b", "c")
        found = await member.acquire(max_records=2, share_acquire_mode=1)
        assert found.values == {0: "a", 1: "b"}

    shared(test)


def test_records_of_aborted_transactions_are_not_delivered_to_a_read_committed_group(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        client = await share.cluster.connect(share.cluster.broker_ids[0], share.world.node("admin"))
        await client.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {
                    "resource_type": 32,
                    "resource_name": "g",
                    "configs": [{"name": "share.isolation.level", "config_operation": 0, "value": "read_committed"}],
                }
            ],
        )
        await share.append("aborted", producer_id=7, transactional=True)
        await share.append("open", producer_id=8, transactional=True)
        await share.end_transaction(7, commit=False)
        assert (await member.fetch(wait_ms=500)).acquired == []
        await share.end_transaction(8, commit=True)
        await share.append("plain")
        found = await member.acquire()
        assert found.values == {1: "open", 4: "plain"}
        assert found.acquired == [(1, 1, 1), (4, 4, 1)]
        assert await member.acknowledge((1, 1, ACCEPT), (4, 4, ACCEPT)) is ErrorCode.NONE
        assert share.led.state.start_offset == 5

    shared(test)


def test_a_share_partition_that_is_not_initialized_has_no_records(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        assert (await member.fetch(wait_ms=1_000)).acquired == []
        await share.begin()
        assert (await member.acquire()).values == {0: "a"}

    shared(test, begins=False)


@pytest.mark.parametrize(
    ("policy", "first"), [("latest", 2), ("earliest", 0), ("by_duration:PT1H", 0), ("by_duration:PT0S", 2)]
)
def test_a_group_begins_where_its_offset_reset_says(shared: Any, policy: str, first: int) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        client = await share.cluster.connect(share.cluster.broker_ids[0], share.world.node("admin"))
        entry = {"name": "share.auto.offset.reset", "config_operation": 0, "value": policy}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [entry]}
        await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        await share.append("old")
        await share.append("older")
        await share.begin(-1)
        old = await member.fetch(wait_ms=500)
        await share.append("new")
        assert min({**old.values, **(await member.acquire()).values}) == first

    shared(test, begins=False)


def test_a_group_that_begins_at_the_end_gets_what_is_appended_while_it_has_no_member(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("old")
        await share.begin(-1)
        assert (await member.fetch(wait_ms=500)).acquired == []
        await member.respond(share_session_epoch=-1)
        await share.append("new")
        assert (await ShareMember(share, "m2").fetch(wait_ms=2_000)).values == {1: "new"}

    shared(test, begins=False)


def test_a_group_that_begins_at_the_end_keeps_its_place_when_the_leader_dies(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("old")
        await share.begin(-1)
        assert (await member.fetch(wait_ms=500)).acquired == []
        await share.append("new")
        share.world.kill(share.cluster.name(share.leader))
        await share.world.sleep_ms(3_000)
        assert (await ShareMember(share, "m2").acquire()).values == {1: "new"}

    shared(test, begins=False)


def test_a_partition_of_another_leader_names_that_leader(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        other = next(one for one in share.cluster.broker_ids if one != share.leader)
        member.client = await share.cluster.connect(other, member.seam)
        answered = await member.respond()
        row = answered.responses[0].partitions[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader.leader_id == share.leader
        assert [one.node_id for one in answered.node_endpoints] == [share.leader]

    shared(test)


def test_acknowledgements_survive_the_death_of_the_share_coordinator(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        coordinator = share.states.broker
        assert coordinator != share.leader, "choose a seed in which two brokers have the two roles"
        share.world.kill(share.cluster.name(coordinator))
        assert await member.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE
        assert share.led.state.start_offset == 1

    shared(test)


def test_a_deposed_leader_is_fenced_by_the_read_of_the_new_one(shared: Any) -> None:
    async def test(share: Share, member: ShareMember) -> None:
        await share.append("a")
        await member.acquire()
        led = share.led
        assert (await share.states.read(led.leader_epoch + 1)).error_code == ErrorCode.NONE
        assert await member.acknowledge((0, 0, ACCEPT)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert share.led is not led

    shared(test)


def test_the_late_end_of_a_session_does_not_close_the_next_session_of_the_member(shared: Any) -> None:
    """A client closes its connection when the answer to its last request takes too long, and subscribes again."""

    async def test(share: Share, old: ShareMember) -> None:
        await share.append("a")
        await old.acquire()
        persister = share.persister
        ask, held = persister.ask, []
        persister.ask = lambda request, ticket: held.append((request, ticket))
        async with trio.open_nursery() as nursery:
            last = partial(old.send, ApiKey.SHARE_ACKNOWLEDGE, [(0, 0, ACCEPT)], share_session_epoch=-1)
            nursery.start_soon(last)
            await share.world.sleep_ms(100)
            persister.ask = ask
            new = ShareMember(share)
            await share.append("b")
            assert (await new.acquire()).values == {1: "b"}
            for request, ticket in held:
                ask(request, ticket)
            await share.world.sleep_ms(200)
            assert await new.acknowledge((1, 1, ACCEPT)) is ErrorCode.NONE
            nursery.cancel_scope.cancel()
        assert len(held) == 1

    shared(test)
