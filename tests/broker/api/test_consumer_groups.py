"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the feature, permissions, and the translation of each field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.consumer_group.requests import (
    AssignedTopic,
    ConsumerDescribeReply,
    ConsumerDescribeRequest,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    DescribedConsumer,
)
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, Operation
from kraft.image import MetadataImage, events
from kraft.image.image import GROUP_FEATURE
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.images import ORDERS, image_of, orders, three_brokers

HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
OTHER = UUID(int=7)


class RecordingGroups:
    """Stands in for GroupCoordinators: records requests, and gives the replies of the test."""

    def __init__(self, *replies: Any) -> None:
        self.asked: list[Any] = []
        self.replies = list(replies)

    def submit(self, request: Any, ticket: Callable[[Any], None]) -> None:
        self.asked.append(request)
        ticket(self.replies.pop(0))


def image(level: int = 1) -> MetadataImage:
    return image_of(*three_brokers(), *orders(), events.FeatureLevel(GROUP_FEATURE, level, None))


def beat(harness: BrokerHarness, version: int = 1, **fields: Any) -> Any:
    given = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 3,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": messages.duration(-1),
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": None,
        **({"subscribed_topic_regex": None} if version >= 1 else {}),
        **fields,
    }
    return harness.ask(HEARTBEAT, version, **given)


def owned(topic_id: UUID, *partitions: int) -> Any:
    row = messages.part_class(messages.request_class(HEARTBEAT), "TopicPartitions")
    return messages.build(row, topic_id=topic_id, partitions=partitions)


OFF: dict[str, Any] = {
    "level": {"image": image(0)},
    "protocols": {"image": image(), "properties": {"group.coordinator.rebalance.protocols": "classic"}},
}


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("how", OFF)
def test_both_apis_get_unsupported_version_while_the_protocol_is_off(how: str, version: int) -> None:
    off = OFF[how]
    denying = Denying((Operation.READ, "g"), (Operation.DESCRIBE, "g"))
    harness = BrokerHarness(off["image"], properties=off.get("properties"), authorizer=denying)
    answer = beat(harness, version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.version" in answer.error_message
    (row,) = harness.ask(DESCRIBE, version, group_ids=["g"], include_authorized_operations=True).groups
    assert (row.error_code, row.authorized_operations) == (
        ErrorCode.UNSUPPORTED_VERSION,
        AUTHORIZED_OPERATIONS_OMITTED,
    )


def test_a_heartbeat_reaches_the_coordinator_with_every_field() -> None:
    groups = RecordingGroups(ConsumerHeartbeatReply(ErrorCode.NONE))
    beat(
        BrokerHarness(image(), groups=groups, authorizer=Denying((Operation.DESCRIBE, "secrets"))),
        instance_id="i",
        rack_id="r",
        rebalance_timeout=messages.duration(60_000),
        subscribed_topic_names=["orders", "users"],
        subscribed_topic_regex="o.*",
        server_assignor="range",
        topic_partitions=[owned(ORDERS, 2, 0), owned(OTHER)],
    )
    (asked,) = groups.asked
    assert asked._replace(may_describe=None) == ConsumerHeartbeatRequest(
        group="g",
        member_id="m",
        epoch=3,
        client_id="test",
        client_host="/192.0.2.7",
        instance_id="i",
        rack="r",
        rebalance_timeout_ms=60_000,
        subscribed_names=("orders", "users"),
        subscribed_regex="o.*",
        server_assignor="range",
        owned={ORDERS: frozenset({0, 2})},
        may_describe=None,
    )
    assert [asked.may_describe(topic) for topic in ("orders", "secrets")] == [True, False]


def test_fields_that_have_not_changed_reach_the_coordinator_as_none() -> None:
    groups = RecordingGroups(*[ConsumerHeartbeatReply(ErrorCode.NONE)] * 2)
    harness = BrokerHarness(image(), groups=groups)
    beat(harness)
    beat(harness, topic_partitions=[], subscribed_topic_names=[])
    nothing, empty = groups.asked
    assert nothing[5:12] == (None,) * 7
    assert (empty.subscribed_names, empty.owned) == ((), {})


def test_version_0_gets_a_new_member_id_only_when_it_joins_without_one() -> None:
    groups = RecordingGroups(*[ConsumerHeartbeatReply(ErrorCode.NONE)] * 5)
    harness = BrokerHarness(image(), groups=groups)
    for version, member_id, epoch in ((0, "", 0), (0, "", 0), (0, "mine", 0), (0, "", 3), (1, "", 0)):
        beat(harness, version, member_id=member_id, member_epoch=epoch)
    first, second, *others = [one.member_id for one in groups.asked]
    assert str(UUID(first)) == first != second
    assert others == ["mine", "", ""]


@pytest.mark.parametrize("version", range(2))
def test_an_assignment_is_sorted_and_an_absent_one_is_null(version: int) -> None:
    replies = (
        ConsumerHeartbeatReply(ErrorCode.NONE, None, "m", 4, 5_000, {ORDERS: frozenset({2, 1}), OTHER: frozenset({0})}),
        ConsumerHeartbeatReply(ErrorCode.NONE, None, "m", 4, 5_000, {}),
        ConsumerHeartbeatReply(ErrorCode.NONE, None, "m", 4, 5_000, None),
        ConsumerHeartbeatReply(ErrorCode.FENCED_MEMBER_EPOCH, "rejoin"),
    )
    harness = BrokerHarness(image(), groups=RecordingGroups(*replies))
    full, empty, absent, fenced = (beat(harness, version) for _ in range(4))
    assert (full.member_id, full.member_epoch, full.heartbeat_interval) == ("m", 4, messages.duration(5_000))
    assert [(row.topic_id, row.partitions) for row in full.assignment.topic_partitions] == [
        (OTHER, (0,)),
        (ORDERS, (1, 2)),
    ]
    assert empty.assignment.topic_partitions == ()
    assert absent.assignment is None
    assert (fenced.error_code, fenced.error_message) == (ErrorCode.FENCED_MEMBER_EPOCH, "rejoin")


def test_a_heartbeat_needs_read_on_the_group_and_describe_on_the_named_topics() -> None:
    cannot_read = BrokerHarness(image(), authorizer=Denying((Operation.READ, "g"), (Operation.DESCRIBE, "users")))
    refused = beat(cannot_read, subscribed_topic_names=["users"])
    assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = RecordingGroups(ConsumerHeartbeatReply(ErrorCode.NONE))
    harness = BrokerHarness(image(), authorizer=Denying((Operation.DESCRIBE, "users")), groups=groups)
    assert beat(harness, subscribed_topic_names=["orders", "users"]).error_code == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    assert beat(harness, subscribed_topic_names=["orders"]).error_code == ErrorCode.NONE
    assert len(groups.asked) == 1


MEMBERS = (
    DescribedConsumer(
        "m1",
        "i1",
        "r",
        3,
        "c",
        "/h",
        ("orders",),
        "o.*",
        (AssignedTopic(ORDERS, "orders", (0, 1)),),
        (AssignedTopic(ORDERS, "orders", (0,)),),
    ),
    DescribedConsumer("m2", None, None, 2, "c", "/h", ("orders",), None, (), (), uses_classic=True),
)
DESCRIBED = ConsumerDescribeReply(ErrorCode.NONE, None, "Reconciling", 4, 3, "range", MEMBERS)


@pytest.mark.parametrize("version", range(2))
def test_a_description_has_every_field_of_group_and_members(version: int) -> None:
    groups = RecordingGroups(DESCRIBED, ConsumerDescribeReply(ErrorCode.GROUP_ID_NOT_FOUND, "Group h not found."))
    harness = BrokerHarness(image(), groups=groups, authorizer=Denying((Operation.DELETE, "g")))
    row, missing = harness.ask(DESCRIBE, version, group_ids=["g", "h"], include_authorized_operations=True).groups
    assert groups.asked == [ConsumerDescribeRequest("g"), ConsumerDescribeRequest("h")]
    assert (row.error_code, row.group_id, row.group_state) == (ErrorCode.NONE, "g", "Reconciling")
    assert (row.group_epoch, row.assignment_epoch, row.assignor_name) == (4, 3, "range")
    assert row.authorized_operations == sum(
        1 << one for one in (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    )
    first, second = row.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("m1", "i1", "r", 3)
    assert (first.client_id, first.client_host) == ("c", "/h")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (("orders",), "o.*")
    (assigned,), (target,) = first.assignment.topic_partitions, first.target_assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (ORDERS, "orders", (0, 1))
    assert target.partitions == (0,)
    assert [first.member_type, second.member_type] == ([1, 0] if version else [-1, -1])
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group h not found.")


def test_a_description_needs_describe_on_the_group_and_on_every_topic_in_it() -> None:
    denying = Denying((Operation.DESCRIBE, "theirs"), (Operation.DESCRIBE, "orders"))
    harness = BrokerHarness(image(), groups=RecordingGroups(DESCRIBED), authorizer=denying)
    fields = {"group_ids": ["theirs", "g"], "include_authorized_operations": True}
    theirs, hidden = harness.ask(DESCRIBE, 1, **fields).groups
    assert theirs.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())
    assert hidden.authorized_operations == AUTHORIZED_OPERATIONS_OMITTED


def test_a_description_of_no_group_is_empty() -> None:
    harness = BrokerHarness(image(), groups=RecordingGroups())
    assert harness.ask(DESCRIBE, 1, group_ids=[], include_authorized_operations=False).groups == ()
