"""Administrators describe, alter and delete the start offsets of share groups (KIP-932, KIP-1226)."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.api.groups.share_group_offsets import lag_of
from kraft.broker.share_coordinator.records import ShareSnapshot
from kraft.broker.share_coordinator.requests import StateReply
from kraft.broker.share_group.requests import ShareInitializedRequest, StatesDeletedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.share_fetch.share_member import ACCEPT, Share, ShareMember
from tests.broker.api.share_fetch.test_share_groups import GroupClient

TOPIC = "orders"


async def offsets(client: GroupClient, topics: Any = None) -> dict[int, tuple[int, int, int]]:
    """Return (start offset, lag, error) of each partition."""
    asked = [{"group_id": "g", "topics": topics}]
    answered = await client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked)
    (group,) = answered.groups
    assert group.error_code == ErrorCode.NONE, group.error_message
    return {
        row.partition_index: (row.start_offset, row.lag, row.error_code)
        for topic in group.topics
        for row in topic.partitions
    }


async def alter(client: GroupClient, **starts: int) -> Any:
    rows = [{"partition_index": int(name[1:]), "start_offset": offset} for name, offset in starts.items()]
    return await client.ask(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": TOPIC, "partitions": rows}]
    )


async def begun(run_world: tuple[Any, Any]) -> tuple[Share, GroupClient, ShareMember]:
    """Return a share group with one member, which has acquired ten records and accepted three of them."""
    world, cluster = run_world
    share = Share(world, cluster)
    client = GroupClient(share)
    await client.join("m1")
    member = ShareMember(share, "m1")
    await member.fetch(wait_ms=500)
    await share.append(*"abcdefghij")
    await member.acquire()
    assert await member.acknowledge((0, 1, ACCEPT), (5, 5, ACCEPT)) is ErrorCode.NONE
    return share, client, member


async def leave(client: GroupClient, member: ShareMember) -> None:
    await member.respond(share_session_epoch=-1)
    await client.beat("m1", -1)


def test_the_offsets_of_a_group_are_described_with_their_lag(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        _, client, _ = await begun((world, cluster))
        assert await offsets(client) == {0: (2, 7, 0), 1: (-1, -1, 0)}
        asked = [{"topic_name": TOPIC, "partitions": [0, 9]}]
        unknown = (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await offsets(client, asked) == {0: (2, 7, 0), 9: unknown}

    run(test)


def test_a_partition_that_is_named_twice_is_described_once(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        _, client, _ = await begun((world, cluster))
        asked = [{"group_id": "g", "topics": [{"topic_name": TOPIC, "partitions": [0, 0]}]}]
        answered = await client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked)
        (topic,) = answered.groups[0].topics
        assert [(row.partition_index, row.start_offset) for row in topic.partitions] == [(0, 2)]

    run(test)


def test_the_offsets_of_a_group_with_members_cannot_be_changed(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        _, client, _ = await begun((world, cluster))
        assert (await alter(client, p0=1)).error_code == ErrorCode.NON_EMPTY_GROUP
        refused = await client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": TOPIC}])
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await offsets(client))[0] == (2, 7, 0)

    run(test)


def test_a_group_continues_at_altered_offsets(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        share, client, member = await begun((world, cluster))
        await leave(client, member)
        answered = await alter(client, p0=1, p7=3)
        assert answered.error_code == ErrorCode.NONE
        errors = {row.partition_index: row.error_code for row in answered.responses[0].partitions}
        assert errors == {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (await offsets(client))[0] == (1, 9, 0)
        await client.join("m2")
        other = ShareMember(share, "m2")
        assert (await other.acquire()).acquired == [(1, 9, 1)]
        assert await other.acknowledge((1, 9, ACCEPT)) is ErrorCode.NONE

    run(test)


def test_deleted_offsets_are_gone_and_a_group_begins_anew(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        _, client, member = await begun((world, cluster))
        await leave(client, member)
        answered = await client.ask(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            0,
            group_id="g",
            topics=[{"topic_name": TOPIC}, {"topic_name": "unknown"}],
        )
        assert answered.error_code == ErrorCode.NONE
        errors = {row.topic_name: row.error_code for row in answered.responses}
        assert errors == {TOPIC: ErrorCode.NONE, "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await offsets(client) == {}
        assert await client.join("m2") == {0, 1}
        assert (await offsets(client))[0] == (-1, -1, 0)

    run(test)


@pytest.mark.parametrize("last", [ShareInitializedRequest, StatesDeletedRequest])
def test_a_change_of_offsets_whose_last_record_is_not_written_is_answered_with_the_error(run: Any, last: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        _, client, member = await begun((world, cluster))
        await leave(client, member)
        for broker_id in cluster.broker_ids:
            refuse(cluster.node(broker_id).broker.broker.groups, last)
        topics = [{"topic_name": TOPIC}]
        if last is ShareInitializedRequest:
            answered = await alter(client, p0=1)
        else:
            answered = await client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
        assert answered.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


def refuse(coordinators: Any, refused: Any) -> None:
    """Let a broker's group coordinators answer requests of this class as if the log had refused the record."""
    submit = coordinators.submit

    def submit_others(request: Any, ticket: Any) -> None:
        if isinstance(request, refused):
            ticket(request.refused(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            submit(request, ticket)

    coordinators.submit = submit_others


def test_offsets_of_a_topic_that_the_group_does_not_read_cannot_be_deleted(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        _, client, member = await begun((world, cluster))
        await leave(client, member)
        topics = [{"topic_name": TOPIC}, {"topic_name": "others"}]
        answered = await client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
        errors = {row.topic_name: (row.error_code, row.error_message) for row in answered.responses}
        assert errors == {
            TOPIC: (ErrorCode.NONE, None),
            "others": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."),
        }

    run(test, topics=(TOPIC, "others"))


@pytest.mark.parametrize("key", [ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS])
def test_the_offsets_of_an_unknown_group_cannot_be_changed(run: Any, key: ApiKey) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        client = GroupClient(Share(world, cluster))
        row = {"topic_name": TOPIC}
        if key is ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            row["partitions"] = [{"partition_index": 0, "start_offset": 1}]  # type: ignore[assignment]
        answered = await client.ask(key, 0, group_id="g", topics=[row])
        assert answered.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


@pytest.mark.parametrize(
    ("start", "complete", "end", "lag"),
    [(2, 3, 10, 5), (-1, 0, 10, -1), (2, -1, 10, -1), (2, 0, None, -1), (9, 0, 5, 0)],
)
def test_the_lag_counts_records_that_are_not_complete(start: int, complete: int, end: int | None, lag: int) -> None:
    state = ShareSnapshot(0, 0, 0, start, complete, 0, 0)
    assert lag_of(StateReply(ErrorCode.NONE, state), end) == lag
    assert lag_of(StateReply(ErrorCode.NONE, None), end) == -1
