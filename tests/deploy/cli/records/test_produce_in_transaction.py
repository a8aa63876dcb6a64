"""`kraft produce --transactional`, on a simulated cluster: all records in one transaction, or none."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio

from kraft.client import Producer
from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.records.input_lines import BadInput
from kraft.deploy.cli.records.json_lines import NewRecord
from kraft.deploy.cli.records.send_records import RecordSender
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.stages.clients_in_world import Stage
from tests.stages.transactions_in_world import ID, V2, at_level, committed, until_stable

VALUES = [b"0", b"1", b"2"]


async def records(*, is_bad: bool = False, reading: trio.CancelScope | None = None) -> AsyncGenerator[NewRecord, None]:
    for value in VALUES:
        yield NewRecord(value, partition=0)
    if is_bad:
        raise BadInput("line 4 is no record")
    if reading is not None:
        reading.cancel()
        await trio.sleep_forever()


async def send(stage: Stage, source: AsyncGenerator[NewRecord, None], reading: trio.CancelScope) -> RecordSender:
    sending = RecordSender("orders", keep_reports=True)
    async with Producer(
        bootstrap_servers=stage.bootstrap, seam=stage.world.node("writer"), transactional_id=ID
    ) as producer:
        await sending.run_in_transaction(producer, source, reading)
    await until_stable(stage)
    return sending


def test_transactional_produce_commits_all_records_at_the_end_of_the_input() -> None:
    async def test(stage: Stage) -> None:
        sent = await send(stage, records(), trio.CancelScope())
        assert (sent.problem, sent.count, sent.transaction, len(sent.reports)) == (None, 3, "committed", 3)
        assert await committed(stage) == VALUES

    at_level(V2, test)


@pytest.mark.parametrize("reason", ["bad input", "interrupt"])
def test_transactional_produce_commits_no_record_after_invalid_input_or_an_interrupt(reason: str) -> None:
    async def test(stage: Stage) -> None:
        reading = trio.CancelScope()
        source = records(is_bad=True) if reason == "bad input" else records(reading=reading)
        sent = await send(stage, source, reading)
        assert (sent.transaction, sent.reports) == ("aborted", [])
        assert (sent.problem is not None) == (reason == "bad input")
        assert await committed(stage) == []
        assert await stage.values() == VALUES

    at_level(V2, test)


@pytest.mark.parametrize(
    ("key", "code", "expected"),
    [
        (ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, "aborted"),
        (ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE, "aborted"),
        (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED, "whether committed or aborted is unknown"),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ""),
    ],
)
def test_transactional_produce_reports_an_error_of_the_cluster_and_commits_no_record(
    key: ApiKey, code: ErrorCode, expected: str
) -> None:
    async def test(stage: Stage) -> None:
        stage.fault(api_key=key, action=ReplyAction.ERROR, error=code, client_id="pykraft-producer", times=1)
        sending = RecordSender("orders", keep_reports=True)
        async with Producer(
            bootstrap_servers=stage.bootstrap, seam=stage.world.node("writer"), transactional_id=ID
        ) as producer:
            await sending.run_in_transaction(producer, records(), trio.CancelScope())
        assert sending.problem is not None
        assert (sending.transaction, sending.reports) == (expected, [])
        assert await committed(stage) == []

    at_level(V2, test)


def test_a_transactional_id_in_client_settings_is_ignored_unless_the_command_asks_for_transactions() -> None:
    connection = ClusterConnection("localhost:9092", {"transactional.id": "payments"}, None, "")
    assert "transactional_id" not in connection.producer_settings()
    assert connection.producer_settings(transactional_id="mine")["transactional_id"] == "mine"
