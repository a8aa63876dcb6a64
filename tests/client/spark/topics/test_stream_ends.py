"""Tests of partition ends as brokers report them: which are accepted at once, and which are requested again."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from kraft.client.spark.options import parse_read
from kraft.client.spark.settings import TopicSettings
from kraft.client.spark.topics.data_loss import DataLost
from kraft.client.spark.topics.stream_planner import StreamPlanner
from kraft.wire.api_keys import ApiKey
from tests.client.spark.scripted_brokers import EARLIEST, LATEST, OTHER_ID, TOPIC, TOPIC_ID, Brokers, scripted_brokers

IDS = {TOPIC: str(TOPIC_ID)}


class Ends(dict[int, int]):
    """Results of ListOffsets. The first requests for the end return the values in `stale`."""

    def __init__(self, end: int, stale: list[int]) -> None:
        super().__init__({EARLIEST: 0, LATEST: end})
        self.stale = stale

    def get(self, target: int, default: int = -1) -> int:  # type: ignore[override]
        return self.stale.pop(0) if target == LATEST and self.stale else super().get(target, default)


def planner(brokers: Brokers, **options: str) -> StreamPlanner:
    address = brokers.addresses[0]
    given = {"bootstrap": f"{address.host}:{address.port}", "subscribe": TOPIC, **options}
    settings = parse_read(given, is_stream=True, now_ms=0)
    assert isinstance(settings, TopicSettings)
    return StreamPlanner(settings)


@pytest.mark.parametrize("stale", [1, 4, 8])
def test_stream_ends_report_no_loss_for_a_log_end_that_is_too_low_for_a_moment(stale: int) -> None:
    start = {TOPIC: {"0": 50}, "@ids": IDS}
    with (
        scripted_brokers(Brokers(offsets=Ends(60, [40] * stale))) as brokers,
        closing(planner(brokers, **{"fetchOffset.numRetries": "2"})) as one,
    ):
        assert one.next_offset(start, unlimited=False)[TOPIC] == {"0": 60}


def test_stream_ends_report_a_loss_for_a_log_end_that_stays_too_low() -> None:
    start = {TOPIC: {"0": 50}, "@ids": IDS}
    with (
        scripted_brokers(Brokers(offsets=Ends(40, []))) as brokers,
        closing(planner(brokers)) as one,
        pytest.raises(DataLost, match=r"offset 50 on; available: offsets below 40, 10 offsets"),
    ):
        one.next_offset(start, unlimited=False)


def test_stream_ends_report_no_loss_for_a_topic_id_that_is_outdated_for_a_moment() -> None:
    class Late(Brokers):
        """Scripted brokers whose first three Metadata responses have another topic id."""

        answers = 0

        def _metadata(self, request: Any) -> dict[str, Any]:
            self.answers += 1
            self.topic_id = OTHER_ID if self.answers <= 3 else TOPIC_ID
            return super()._metadata(request)

    start = {TOPIC: {"0": 50}, "@ids": IDS}
    with scripted_brokers(Late(offsets=Ends(60, []))) as brokers, closing(planner(brokers)) as one:
        assert one.next_offset(start, unlimited=False) == {TOPIC: {"0": 60}, "@ids": IDS}


def test_stream_reads_a_recreated_topic_from_its_beginning() -> None:
    start = {TOPIC: {"0": 50}, "@ids": IDS}
    with (
        scripted_brokers(Brokers(offsets=Ends(40, []), topic_id=OTHER_ID)) as brokers,
        closing(planner(brokers, failOnDataLoss="false")) as one,
    ):
        end = one.next_offset(start, unlimited=False)
        assert end[TOPIC] == {"0": 0}
        assert end["@ids"] == {TOPIC: str(OTHER_ID)}
        assert one.ranges(start, end) == []
        assert one.next_offset(end, unlimited=False)[TOPIC] == {"0": 40}


def test_stream_planner_requests_only_leaders_when_it_makes_task_ranges() -> None:
    start, end = {TOPIC: {"0": 5}, "@ids": IDS, "@epochs": {TOPIC: {"0": 3}}}, {TOPIC: {"0": 9}, "@ids": IDS}
    with scripted_brokers(Brokers(leader_epoch=4)) as brokers, closing(planner(brokers)) as one:
        (wanted,) = one.ranges(start, end)
        assert (wanted.start, wanted.end, wanted.topic_id, wanted.start_epoch) == (5, 9, TOPIC_ID, 3)
        assert (wanted.leader_epoch, wanted.leader and wanted.leader.address) == (4, brokers.addresses[0])
        assert {key for _, key in brokers.asked} == {ApiKey.METADATA}
