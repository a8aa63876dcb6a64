"""Tests of reading a range of offsets from scripted brokers on real sockets that reject requests, move leadership, lose
records and damage bytes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kraft.client.core.records import KafkaError
from kraft.client.core.topology import BrokerEndpoint
from kraft.client.spark.blocking.retries import ClusterUnreachable
from kraft.client.spark.settings import ConnectionSettings, FetchSettings, TopicSelection, TopicSettings
from kraft.client.spark.topics.data_loss import DataLost
from kraft.client.spark.topics.range_fetcher import EMPTY_ANSWERS, NoProgress
from kraft.client.spark.topics.range_reader import read_range
from kraft.client.spark.topics.ranges import OffsetRange
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResult
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control
from tests.client.spark.scripted_brokers import (
    EARLIEST,
    LATEST,
    OTHER_ID,
    TOPIC,
    TOPIC_ID,
    Brokers,
    batch,
    scripted_brokers,
    serve_log,
)

QUICK = FetchSettings(wait_ms=10, poll_timeout_ms=30_000)
SHORT_TIMEOUTS = replace(QUICK, poll_timeout_ms=100)
"""Settings with short timeouts, for tests in which records never arrive."""
REQUEST_TIMEOUT_MS = 5_000


def settings(brokers: Brokers, **more: Any) -> TopicSettings:
    timeout_ms = more.pop("request_timeout_ms", REQUEST_TIMEOUT_MS)
    rack = more.pop("rack", "")
    connection = ConnectionSettings(bootstrap=brokers.bootstrap, request_timeout_ms=timeout_ms, rack=rack)
    return TopicSettings(connection=connection, topics=TopicSelection(subscribe=(TOPIC,)), **({"fetch": QUICK} | more))


def read(brokers: Brokers, start: int, end: int, *, wanted: OffsetRange | None = None, **more: Any) -> list[int]:
    """Read a range as a task does, and return the offsets of its records."""
    whole = wanted or OffsetRange(TOPIC, 0, start, end, topic_id=TOPIC_ID)
    return [
        offset
        for found in read_range(settings(brokers, **more), whole, ("offset",))
        for offset in found.column(0).to_pylist()
    ]


# the range


def test_range_fetcher_returns_exactly_the_offsets_of_its_range() -> None:
    log = serve_log(batch(0, 1, 2), batch(3, 4, 5), batch(6, 7), high_watermark=8)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        assert read(brokers, 1, 7) == [1, 2, 3, 4, 5, 6]
        assert [offset for _, offset in brokers.fetched] == [1, 3, 6]


def test_range_fetcher_ends_at_a_later_batch_if_the_last_offsets_were_compacted() -> None:
    log = serve_log(batch(0, 1), batch(8, 9), high_watermark=10)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        assert read(brokers, 0, 5) == [0, 1]
        assert [offset for _, offset in brokers.fetched] == [0, 2]


def test_range_fetcher_ends_after_empty_responses_if_the_last_offsets_were_compacted() -> None:
    log = serve_log(batch(0, 1), high_watermark=10)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        assert read(brokers, 0, 10) == [0, 1]
        assert [offset for _, offset in brokers.fetched] == [0, *[2] * EMPTY_ANSWERS]


def test_range_fetcher_continues_after_empty_responses_while_its_range_is_not_readable_yet() -> None:
    log = serve_log(batch(0, 1), high_watermark=2)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        count = len(brokers.fetched)
        high_watermark = 2 if count == EMPTY_ANSWERS else 0
        return FetchResult(0, high_watermark=high_watermark) if count <= EMPTY_ANSWERS else log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers:
        assert read(brokers, 0, 2) == [0, 1]


def test_range_fetcher_skips_aborted_batches_only_with_read_committed() -> None:
    marker = encode_control(ControlRecord(type=ControlRecordType.ABORT), base_offset=2, leader_epoch=0, producer_id=7)
    data = [
        batch(0, 1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        bytes(marker),
        batch(3),
    ]

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        aborted = [(7, 0)] if request.isolation_level == 1 else None
        return FetchResult(
            part.partition,
            high_watermark=4,
            last_stable_offset=4,
            aborted_transactions=aborted,
            records=(b"".join(data),),
        )

    with scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers:
        assert read(brokers, 0, 4) == [0, 1, 3]
        assert read(brokers, 0, 4, fetch=replace(QUICK, read_committed=True)) == [3]


def test_range_fetcher_requests_few_bytes_first_and_then_the_rest_of_the_range() -> None:
    log = serve_log(batch(*range(1000)), batch(*range(1000, 2000)), batch(*range(2000, 2010)), high_watermark=2010)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        assert read(brokers, 0, 2010) == list(range(2010))
        first, second, last = [request.max_bytes for request in brokers.fetches]
        assert first == 1024 * 1024
        assert 2_000 < last < second < first


def test_range_fetcher_fetches_from_the_planned_leader_without_a_metadata_request() -> None:
    with scripted_brokers(Brokers(on_fetch=serve_log(batch(0), high_watermark=1))) as brokers:
        leader = BrokerEndpoint(0, brokers.addresses[0])
        assert read(brokers, 0, 1, wanted=OffsetRange(TOPIC, 0, 0, 1, TOPIC_ID, leader=leader, leader_epoch=0)) == [0]
        assert brokers.asked == [(0, ApiKey.FETCH)]


def test_range_reader_joins_small_responses_into_one_arrow_batch() -> None:
    log = serve_log(*(batch(number) for number in range(50)), high_watermark=50)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        found = list(read_range(settings(brokers), OffsetRange(TOPIC, 0, 0, 50), ("value", "offset")))
    assert [one.num_rows for one in found] == [50]
    assert found[0].column(0).to_pylist() == [b"value-%d" % number for number in range(50)]


def test_range_reader_limits_the_rows_of_an_arrow_batch_to_option_arrow_rows() -> None:
    log = serve_log(batch(*range(100)), high_watermark=100)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        few = settings(brokers, fetch=replace(QUICK, arrow_rows=30))
        found = list(read_range(few, OffsetRange(TOPIC, 0, 0, 100), ("offset",)))
    assert sum(one.num_rows for one in found) == 100
    assert max(one.num_rows for one in found) <= 30


def test_range_fetcher_names_the_topic_for_a_broker_without_topic_ids() -> None:
    old = {ApiKey.FETCH: (4, 11), ApiKey.METADATA: (0, 8), ApiKey.LIST_OFFSETS: (1, 5), ApiKey.API_VERSIONS: (0, 3)}
    log = serve_log(batch(0, 1), high_watermark=2)
    with scripted_brokers(Brokers(on_fetch=log, versions=old, topic_id=None)) as brokers:
        assert read(brokers, 0, 2, wanted=OffsetRange(TOPIC, 0, 0, 2)) == [0, 1]
        assert brokers.fetches[0].topics[0][:2] == (TOPIC, None)


# leaders that move, brokers that die


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_range_fetcher_retries_a_retriable_error_at_the_new_leader(code: ErrorCode) -> None:
    log = serve_log(batch(0, 1), batch(2), high_watermark=3)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if node == 0 and part.fetch_offset == 2:
            brokers.leader, brokers.leader_epoch = 1, 1
            return FetchResult(0, error_code=int(code))
        return log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch), 2) as brokers:
        assert read(brokers, 0, 3) == [0, 1, 2]
        assert brokers.fetched == [(0, 0), (0, 2), (1, 2)]


def test_range_fetcher_follows_the_leader_hint_of_an_error_without_a_metadata_request() -> None:
    log = serve_log(batch(0, 1), high_watermark=2)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if node == 0:
            code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return FetchResult(0, error_code=code, current_leader=CurrentLeader(1, 5))
        return log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch), 2) as brokers:
        there = brokers.addresses[1]
        brokers.endpoints = (NodeEndpoint(1, there.host, there.port),)
        assert read(brokers, 0, 2) == [0, 1]
        assert [key for _, key in brokers.asked] == [ApiKey.METADATA, ApiKey.FETCH, ApiKey.FETCH]
        assert brokers.fetches[1].topics[0][2][0].current_leader_epoch == 5


def test_range_fetcher_reconnects_after_a_lost_connection_without_duplicate_records() -> None:
    log = serve_log(batch(0, 1), batch(2, 3), batch(4), high_watermark=5)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if node == 0 and part.fetch_offset == 2:
            brokers.leader, brokers.leader_epoch = 1, 1
            brokers.hang_up.add(0)
            raise EOFError
        return log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch), 2) as brokers:
        assert read(brokers, 0, 5) == [0, 1, 2, 3, 4]


def test_range_fetcher_error_for_a_dead_leader_names_its_advertised_address() -> None:
    with scripted_brokers(Brokers(on_fetch=serve_log(batch(0), high_watermark=1)), 2) as brokers:
        brokers.leader = 1
        nowhere = replace(brokers.addresses[1], port=1)
        brokers.advertised[1] = nowhere
        with pytest.raises(ClusterUnreachable) as caught:
            read(brokers, 0, 1, request_timeout_ms=1_000)
        text = str(caught.value)
        assert f"broker 1 could not be reached within 1000 ms at its advertised address {nowhere}" in text
        assert f"bootstrap {brokers.addresses[0]},{brokers.addresses[1]}" in text
        assert caught.value.__notes__ == ["while reading t-0 [0, 1), at offset 0"]


def test_range_fetcher_raises_a_retriable_error_after_the_request_timeout() -> None:
    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        return FetchResult(0, error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))

    with scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers, pytest.raises(KafkaError, match="STORAGE") as caught:
        read(brokers, 0, 1, request_timeout_ms=1_000)
    assert len(brokers.fetched) > 1
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_range_fetcher_raises_a_nonretriable_error_at_once() -> None:
    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        return FetchResult(0, error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    with scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            read(brokers, 0, 1)
        assert len(brokers.fetched) == 1


# closest replica


def test_range_fetcher_reads_from_the_preferred_replica_of_its_rack() -> None:
    log = serve_log(batch(0, 1), batch(2), high_watermark=3)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if node == 0 and request.rack_id == "near":
            return FetchResult(0, preferred_read_replica=1)
        return log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch), 2) as brokers:
        assert read(brokers, 0, 3, rack="near") == [0, 1, 2]
        assert brokers.fetched == [(0, 0), (1, 0), (1, 2)]


def test_range_fetcher_returns_to_the_leader_if_the_preferred_replica_lags() -> None:
    log = serve_log(batch(0, 1), high_watermark=2)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if node == 1:
            return FetchResult(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
        if len(brokers.fetched) == 1:
            return FetchResult(0, preferred_read_replica=1)
        return log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch), 2) as brokers:
        assert read(brokers, 0, 2, rack="near") == [0, 1]
        assert brokers.fetched == [(0, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize("problem", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_range_fetcher_does_not_return_to_a_preferred_replica_that_failed(
    problem: ErrorCode,
) -> None:
    log = serve_log(batch(0, 1), batch(2), high_watermark=3)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if node == 1:
            return FetchResult(0, error_code=int(problem))
        return FetchResult(0, preferred_read_replica=1) if request.rack_id == "near" else log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch), 2) as brokers:
        assert read(brokers, 0, 3, rack="near") == [0, 1, 2]
        assert brokers.fetched == [(0, 0), (1, 0), (0, 0), (0, 2)]


def test_range_fetcher_stays_at_the_leader_if_the_preferred_replica_is_unknown() -> None:
    log = serve_log(batch(0, 1), high_watermark=2)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        return FetchResult(0, preferred_read_replica=7) if request.rack_id == "near" else log(node, part, request)

    with scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers:
        assert read(brokers, 0, 2, rack="near") == [0, 1]
        assert brokers.fetched == [(0, 0), (0, 0)]


# losses


def expired(log_start: int) -> Any:
    log = serve_log(batch(3, 4), batch(5), high_watermark=6)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if part.fetch_offset < log_start:
            return FetchResult(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
        return log(node, part, request)

    return on_fetch


def test_range_fetcher_error_for_an_expired_start_gives_available_and_lost_offsets() -> None:
    brokers = Brokers(on_fetch=expired(3), offsets={EARLIEST: 3, LATEST: 6})
    with scripted_brokers(brokers), pytest.raises(DataLost) as caught:
        read(brokers, 1, 6)
    text = str(caught.value)
    assert "topic t, partition 0: the beginning of the range has expired" in text
    assert "wanted: offsets 1 to 6; available: offsets 3 to 6, 2 offsets" in text
    assert "failOnDataLoss=false" in text


def test_range_fetcher_reads_the_rest_after_an_expired_start_without_fail_on_data_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = Brokers(on_fetch=expired(3), offsets={EARLIEST: 3, LATEST: 6})
    with scripted_brokers(brokers), caplog.at_level(logging.WARNING, "kraft.spark"):
        assert read(brokers, 1, 6, fail_on_data_loss=False) == [3, 4, 5]
    assert "2 offsets" in caplog.text


def test_range_fetcher_of_a_fully_expired_range_is_empty_without_fail_on_data_loss() -> None:
    brokers = Brokers(on_fetch=expired(3), offsets={EARLIEST: 3, LATEST: 6})
    with scripted_brokers(brokers):
        assert read(brokers, 0, 2, fail_on_data_loss=False) == []


@pytest.mark.parametrize("fails", [True, False])
def test_range_fetcher_retries_before_it_reports_a_log_end_below_its_position_as_loss(fails: bool) -> None:
    brokers = Brokers(on_fetch=expired(100), offsets={EARLIEST: 0, LATEST: 6})
    with scripted_brokers(brokers):
        if fails:
            with pytest.raises(DataLost, match=r"the log ends before this offset .* offsets 0 to 6, 5 off"):
                read(brokers, 10, 15)
        else:
            assert read(brokers, 10, 15, fail_on_data_loss=False) == []
        assert len(brokers.fetched) > 3


def test_range_fetcher_reports_no_loss_if_a_log_end_below_its_position_was_stale() -> None:
    log = serve_log(batch(10, 11), high_watermark=12)
    brokers = Brokers(offsets={EARLIEST: 0, LATEST: 6})

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if len(brokers.fetched) < 3:
            return FetchResult(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
        return log(node, part, request)

    brokers.on_fetch = on_fetch
    with scripted_brokers(brokers):
        assert read(brokers, 10, 12) == [10, 11]


@pytest.mark.parametrize("fails", [True, False])
def test_range_fetcher_reports_a_log_truncated_below_its_position_as_loss(fails: bool) -> None:
    log = serve_log(batch(0, 1), batch(5, 6), high_watermark=7)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if part.last_fetched_epoch == 4:
            return FetchResult(0, diverging_epoch=(3, 2))
        return log(node, part, request)

    brokers = Brokers(on_fetch=on_fetch)
    wanted = OffsetRange(TOPIC, 0, 5, 7, TOPIC_ID, start_epoch=4)
    with scripted_brokers(brokers):
        if fails:
            with pytest.raises(DataLost, match=r"truncated below what was read .* 3 offsets"):
                read(brokers, 5, 7, wanted=wanted)
        else:
            assert read(brokers, 5, 7, wanted=wanted, fail_on_data_loss=False) == [5, 6]


def test_range_fetcher_reports_no_truncation_for_a_leader_epoch_without_records() -> None:
    log = serve_log(batch(5, 6), high_watermark=7)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if part.last_fetched_epoch == 4:
            return FetchResult(0, diverging_epoch=(3, 5))
        return log(node, part, request)

    brokers = Brokers(on_fetch=on_fetch)
    with scripted_brokers(brokers):
        assert read(brokers, 5, 7, wanted=OffsetRange(TOPIC, 0, 5, 7, TOPIC_ID, start_epoch=4)) == [5, 6]


def test_range_fetcher_sends_the_leader_epoch_of_the_last_batch_read() -> None:
    log = serve_log(batch(0, 1, epoch=2), batch(2, epoch=3), high_watermark=3)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        assert read(brokers, 0, 3) == [0, 1, 2]
        assert [request.topics[0][2][0].last_fetched_epoch for request in brokers.fetches] == [-1, 2]


@pytest.mark.parametrize("fails", [True, False])
def test_range_fetcher_reports_a_recreated_topic_as_loss_and_names_its_new_id(fails: bool) -> None:
    log = serve_log(batch(0, 1), high_watermark=4)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if part.fetch_offset == 2:
            brokers.topic_id = OTHER_ID
            return FetchResult(0, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID))
        return log(node, part, request)

    brokers = Brokers(on_fetch=on_fetch)
    with scripted_brokers(brokers):
        if fails:
            with pytest.raises(DataLost, match=rf"deleted and recreated .* id {OTHER_ID}, 2 offsets"):
                read(brokers, 0, 4)
        else:
            assert read(brokers, 0, 4, fail_on_data_loss=False) == [0, 1]


@pytest.mark.parametrize("fails", [True, False])
def test_range_fetcher_reports_a_topic_deleted_during_the_read_as_loss(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.client.spark.topics.range_fetcher.MISSING_TOPIC_MS", 100)
    log = serve_log(batch(0, 1), high_watermark=4)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        if part.fetch_offset == 2:
            brokers.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return FetchResult(0, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID))
        return log(node, part, request)

    brokers = Brokers(on_fetch=on_fetch)
    with scripted_brokers(brokers):
        if fails:
            with pytest.raises(DataLost, match=r"no longer exists .* offsets 2 to 4"):
                read(brokers, 0, 4)
        else:
            assert read(brokers, 0, 4, fail_on_data_loss=False) == [0, 1]


def test_range_fetcher_fails_after_the_poll_timeout_behind_an_open_transaction() -> None:
    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        return FetchResult(0, high_watermark=5, last_stable_offset=0)

    committed = replace(SHORT_TIMEOUTS, read_committed=True)
    with (
        scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers,
        pytest.raises(NoProgress, match=r"partition 0: no record from offset 0 on .* last stable offset 0"),
    ):
        read(brokers, 0, 5, fetch=committed)


def test_range_fetcher_reports_a_log_that_ends_before_the_range_as_loss_after_the_poll_timeout() -> None:
    log = serve_log(batch(0, 1), high_watermark=2)
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        with pytest.raises(DataLost, match=r"the log ends before the range.* available: offsets below 2, 3 offsets"):
            read(brokers, 0, 5, fetch=SHORT_TIMEOUTS)
        assert read(brokers, 0, 5, fetch=SHORT_TIMEOUTS, fail_on_data_loss=False) == [0, 1]


# damage


def test_range_reader_error_for_a_flipped_bit_is_raised_after_the_valid_rows_and_names_the_offset() -> None:
    bad = bytearray(batch(2, 3))
    bad[70] ^= 1
    log = serve_log(batch(0, 1), bytes(bad), high_watermark=4)
    found: list[int] = []
    with scripted_brokers(Brokers(on_fetch=log)) as brokers:
        few = settings(brokers, fetch=replace(QUICK, arrow_rows=2))
        with pytest.raises(WireError, match=r"topic t, partition 0, from offset 2 on: .* CRC"):
            for one in read_range(few, OffsetRange(TOPIC, 0, 0, 4), ("offset",)):
                found += one.column(0).to_pylist()
    assert found == [0, 1]


def test_range_reader_rejects_malformed_records_even_without_crc_checks() -> None:
    bad = bytearray(batch(0, 1))
    bad[61] = 0x7F  # damages the first record's length
    log = serve_log(bytes(bad), high_watermark=2)
    with (
        scripted_brokers(Brokers(on_fetch=log)) as brokers,
        pytest.raises(WireError, match="topic t, partition 0, from offset 0 on"),
    ):
        unchecked = settings(brokers, fetch=replace(QUICK, check_crcs=False))
        list(read_range(unchecked, OffsetRange(TOPIC, 0, 0, 2), ("value",)))


def test_range_fetcher_rejects_a_response_whose_bytes_contain_no_whole_batch() -> None:
    log = serve_log(batch(0, 1), high_watermark=2)

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        (whole,) = log(node, part, request).records
        return FetchResult(0, high_watermark=2, last_stable_offset=2, records=(bytes(whole)[:-1],))  # type: ignore[arg-type]

    with (
        scripted_brokers(Brokers(on_fetch=on_fetch)) as brokers,
        pytest.raises(WireError, match=r"topic t, partition 0, from offset 0 on: .* without a batch after this offset"),
    ):
        read(brokers, 0, 2)
