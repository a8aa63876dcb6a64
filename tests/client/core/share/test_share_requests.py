"""ShareFetch, ShareAcknowledge and ShareGroupHeartbeat as bytes in each version, and their responses as values."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from kraft.client.core.heartbeats import ConsumerHeartbeat, MemberSettings
from kraft.client.core.membership_errors import membership_error
from kraft.client.core.share.acknowledging import PendingAcknowledgements
from kraft.client.core.share.acquired import AcquiredRange
from kraft.client.core.share.answers import acknowledgement_error
from kraft.client.core.share.heartbeats import share_heartbeat_message
from kraft.client.core.share.requests import (
    ShareFetchSize,
    ShareMemberId,
    read_share_acknowledge,
    read_share_fetch,
    share_acknowledge_message,
    share_fetch_message,
)
from kraft.client.core.share.session import ShareSession, ShareSessionRequest
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

TOPIC, OTHER = UUID(int=5), UUID(int=6)
MEMBER = ShareMemberId("jobs", "m1")
SIZE = ShareFetchSize(wait_ms=500, bytes_min=1, bytes_max=1_000, records_max=20)


def pending(types: dict[int, int]) -> PendingAcknowledgements:
    made = PendingAcknowledgements(0)
    made.types = types
    return made


def sent(key: ApiKey, version: int, message: Any) -> Any:
    """Return a request as a broker reads it."""
    return messages.decode_request(key, version, messages.encode_request(key, version, message))


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_fetch_adds_and_forgets_partitions_and_acknowledges(version: int) -> None:
    request = ShareSessionRequest(
        session=ShareSession(1),
        epoch=4,
        is_fetch=True,
        acknowledged={(TOPIC, 0): pending({1: 1, 2: 1, 4: 3})},
        added=((TOPIC, 2), (OTHER, 0)),
        forgotten=((TOPIC, 1),),
    )
    read = sent(ApiKey.SHARE_FETCH, version, share_fetch_message(MEMBER, request, SIZE))
    assert (read.group_id, read.member_id, read.share_session_epoch) == ("jobs", "m1", 4)
    assert (read.max_wait, read.min_bytes, read.max_bytes) == (timedelta(milliseconds=500), 1, 1_000)
    assert (read.max_records, read.batch_size, read.share_acquire_mode, read.is_renew_ack) == (20, 20, 0, False)
    first, second = read.topics
    assert [row.partition_index for row in first.partitions] == [0, 2]
    assert [
        (one.first_offset, one.last_offset, one.acknowledge_types)
        for one in first.partitions[0].acknowledgement_batches
    ] == [(1, 2, (1,)), (4, 4, (3,))]
    assert first.partitions[1].acknowledgement_batches == ()
    assert (second.topic_id, [row.partition_index for row in second.partitions]) == (OTHER, [0])
    assert [(one.topic_id, one.partitions) for one in read.forgotten_topics_data] == [(TOPIC, (1,))]


def test_version_1_cannot_limit_records() -> None:
    request = ShareSessionRequest(session=ShareSession(1), epoch=0, is_fetch=True)
    size = ShareFetchSize(wait_ms=500, bytes_min=1, bytes_max=1_000, records_max=20, is_record_limit=True)
    message = share_fetch_message(MEMBER, request, size)
    assert sent(ApiKey.SHARE_FETCH, 2, message).share_acquire_mode == 1
    assert sent(ApiKey.SHARE_FETCH, 1, message).share_acquire_mode == 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_acknowledge_ends_a_session(version: int) -> None:
    request = ShareSessionRequest(
        session=ShareSession(1), epoch=-1, is_fetch=False, acknowledged={(TOPIC, 3): pending({7: 2})}
    )
    read = sent(ApiKey.SHARE_ACKNOWLEDGE, version, share_acknowledge_message(MEMBER, request))
    assert (read.share_session_epoch, read.is_renew_ack) == (-1, False)
    ((row,),) = [topic.partitions for topic in read.topics]
    assert (row.partition_index, row.acknowledgement_batches[0].acknowledge_types) == (3, (2,))


def answered(key: ApiKey, version: int, row: dict[str, object]) -> Any:
    """Return a response with one row, as the client reads it."""
    response = messages.response_class(key)
    made = messages.build(
        response,
        acquisition_lock_timeout=timedelta(milliseconds=900),
        responses=({"topic_id": TOPIC, "partitions": ({"partition_index": 1, **row},)},),
        node_endpoints=({"node_id": 3, "host": "b3", "port": 9_092},),
    )
    return messages.decode_response(key, version, messages.encode_response(key, version, made))


def test_a_share_fetch_response_has_records_errors_and_the_new_leader() -> None:
    row = {
        "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "acknowledge_error_code": int(ErrorCode.INVALID_RECORD_STATE),
        "acknowledge_error_message": "expired",
        "current_leader": {"leader_id": 3, "leader_epoch": 8},
        "records": b"bytes",
        "acquired_records": ({"first_offset": 5, "last_offset": 9, "delivery_count": 2},),
    }
    answer = read_share_fetch(answered(ApiKey.SHARE_FETCH, 2, row))
    assert (answer.code, answer.message, answer.lock_ms) == (ErrorCode.NONE, "", 900)
    found = answer.partitions[(TOPIC, 1)]
    assert found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (found.acknowledge_code, found.acknowledge_message) == (ErrorCode.INVALID_RECORD_STATE, "expired")
    assert found.leader == LeaderAndEpoch(3, 8)
    assert found.leader_broker == BrokerEndpoint(3, Address("b3", 9_092))
    assert (found.records, found.acquired) == (b"bytes", (AcquiredRange(5, 9, 2),))


@pytest.mark.parametrize(("version", "lock_ms"), [(1, 0), (2, 900)])
def test_a_share_acknowledge_response_has_the_results(version: int, lock_ms: int) -> None:
    row = {
        "error_code": ErrorCode.INVALID_RECORD_STATE,
        "error_message": "late",
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
    }
    answer = read_share_acknowledge(answered(ApiKey.SHARE_ACKNOWLEDGE, version, row))
    found = answer.partitions[(TOPIC, 1)]
    assert (found.code, found.acknowledge_code) == (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
    assert (found.acknowledge_message, found.leader, found.acquired, answer.lock_ms) == ("late", None, (), lock_ms)


def test_a_heartbeat_has_the_rack_and_the_topics_only_when_they_are_news() -> None:
    settings = MemberSettings("jobs", rack="a", is_share_group=True)
    first = ConsumerHeartbeat(
        settings=settings, life=1, member_id="m1", epoch=0, is_id_confirmed=False, is_full=True, names=("orders",)
    )
    read = sent(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat_message(first, 1))
    assert (read.group_id, read.member_id, read.member_epoch) == ("jobs", "m1", 0)
    assert (read.rack_id, read.subscribed_topic_names) == ("a", ("orders",))
    later = ConsumerHeartbeat(settings=settings, life=1, member_id="m1", epoch=5, is_id_confirmed=True)
    read = sent(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat_message(later, 1))
    assert (read.member_epoch, read.rack_id, read.subscribed_topic_names) == (5, None, None)


def test_errors_name_the_partition_or_the_group_and_what_to_do() -> None:
    full = membership_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "", MemberSettings("jobs", is_share_group=True))
    assert "group.share.max.size" in str(full)
    late = acknowledgement_error(("orders", 1), ErrorCode.INVALID_RECORD_STATE)
    assert (late.code, "orders-1" in str(late), "run out" in str(late)) == (
        ErrorCode.INVALID_RECORD_STATE,
        True,
        True,
    )
    assert str(acknowledgement_error(("orders", 1), ErrorCode.INVALID_REQUEST, "Too long.")).endswith(
        "failed: Too long"
    )
    assert str(acknowledgement_error(("orders", 1), ErrorCode.INVALID_REQUEST)).endswith("the broker has rejected them")
