"""The topics in a consumer's embedded subscription. A coordinator reads them only to know which offsets may expire.

Metadata are the client's own bytes, and a client may write anything there. Bytes that do not parse are no error: the
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
    """The topics of a subscription of any version; None if the bytes are not one."""
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
