"""How long a commit takes, in virtual time: no step of it waits for a pause of the brokers or of the client."""

from __future__ import annotations

import pytest

from tests.stages.clients_in_world import Stage
from tests.stages.transactions_in_world import ID, LEVELS, at_level, until_stable

PARTITIONS = 6
COMMIT_MS_MAX = 20
"""The shortest pause of a broker or client before it repeats a request about a transaction."""
REPLICATED = {
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
}


@LEVELS
@pytest.mark.parametrize("pause_ms", [0, 50])
def test_a_commit_over_several_leaders_waits_for_no_repeated_request(level: int, pause_ms: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("many", PARTITIONS)
        async with stage.producer(transactional_id=ID) as producer:
            took_ms = []
            for _ in range(12):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.enqueue("many", b"x", partition=partition)
                began_ns = stage.world.now_ns
                await producer.commit_transaction()
                took_ms.append((stage.world.now_ns - began_ns) / 1e6)
                await stage.world.sleep_ms(pause_ms)
            for partition in range(PARTITIONS):
                await until_stable(stage, ("many", partition))
        assert max(took_ms[2:]) < COMMIT_MS_MAX, took_ms

    at_level(level, test, combined=0, controllers=1, brokers=3, **REPLICATED)
