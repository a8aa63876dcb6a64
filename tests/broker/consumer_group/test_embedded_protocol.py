"""The bytes of classic consumers, also compared with our own client's codec. Source: ConsumerProtocolSubscription."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.consumer_group.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from kraft.client.core import consumer_protocol
from kraft.seam import WireError
from tests.broker.consumer_group.migrating_clients import by_topic, subscription

NAMES = st.text("abc", min_size=1, max_size=3)
OWNED = st.sets(st.tuples(NAMES, st.integers(0, 5)), max_size=6)


@given(st.lists(NAMES, max_size=3), OWNED, st.integers(-1, 9), st.none() | NAMES)
def test_a_subscription_of_our_client_is_read_as_it_was_meant(
    topics: list[str], owned: set[tuple[str, int]], generation: int, rack: str | None
) -> None:
    places = tuple(sorted(owned))
    said = consumer_protocol.Subscription(tuple(topics), b"data", places, generation, rack)
    found = decode_subscription(consumer_protocol.encode_subscription(said))
    assert found == (3, tuple(topics), by_topic(owned), generation, rack)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_subscription_of_an_older_version_lacks_what_was_added_later(version: int) -> None:
    found = decode_subscription(subscription(("orders",), {("orders", 1)}, 7, version))
    owned = {"orders": {1}} if version >= 1 else {}
    assert found == (version, ("orders",), owned, 7 if version >= 2 else -1, None)


@given(OWNED, st.integers(-2, 9))
def test_an_assignment_is_read_by_our_client_as_it_was_meant(owned: set[tuple[str, int]], version: int) -> None:
    encoded = encode_assignment(version, by_topic(owned))
    assert decode_assignment(encoded) == (by_topic(owned), b"")
    assert set(consumer_protocol.decode_assignment(encoded).partitions) == owned
    assert version_of(encoded) == min(max(version, 0), 3)


def test_no_bytes_are_no_assignment() -> None:
    assert decode_assignment(b"") == ({}, b"")


@pytest.mark.parametrize(("metadata", "version"), [(b"", 0), (b"\0", 0), (b"\xff\xff", 0), (b"\0\2rest", 2)])
def test_the_version_of_bytes_that_are_no_subscription_is_0(metadata: bytes, version: int) -> None:
    assert version_of(metadata) == version


@given(st.binary(max_size=40), st.integers(0, 40))
def test_bytes_that_do_not_parse_raise_wire_error_and_nothing_else(data: bytes, cut: int) -> None:
    valid = subscription(("orders",), {("orders", 1)}, 7)
    for read in (decode_subscription, decode_assignment):
        for malformed in (data, valid[:cut], b"\xff\xff" + valid):
            try:
                read(malformed)
            except WireError:
                continue


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1\0", b"\0\0\0\0\0\1\0\1"])
def test_a_subscription_that_ends_too_soon_is_malformed(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_subscription(data)
