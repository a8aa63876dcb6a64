"""`kraft groups` on the types of groups: classic, consumer (KIP-848), and types that it cannot describe."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.group.requests import ListedGroup
from kraft.client import KafkaError
from kraft.client.admin import Admin, GroupDescription, GroupMember
from kraft.client.connections import Negotiated, VersionMismatch
from kraft.deploy.cli.groups.descriptions import member_table, text_of
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.stages.admin_client import Stage, play
from tests.stages.clients_in_world import Stage as FaultyStage
from tests.stages.clients_in_world import run

MEMBER = GroupMember("m-1", None, "me", "/h", (("t", 0),), epoch=4, target=(("t", 0), ("t", 1)))
CONSUMER = GroupDescription("new", "Reconciling", "Consumer", "consumer", "uniform", 1, (MEMBER,), 5, 6)


def test_a_consumer_group_is_shown_with_its_epochs_and_targets() -> None:
    text = text_of(CONSUMER, [])
    assert "type Consumer" in text
    assert "epoch 5  assignment epoch 6" in text
    columns, rows = member_table(CONSUMER)
    assert dict(zip(columns, rows[0], strict=True)) == {
        "member": "m-1",
        "instance": None,
        "client_id": "me",
        "host": "/h",
        "partitions": 1,
        "assignment": ["t-0"],
        "epoch": 4,
        "target": ["t-0", "t-1"],
    }


def test_a_classic_group_is_shown_without_epochs() -> None:
    member = GroupMember("m-1", None, "me", "/h", (("t", 0),))
    classic = GroupDescription("old", "Stable", "Classic", "consumer", "range", 1, (member,))
    assert "epoch" not in text_of(classic, [])
    assert "epoch" not in member_table(classic)[0]


def test_a_group_of_another_type_is_reported_as_such_and_not_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's brokers answer DescribeGroups about a streams group with GROUP_ID_NOT_FOUND, and list the group."""

    async def test(stage: FaultyStage) -> None:
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        await stage.create_topic("orders")
        async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
            await admin.groups.alter_offsets("queue", {("orders", 0): 0})
            stage.fault(api_key=ApiKey.DESCRIBE_GROUPS, action=ReplyAction.ERROR, error=missing)
            with pytest.raises(KafkaError, match="group queue is a streams group, which this client cannot describe"):
                await admin.groups.describe("queue")
            with pytest.raises(KafkaError) as refused:
                await admin.groups.describe("missing")
            assert refused.value.code is missing

    monkeypatch.setattr(ListedGroup.__new__, "__defaults__", ("streams",))
    run(test, offsets_topic_replication_factor="1", offsets_topic_num_partitions="2")


def test_a_type_filter_that_a_broker_does_not_support_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft.client import connections

    negotiate = connections._negotiate

    async def limited(*arguments: Any) -> Negotiated:
        found = await negotiate(*arguments)
        return Negotiated({**found.ranges, int(ApiKey.LIST_GROUPS): (0, 4)}, found.features)

    async def work(stage: Stage) -> None:
        assert await stage.admin.groups.list(states=["Stable"]) == ()
        with pytest.raises(VersionMismatch, match="needs version 5, the broker supports versions up to 4"):
            await stage.admin.groups.list(types=["share"])

    monkeypatch.setattr(connections, "_negotiate", limited)
    play(work)
