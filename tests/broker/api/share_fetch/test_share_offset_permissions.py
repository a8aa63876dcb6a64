"""Requests about the start offsets of a share group tell a client only of topics that it may use."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.consumer_group.requests import AssignedTopic
from kraft.broker.serving.gates import Operation
from kraft.broker.share_group.requests import ShareDescribeReply
from kraft.image import events
from kraft.image.image import SHARE_FEATURE
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.test_consumer_groups import RecordingGroups
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.images import ORDERS, image_of, orders, three_brokers

DENYING = Denying((Operation.DESCRIBE, "orders"), (Operation.READ, "orders"))


def harness(*replies: Any) -> BrokerHarness:
    """Return a broker with the topic orders, which the client may not use."""
    image = image_of(*three_brokers(), *orders(), events.FeatureLevel(SHARE_FEATURE, 1, None))
    return BrokerHarness(image, groups=RecordingGroups(*replies), authorizer=DENYING)


def test_a_description_of_all_offsets_leaves_out_topics_that_the_client_may_not_describe() -> None:
    reads = ShareDescribeReply(ErrorCode.NONE, initialized=(AssignedTopic(ORDERS, "orders", (0, 1)),))
    asked = [{"group_id": "g", "topics": None}]
    (group,) = harness(reads).ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked).groups
    assert (group.error_code, group.topics) == (ErrorCode.NONE, ())


def test_a_named_topic_that_the_client_may_not_describe_is_refused_without_its_id() -> None:
    asked = [{"group_id": "g", "topics": [{"topic_name": "orders", "partitions": [0]}]}]
    answered = harness(ShareDescribeReply(ErrorCode.NONE)).ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked)
    (topic,) = answered.groups[0].topics
    assert [row.error_code for row in topic.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert topic.topic_id is None


@pytest.mark.parametrize("key", [ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS])
def test_a_refused_change_of_offsets_does_not_tell_the_id_of_the_topic(key: ApiKey) -> None:
    rows: dict[str, Any] = {"partitions": [{"partition_index": 0, "start_offset": 1}]}
    topic = {"topic_name": "orders", **(rows if key is ApiKey.ALTER_SHARE_GROUP_OFFSETS else {})}
    (answered,) = harness().ask(key, 0, group_id="g", topics=[topic]).responses
    errors = [answered] if key is ApiKey.DELETE_SHARE_GROUP_OFFSETS else answered.partitions
    assert [one.error_code for one in errors] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert answered.topic_id is None


def test_a_topic_without_partitions_is_answered_without_its_id() -> None:
    topic = {"topic_name": "orders", "partitions": []}
    (answered,) = harness().ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[topic]).responses
    assert (answered.topic_id, answered.partitions) == (None, ())
