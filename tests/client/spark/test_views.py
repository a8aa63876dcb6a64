"""Tests of the views that a SQL query needs, and of the options with which each view is read."""

from __future__ import annotations

import pytest

from kraft.client.spark.views import create_views, network_options, options_of, views_in

CLUSTER = {"bootstrap": "h:1", "kafka.security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from partitions", ["partitions"]),
        ("SELECT * FROM Brokers b JOIN REPLICAS r USING (broker_id)", ["brokers", "replicas"]),
        ("select 'partitions' as x, \"brokers\" from topics -- groups\n/* configs\n */", ["topics"]),
        ("select 'it\\'s', t.value from topic_orders t", ["topic_orders"]),
        ("select * from `topic_web.clicks` where key = '`topic_x`'", ["topic_web.clicks"]),
        ("with p as (select * from partitions) select count(*) from p, partitions", ["partitions"]),
        ("select 1", []),
        ("select topic_ from values (1)", []),
        ("select * from `topic_a--b` -- topics", ["topic_a--b"]),
        (r"select r'C:\' , x from topic_a where y = '1'", ["topic_a"]),
        ("select count(*) as `topic_my count`, 1 as `topic_a,b` from TOPIC_orders", ["TOPIC_orders"]),
    ],
)
def test_views_of_a_sql_query_are_the_tables_and_topics_that_it_names(query: str, expected: list[str]) -> None:
    assert views_in(query) == expected


def test_view_options_are_the_given_options_that_its_table_supports() -> None:
    timed = {**CLUSTER, "asOfOffset": "7", "fromOffset": "3", "toTimestamp": "9"}
    assert options_of("partitions", timed) == {"table": "partitions", **CLUSTER, "asOfOffset": "7"}
    assert options_of("metadata_diff", timed) == {
        "table": "metadata_diff",
        **CLUSTER,
        "fromOffset": "3",
        "toTimestamp": "9",
    }
    assert options_of("groups", timed) == {"table": "groups", **CLUSTER}
    assert options_of("topic_web.clicks", timed) == {"subscribe": "web.clicks", **CLUSTER}


def test_view_options_with_a_folder_omit_the_brokers_for_tables_that_the_folder_has() -> None:
    given = {**CLUSTER, "folder": "/data", "asOfOffset": "7"}
    assert options_of("topics", given) == {"table": "topics", "folder": "/data", "asOfOffset": "7"}
    assert options_of("metadata_events", given) == {"table": "metadata_events", "folder": "/data"}
    assert options_of("group_offsets", given) == {"table": "group_offsets", **CLUSTER}


def test_view_network_options_omit_folders_and_times() -> None:
    assert network_options({**CLUSTER, "folder": "/data", "asOfTimestamp": "1h", "toOffset": "9"}) == CLUSTER


def test_views_of_two_topics_whose_names_differ_only_in_case_are_rejected() -> None:
    with pytest.raises(ValueError, match="topic_Orders and topic_orders differ only in upper and lower case"):
        create_views(None, CLUSTER, ["topic_Orders", "topic_orders"])  # type: ignore[arg-type]
