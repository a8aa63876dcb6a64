"""A record of the transaction coordinator that is not committed within request.timeout.ms.

The client gets an error that it retries, and the record still counts.
"""

from __future__ import annotations

from typing import Any

from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.member import Member
from tests.broker.coordinator.transactional_client import TransactionalClient, error_of

REPLY_MS_MAX = 2_000


def test_a_commit_whose_record_is_not_replicated_in_time_is_retried_and_takes_effect(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(("orders", 0))
        await client.write("orders", 0)
        ending = client.ending(commit=True)
        followers = [cluster.name(one) for one in cluster.broker_ids if one != client.broker]
        for name in followers:
            world.pause(name)
        began_ns = world.now_ns
        reply = await client.ask(ApiKey.END_TXN, 5, **ending)
        assert error_of(reply) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert REPLY_MS_MAX <= (world.now_ns - began_ns) / 1e6 < REPLY_MS_MAX + 500
        assert error_of(await client.ask(ApiKey.END_TXN, 5, **ending)) is ErrorCode.CONCURRENT_TRANSACTIONS
        for name in followers:
            world.resume(name)
        reply = await client.persist(ApiKey.END_TXN, 5, **ending)
        assert (error_of(reply), reply.producer_epoch) == (ErrorCode.NONE, client.epoch + 1)
        await client.wait_state("CompleteCommit")
        assert client.markers("orders", 0) == [(client.producer_id, client.epoch + 1, True)]

    run(test, request_timeout_ms=str(REPLY_MS_MAX))
