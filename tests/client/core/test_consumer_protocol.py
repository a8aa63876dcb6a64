"""Subscriptions and assignments can be read across versions and libraries. Bytes that do not parse are an error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kraft.client.core.consumer_protocol import (
    MemberAssignment,
    Subscription,
    decode_assignment,
    decode_sticky_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_data,
    encode_subscription,
)
from kraft.seam import WireError

partitions = st.lists(st.tuples(st.text(max_size=8), st.integers(0, 99)), unique=True, max_size=6)
subscriptions = st.builds(
    Subscription,
    st.lists(st.text(max_size=8), max_size=4).map(tuple),
    st.none() | st.binary(max_size=8),
    partitions.map(lambda found: tuple(sorted(found))),
    st.integers(-1, 2**31 - 1),
    st.none() | st.text(max_size=4),
)
FULL = Subscription(("a", "b"), b"data", (("a", 0), ("a", 3), ("b", 1)), 7, "rack-1")


@given(subscriptions)
def test_a_subscription_survives_encoding_and_decoding(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(partitions.map(lambda found: tuple(sorted(found))), st.none() | st.binary(max_size=8))
def test_an_assignment_survives_encoding_and_decoding(
    assigned: tuple[tuple[str, int], ...], data: bytes | None
) -> None:
    assert decode_assignment(encode_assignment(MemberAssignment(assigned, data))) == MemberAssignment(assigned, data)


def test_empty_bytes_decode_to_an_empty_assignment() -> None:
    assert decode_assignment(b"") == MemberAssignment()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(("a", "b"), b"data")),
        (1, Subscription(("a", "b"), b"data", FULL.owned)),
        (2, Subscription(("a", "b"), b"data", FULL.owned, 7)),
        (3, FULL),
        (9, FULL),
    ],
)
def test_decoding_a_subscription_reads_the_fields_of_its_version(version: int, expected: Subscription) -> None:
    data = struct.pack(">h", version) + encode_subscription(FULL)[2:] + (b"more" if version > 3 else b"")
    assert decode_subscription(data) == expected


@given(st.integers(0, 60))
def test_a_truncated_subscription_is_an_error(cut: int) -> None:
    data = encode_subscription(FULL)
    with pytest.raises(WireError):
        decode_subscription(data[: min(cut, len(data) - 1)])


def test_another_library_reads_the_same_subscription_and_assignment() -> None:
    told = ConsumerProtocolSubscription.decode(encode_subscription(FULL))
    assert (told.topics, told.user_data, told.generation_id, told.rack_id) == (["a", "b"], b"data", 7, "rack-1")
    assert [(owned.topic, owned.partitions) for owned in told.owned_partitions] == [("a", [0, 3]), ("b", [1])]
    given_out = ConsumerProtocolAssignment.decode(encode_assignment(MemberAssignment(FULL.owned, b"x")))
    assert [(topic.topic, topic.partitions) for topic in given_out.assigned_partitions] == [("a", [0, 3]), ("b", [1])]
    assert given_out.user_data == b"x"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_and_assignments_of_another_library_decode(version: int) -> None:
    owned = [ConsumerProtocolSubscription.TopicPartition(version=max(version, 1), topic="a", partitions=[0, 3])]
    told = ConsumerProtocolSubscription(
        version=version, topics=["b", "a"], user_data=b"data", owned_partitions=owned, generation_id=7, rack_id="r"
    )
    assert decode_subscription(told.encode()) == Subscription(
        ("b", "a"),
        b"data",
        (("a", 0), ("a", 3)) if version >= 1 else (),
        7 if version >= 2 else -1,
        "r" if version >= 3 else None,
    )


def test_another_library_reads_the_user_data_of_a_sticky_member() -> None:
    told = StickyAssignorUserData.decode(encode_sticky_data((("a", 0), ("a", 3), ("b", 1)), 7), version=1, header=False)
    assert [(had.topic, had.partitions) for had in told.previous_assignment] == [("a", [0, 3]), ("b", [1])]
    assert told.generation == 7


def test_user_data_of_an_old_sticky_member_has_no_generation() -> None:
    data = encode_sticky_data((("a", 0),), 7)
    assert decode_sticky_data(data[:-4]) == ((("a", 0),), -1)
