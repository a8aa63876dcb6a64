"""Tagged fields of Produce and Fetch: a section as raw bytes by tag, and the structs that both responses share.

Source: KIP-482 (tagged fields), KIP-951 (current leader and node endpoints in responses).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kraft.seam import WireError
from kraft.wire.primitives import compact_string, read_compact_array_count, read_compact_string
from kraft.wire.varints import encode_unsigned, read_unsigned, skip_tagged_fields

_LEADER = struct.Struct(">ii")
_INT32 = struct.Struct(">i")


class CurrentLeader(NamedTuple):
    """The partition's current leader and leader epoch; -1 if unknown."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """Address of a node that a response names, on the listener of the request."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def read_tagged(data: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """Return the raw bytes of each tagged field, by tag, and the position after the section."""
    count, position = read_unsigned(data, position)
    values: dict[int, memoryview] = {}
    last_tag = -1
    for _ in range(count):
        tag, position = read_unsigned(data, position)
        size, position = read_unsigned(data, position)
        end = position + size
        if end > len(data) or tag <= last_tag:
            raise WireError(f"tagged field {tag} of {size} bytes at byte {position} does not fit")
        values[tag] = data[position:end]
        position = end
        last_tag = tag
    return values, position


def tagged(tag: int, value: bytes) -> bytes:
    """Encode one tagged field."""
    return encode_unsigned(tag) + encode_unsigned(len(value)) + value


def current_leader_tag(tag: int, leader: CurrentLeader) -> bytes:
    return tagged(tag, _LEADER.pack(leader.leader_id, leader.leader_epoch) + b"\0")


def read_current_leader(data: memoryview) -> CurrentLeader:
    return CurrentLeader(*_LEADER.unpack_from(data))


def node_endpoints_tag(tag: int, endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [encode_unsigned(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += _INT32.pack(node_id), compact_string(host), _INT32.pack(port), compact_string(rack), b"\0"
    return tagged(tag, b"".join(parts))


def read_node_endpoints(data: memoryview) -> tuple[NodeEndpoint, ...]:
    count, position = read_compact_array_count(data, 0)
    endpoints = []
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(data, position)
        host, position = read_compact_string(data, position + 4)
        (port,) = _INT32.unpack_from(data, position)
        rack, position = read_compact_string(data, position + 4)
        position = skip_tagged_fields(data, position, len(data))
        endpoints.append(NodeEndpoint(node_id, host or "", port, rack))
    return tuple(endpoints)
