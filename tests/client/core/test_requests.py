"""The client's requests and the responses of brokers survive encoding and decoding in every supported version."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.client.core.fetch_session import FetchSessionHandler
from kraft.client.core.requests import (
    fetch_request,
    list_offsets_request,
    produce_request,
    produce_version,
    read_fetch_response,
    read_list_offsets_response,
    read_produce_response,
)
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchResult, decode_fetch_request
from kraft.wire.messages.fetch_response import encode_fetch_response
from kraft.wire.messages.produce import ProduceResult, decode_produce_request, encode_produce_response
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint

TOPIC_IDS = {"a": UUID(int=1), "b": UUID(int=2)}


@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
def test_a_produce_request_has_each_batch_once_under_its_topic_and_partition(version: int) -> None:
    batches = {("b", 1): b"third", ("a", 2): b"second", ("a", 0): b"first"}
    body = b"".join(produce_request(version, -1, 1500, batches, TOPIC_IDS))
    request = decode_produce_request(version, memoryview(body))
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1500, None)
    told = {
        (name or topic_id, index): bytes(data or b"") for name, topic_id, ps in request.topics for index, data in ps
    }
    assert told == {
        (TOPIC_IDS[name] if version >= 13 else name, index): data for (name, index), data in batches.items()
    }


def test_a_produce_request_uses_topic_ids_when_all_are_known() -> None:
    assert produce_version(13, TOPIC_IDS) == 13
    assert produce_version(13, {**TOPIC_IDS, "c": None}) == 12
    assert produce_version(9, TOPIC_IDS) == produce_version(9, {"c": None}) == 9


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_produce_response_gives_offsets_and_the_new_leader(version: int) -> None:
    rows = [
        ProduceResult(0, 0, 42, 1000, 7),
        ProduceResult(1, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), current_leader=CurrentLeader(3, 9)),
    ]
    body = encode_produce_response(
        version, [("a", TOPIC_IDS["a"], rows)], node_endpoints=[NodeEndpoint(3, "host", 9094, "r")]
    )
    answers = read_produce_response(version, body, TOPIC_IDS)
    assert answers["a", 0].code is ErrorCode.NONE
    assert (answers["a", 0].base_offset, answers["a", 0].log_append_time_ms) == (42, 1000)
    refused = answers["a", 1]
    assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert refused.leader == LeaderAndEpoch(3, 9)
        assert refused.leader_broker == BrokerEndpoint(3, Address("host", 9094), "r")
    else:
        assert refused.leader is None


TOPIC_ID = UUID(int=77)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
def test_a_fetch_request_has_the_position_of_each_partition(version: int) -> None:
    session = FetchSessionHandler().request(
        {
            ("t", 1): (TOPIC_ID, FetchPartition(1, 6, 50, 4, -1, 1000)),
            ("t", 0): (TOPIC_ID, FetchPartition(0, -1, 10, -1, -1, 1000)),
        }
    )
    body = fetch_request(version, session, wait_ms=300, bytes_min=1, bytes_max=5000, read_committed=True, rack="r1")
    request = decode_fetch_request(version, body)
    assert (request.max_wait_ms, request.min_bytes, request.isolation_level) == (300, 1, 1)
    assert request.replica_id == -1
    place = TOPIC_ID if version >= 13 else "t"
    asked = {(name or topic_id, p.partition): p.fetch_offset for name, topic_id, ps in request.topics for p in ps}
    assert asked == {(place, 0): 10, (place, 1): 50}


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16])
def test_a_fetch_response_gives_records_watermarks_and_aborted_transactions(version: int) -> None:
    row = FetchResult(2, 0, 30, 20, 5, [(77, 15)], -1, [b"abc", b"def"], (3, 12), CurrentLeader(1, 8))
    chunks = encode_fetch_response(
        version, [("t", TOPIC_ID, [row])], session_id=5, node_endpoints=[NodeEndpoint(1, "host", 9094)]
    )
    body = b"".join(bytes(chunk) for chunk in chunks)
    answer = read_fetch_response(version, body, lambda name, topic_id: "t" if name == "t" or topic_id else None)
    part = answer.partitions["t", 2]
    assert (answer.code, part.code, part.records) == (ErrorCode.NONE, ErrorCode.NONE, b"abcdef")
    assert (part.high_watermark, part.last_stable_offset, part.aborted) == (30, 20, ((77, 15),))
    assert answer.session_id == (5 if version >= 7 else 0)
    if version >= 12:
        assert (part.diverging, part.leader) == ((3, 12), LeaderAndEpoch(1, 8))
    if version >= 16:
        assert part.leader_broker == BrokerEndpoint(1, Address("host", 9094))


def test_topics_in_a_fetch_response_that_were_not_requested_are_ignored() -> None:
    body = b"".join(bytes(c) for c in encode_fetch_response(13, [(None, TOPIC_ID, [FetchResult(0)])]))
    assert read_fetch_response(13, body, lambda name, topic_id: None).partitions == {}


def test_list_offsets_request_and_response_cover_each_partition() -> None:
    request = list_offsets_request({("t", 0): (-1, 4), ("t", 1): (-2, -1)}, read_committed=True)
    asked = {p.partition_index: (p.timestamp, p.current_leader_epoch) for t in request.topics for p in t.partitions}
    assert asked == {0: (-1, 4), 1: (-2, -1)}
    assert request.isolation_level == 1
    answer = messages.build(
        messages.response_class(ApiKey.LIST_OFFSETS),
        topics=(
            {"name": "t", "partitions": ({"partition_index": 0, "error_code": 0, "offset": 9, "leader_epoch": 2},)},
        ),
    )
    body = messages.encode_response(ApiKey.LIST_OFFSETS, 7, answer)
    told = read_list_offsets_response(messages.decode_response(ApiKey.LIST_OFFSETS, 7, body))
    assert told == {("t", 0): (ErrorCode.NONE, 9, 2)}
