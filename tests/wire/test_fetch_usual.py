"""The fast codec of Fetch requests: it encodes and decodes usual requests like the general codec, and leaves all other
requests to that codec.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    ReplicaTags,
    decode_fetch_request,
    encode_fetch_request,
)
from kraft.wire.messages.fetch_usual import decode_usual, encode_usual

VERSIONS = range(15, 19)
ID = UUID(int=7)
IDS = st.uuids().filter(lambda value: value.int != 0)
INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**62)
PARTITIONS = st.builds(FetchPartition, INT32, INT32, INT64, INT32, INT64, INT32, st.just(0))
TOPICS = st.lists(st.tuples(st.none(), IDS, st.lists(PARTITIONS, min_size=1, max_size=4)), max_size=4)


def request(**options: object) -> FetchRequest:
    topics = [(None, ID, [FetchPartition(3, 5, 100, 5, 0, 1 << 20)])]
    fields: dict[str, object] = {"max_wait_ms": 500, "min_bytes": 1, "topics": topics, "session_id": 9}
    return FetchRequest(**{**fields, "session_epoch": 4, **options})  # type: ignore[arg-type]


def follower(**options: object) -> FetchRequest:
    return request(**{"replica_id": 2, "replica_epoch": 77, **options})


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=TOPICS, replica_epoch=INT64)
def test_a_followers_usual_fetch_is_encoded_and_decoded_by_the_fast_codec(
    version: int, topics: list[tuple[None, UUID, list[FetchPartition]]], replica_epoch: int
) -> None:
    sent = follower(topics=topics, replica_epoch=replica_epoch)
    body = encode_usual(sent)
    assert body is not None
    assert body == encode_fetch_request(version, sent)
    assert decode_usual(memoryview(body)) == sent


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=TOPICS)
def test_a_consumers_usual_fetch_is_decoded_by_the_fast_codec(
    version: int, topics: list[tuple[None, UUID, list[FetchPartition]]]
) -> None:
    sent = request(topics=topics)
    body = encode_fetch_request(version, sent)
    assert decode_usual(memoryview(body)) == sent
    assert decode_fetch_request(version, body) == sent


RARE = [
    follower(forgotten=((None, ID, (1,)),)),
    follower(rack_id="a"),
    follower(cluster_id="c"),
    follower(topics=[(None, ID, [FetchPartition(3, 5, 100, 5, 0, 1, ReplicaTags(UUID(int=5)))])]),
    follower(topics=[(None, ID, [FetchPartition(3, 5, 100, 5, 0, 1)] * 127)]),
    follower(topics=[(None, ID, [FetchPartition(3, 5, 100, 5, 0, 1)])] * 127),
]


@pytest.mark.parametrize("sent", RARE)
def test_an_unusual_fetch_is_left_to_the_general_codec(sent: FetchRequest) -> None:
    body = encode_fetch_request(17, sent)
    assert encode_usual(sent) is None
    assert decode_usual(memoryview(body)) is None
    assert decode_fetch_request(17, body) == sent


def test_the_fast_fetch_codec_refuses_truncated_requests_and_trailing_bytes() -> None:
    body = encode_fetch_request(17, follower())
    for size in range(len(body)):
        assert decode_usual(memoryview(body[:size])) is None
    assert decode_usual(memoryview(body + b"\0")) is None
