"""Read the topics in a consumer's embedded subscription. A coordinator needs them only to decide which offsets may
expire.

The client writes these metadata, and they may contain any bytes. Bytes that do not parse are not an error: the
subscription is then unknown.
Source: ConsumerProtocolSubscription, Kafka's ClassicGroup.
"""

from __future__ import annotations

import struct

from kraft.seam import WireError
from kraft.wire.primitives import read_array_count, read_string

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription of any version; None if the bytes are not a subscription."""
    data = memoryview(metadata)
    topics: set[str] = set()
    try:
        count, position = read_array_count(data, _VERSION_BYTES)
        for _ in range(count):
            topic, position = read_string(data, position)
            if topic is None:
                return None
            topics.add(topic)
    except (WireError, struct.error):
        return None
    return frozenset(topics)
