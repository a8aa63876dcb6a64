"""Tests of the figures that the benchmark of share consumers reads from the output of Kafka's tool."""

import pytest

from tests.bench.bare import Bulk
from tests.bench.share_groups.share_consumers import parse

ONE = """[2026-11-28 03:00:01,000] WARN a line of the log
2026-11-28 03:00:00:000, 2026-11-28 03:00:06:000, 0.9537, 0.1589, 166.6667, 1000, 6000 for share consumer 1
2026-11-28 03:00:06:000, 2026-11-28 03:00:06:500, 2.8610, 3.8147, 4000.0000, 3000, 500 for share consumer 1
2026-11-28 03:00:06:500, 2026-11-28 03:00:07:000, 5.7220, 5.7220, 6000.0000, 6000, 500 for share consumer 1
"""
TOTAL = "2026-11-28 03:00:00:000, 2026-11-28 03:00:07:100, 6.1989, 0.8731, 915.4930, 6500, 7100\n"
OTHER = """2026-11-28 03:00:00:000, 2026-11-28 03:00:06:200, 0.4768, 0.1, 161.2903, 500, 6200 for share consumer 2
2026-11-28 03:00:06:200, 2026-11-28 03:00:06:450, 0.9537, 1.9, 2000.0000, 1000, 250 for share consumer 2
"""


def test_the_rate_of_a_share_consumer_omits_the_join_and_the_first_third() -> None:
    assert parse(ONE + TOTAL, size=1000, count=6500, cpu_s=0.8125) == Bulk(6.0, 125.0)


def test_the_rate_of_a_share_group_is_of_all_its_consumers_over_the_same_time() -> None:
    late = "2026-11-28 03:00:00:000, 2026-11-28 03:00:07:000, 0.4768, 0.1, 142.8571, 1000, 7000 for share consumer 2\n"
    assert parse(ONE + late + TOTAL, size=1000, count=6500, cpu_s=0.8125) == Bulk(8.0, 125.0)


def test_lines_of_share_consumers_without_a_line_break_between_them_are_separated() -> None:
    text = ONE + OTHER + TOTAL
    together = "".join(text.splitlines()[1:-1]) + "\n\n" + TOTAL
    assert parse(together, size=1000, count=6500, cpu_s=0.8125) == parse(text, size=1000, count=6500, cpu_s=0.8125)


def test_share_consumers_that_did_not_read_all_records_have_no_figure() -> None:
    with pytest.raises(RuntimeError, match="did not read 6501 records"):
        parse(ONE + TOTAL, size=1000, count=6501, cpu_s=0.8125)


def test_share_consumers_that_ran_too_briefly_have_no_figure() -> None:
    with pytest.raises(RuntimeError, match="too briefly"):
        parse(OTHER.splitlines()[0] + "\n" + TOTAL, size=1000, count=500, cpu_s=0.8125)
