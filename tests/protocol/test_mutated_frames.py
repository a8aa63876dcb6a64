"""Mutated frames: a mutated frame of any API is answered or ends its connection, with no other effect.

Every API and version that a broker serves without a log of its own provides a valid frame; the others are tested
against a whole node. hypothesis flips, cuts, repeats and inserts bytes, and cuts the stream into pieces. No handler may
fail: `ErrorsPerSec` stays at zero.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.image import ConfigResourceType
from kraft.seam import CloseReason
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey, is_flexible
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness
from tests.stages.deciding import DecidingController
from tests.stages.images import ORDERS, broker_event, image_of, orders

RETENTION = {"name": "retention.ms", "value": "5"}


def _nested(key: int, field: str, **fields: Any) -> Any:
    return messages.build(messages.nested_class(messages.request_class(key), field), **fields)


def _alteration() -> Any:
    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.build(messages.nested_class(resource, "configs"), name="retention.ms", value="5")
    return messages.build(
        resource, resource_type=int(ConfigResourceType.TOPIC), resource_name="orders", configs=(config,)
    )


def _requests(version: int) -> dict[int, dict[str, Any]]:
    """Return a request of each API, with a value in every field of this version."""
    by_id = {"name": None, "topic_id": ORDERS}
    return {
        ApiKey.METADATA: {"topics": [_nested(3, "topics", **(by_id if version >= 12 else {"name": "orders"}))]},
        ApiKey.API_VERSIONS: {"client_software_name": "fuzz", "client_software_version": "1"},
        ApiKey.CREATE_TOPICS: {"topics": [_nested(19, "topics", name="new", num_partitions=1, replication_factor=1)]},
        ApiKey.DELETE_TOPICS: {"topics": [_nested(20, "topics", name="orders")]},
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": "t"},
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": [
                _nested(32, "resources", resource_type=2, resource_name="orders", configuration_keys=("segment.ms",))
            ]
        },
        ApiKey.CREATE_PARTITIONS: {"topics": [_nested(37, "topics", name="orders", count=4)]},
        ApiKey.ELECT_LEADERS: {"topic_partitions": [_nested(43, "topic_partitions", topic="orders", partitions=(0,))]},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [_alteration()]},
        ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
        ApiKey.ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": [RETENTION]}]},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": (2, 4)},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
            "topics": [{"name": "orders"}],
            "response_partition_limit": 2,
            "cursor": {"topic_name": "orders", "partition_index": 1},
        },
    }


def _frame(key: int, version: int) -> bytes:
    message = messages.build(messages.request_class(key), **_requests(version)[key])
    body = messages.encode_request(key, version, message)
    head = struct.pack(">hhih", key, version, 7, 4) + b"fuzz" + (b"\0" if is_flexible(key, version) else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


FRAMES = {
    (int(key), version): _frame(key, version)
    for key, served in BROKER_APIS.items()
    if key in _requests(served.max)
    for version in range(served.min, served.max + 1)
}

mutations = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 400), st.integers(1, 255)),
        st.tuples(st.just("cut"), st.integers(0, 400), st.integers(1, 40)),
        st.tuples(st.just("insert"), st.integers(0, 400), st.integers(0, 255)),
        st.tuples(st.just("length"), st.sampled_from([-1, 0, 1, 2**15, 2**27, -(2**31), 2**31 - 1]), st.just(0)),
    ),
    min_size=1,
    max_size=5,
)


def _mutate(frame: bytes, changes: list[tuple[str, int, int]], *, keep_size: bool) -> bytes:
    data = bytearray(frame[4:])
    for kind, at, value in changes:
        place = at % max(1, len(data))
        if kind == "flip" and data:
            data[place] ^= value
        elif kind == "cut":
            del data[place : place + value]
        elif kind == "insert":
            data[place:place] = bytes([value])
    size = len(data) if keep_size else next((at for kind, at, _ in changes if kind == "length"), len(data))
    return struct.pack(">i", max(-(2**31), min(size, 2**31 - 1))) + bytes(data)


def _harness() -> BrokerHarness:
    image = image_of(broker_event(1), broker_event(2), broker_event(3), *orders())
    harness = BrokerHarness(image)
    harness.use_controller(DecidingController(image, harness.broker.config))
    return harness


@pytest.mark.parametrize("key", sorted({key for key, _ in FRAMES}))
def test_a_valid_frame_of_every_version_is_answered(key: int) -> None:
    for version in range(BROKER_APIS[ApiKey(key)].min, BROKER_APIS[ApiKey(key)].max + 1):
        client = _harness().connect()
        client.send_bytes(FRAMES[key, version])
        data = client.received()
        assert struct.unpack_from(">ii", data) == (len(data) - 4, 7), (key, version)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FRAMES)), mutations, st.booleans(), st.integers(1, 60))
def test_a_mutated_frame_is_answered_or_closes_its_own_connection(
    which: tuple[int, int], changes: list[tuple[str, int, int]], keep_size: bool, piece: int
) -> None:
    harness = _harness()
    victim, witness = harness.connect(), harness.connect()
    data = _mutate(FRAMES[which], changes, keep_size=keep_size) + FRAMES[18, 0]
    for start in range(0, len(data), piece):
        if victim.transport.closed_for is not None:
            break
        victim.send_bytes(data[start : start + piece])
    assert victim.transport.closed_for in (None, CloseReason.BAD_BYTES)
    assert "UNKNOWN_SERVER_ERROR" not in {error for _, error, _ in harness.broker.requests.error_counts()}
    assert harness.failures == []
    witness.send_bytes(FRAMES[18, 0])
    assert struct.unpack_from(">h", witness.received(), 8)[0] == ErrorCode.NONE
    victim.connection.closed(CloseReason.PEER)
    witness.connection.closed(CloseReason.PEER)
    assert harness.broker.gates.memory.used_bytes == 0


@given(st.binary(min_size=0, max_size=300))
def test_random_bytes_never_cause_an_error_in_a_handler(data: bytes) -> None:
    harness = _harness()
    client = harness.connect()
    client.send_bytes(data)
    client.connection.closed(CloseReason.PEER)
    assert "UNKNOWN_SERVER_ERROR" not in {error for _, error, _ in harness.broker.requests.error_counts()}
    assert harness.broker.gates.memory.used_bytes == 0
