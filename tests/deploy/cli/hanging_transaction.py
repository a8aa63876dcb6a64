"""A hanging transaction on a running cluster: a transactional batch of which no coordinator knows."""

from __future__ import annotations

import time
from functools import partial

import trio

from kraft.client.cluster import Cluster, parse_bootstrap
from kraft.client.default_seam import default_seam
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import decode_produce_response, encode_produce_request
from kraft.wire.records import Record, encode_batch

OLD_PRODUCE = 9
"""A version of Produce in which partition leaders do not add partitions to transactions."""
TIMEOUT_MS = 10_000
NEW_TOPIC_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors of a broker that has not applied the creation of the topic yet."""


async def leave_hanging(bootstrap: str, topic: str, index: int, producer_id: int, *, age_ms: int = 0) -> int:
    """Write the batch, and return its offset. The brokers must have transaction.partition.verification.enable=false."""
    record = Record(0, int(time.time() * 1000) - age_ms, None, b"lost")
    data = encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    chunks = encode_produce_request(
        OLD_PRODUCE, acks=-1, timeout_ms=TIMEOUT_MS, topics=[(topic, None, [(index, data)])], transactional_id="lost"
    )
    async with default_seam(None) as seam:
        cluster = Cluster(parse_bootstrap(bootstrap), seam, client_id="test")
        try:
            with trio.fail_after(TIMEOUT_MS / 1000):
                while True:
                    await cluster.refresh([topic], timeout_ms=TIMEOUT_MS)
                    leader = cluster.leader((topic, index))
                    assert leader is not None
                    link = await cluster.link(leader.node_id, "test")
                    answer = await link.request_encoded(
                        ApiKey.PRODUCE,
                        OLD_PRODUCE,
                        chunks,
                        partial(decode_produce_response, OLD_PRODUCE),
                        timeout_ms=TIMEOUT_MS,
                    )
                    result = answer.topics[0][2][0]
                    if result.error_code not in NEW_TOPIC_ERRORS:
                        break
                    await trio.sleep(0.05)
        finally:
            cluster.close()
    assert result.error_code == 0, result
    return int(result.base_offset)
