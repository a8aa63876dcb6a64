"""Tests of the options that users give: the settings that they result in, and the error for each invalid option."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from kraft.client.spark.options import (
    OPTIONS,
    Kind,
    OptionError,
    check_schema,
    declared_schema,
    parse_read,
    parse_write,
    without_effect,
    without_effect_on_sink,
)
from kraft.client.spark.options.document import render_options
from kraft.client.spark.options.patterns import topic_pattern
from kraft.client.spark.options.table import options_of
from kraft.client.spark.options.values import OptionValueError
from kraft.client.spark.settings import EVERY_PARTITION, Position, TableSettings, TopicSettings, When
from kraft.seam import Address

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
TOPIC = {"kafka.bootstrap.servers": "one:9092,two:9093", "subscribe": "orders"}


def topics(*, is_stream: bool = False, drop: tuple[str, ...] = (), **more: Any) -> TopicSettings:
    options = {name: value for name, value in TOPIC.items() if name not in drop} | more
    settings = parse_read(options, is_stream=is_stream, now_ms=NOW_MS)
    assert isinstance(settings, TopicSettings)
    return settings


def table(*, is_stream: bool = False, **options: Any) -> TableSettings:
    settings = parse_read({"bootstrap": "one:9092", **options}, is_stream=is_stream, now_ms=NOW_MS)
    assert isinstance(settings, TableSettings)
    return settings


def assert_rejected(*parts: str, is_stream: bool = False, **options: Any) -> None:
    """Assert that these options for a topic raise an OptionError whose message has all these parts."""
    with pytest.raises(OptionError) as caught:
        topics(is_stream=is_stream, **options)
    for part in parts:
        assert part in str(caught.value)


# what to read


def test_options_of_a_topic_read_need_only_a_topic_name_and_brokers() -> None:
    settings = topics()
    assert settings.connection.bootstrap == (Address("one", 9092), Address("two", 9093))
    assert settings.topics.subscribe == ("orders",)
    assert settings.starting is None
    assert settings.ending is None
    assert settings.fail_on_data_loss
    assert not settings.fetch.read_committed
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_option_names_are_case_insensitive() -> None:
    settings = parse_read(
        {"KAFKA.Bootstrap.Servers": "one:1", "SUBSCRIBE": " a , b,a,", "IncludeHEADERS": "TRUE"},
        is_stream=False,
        now_ms=NOW_MS,
    )
    assert isinstance(settings, TopicSettings)
    assert settings.topics.subscribe == ("a", "b")
    assert settings.include_headers


def test_option_given_twice_in_different_case_is_rejected() -> None:
    assert_rejected("given twice", Subscribe="other")


def test_options_topic_and_bootstrap_are_short_names_of_subscribe_and_bootstrap_servers() -> None:
    settings = parse_read({"bootstrap": "one:1", "topic": "a"}, is_stream=True, now_ms=NOW_MS)
    assert isinstance(settings, TopicSettings)
    assert settings.topics.subscribe == ("a",)
    assert settings.connection.bootstrap == (Address("one", 1),)


@pytest.mark.parametrize("second", ["topic", "subscribePattern"])
def test_options_that_select_topics_in_two_ways_are_rejected(second: str) -> None:
    assert_rejected("subscribe", second, "give one of them", **{second: "a"})


def test_options_without_topic_or_brokers_are_rejected_and_the_error_names_the_missing_option() -> None:
    assert_rejected("no topic is named", "subscribePattern", "table", drop=("subscribe",))  # type: ignore[arg-type]
    assert_rejected("kafka.bootstrap.servers is missing", drop=("kafka.bootstrap.servers",))  # type: ignore[arg-type]


def test_options_with_two_different_bootstrap_addresses_are_rejected() -> None:
    assert_rejected("differ", bootstrap="three:1")


def test_option_assign_selects_partitions_of_topics() -> None:
    settings = topics(drop=("subscribe",), assign='{"a":[1,0,1],"b":[7]}')
    assert settings.topics.assign == {"a": (0, 1), "b": (7,)}


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"a":0}', '{"a":[]}', '{"a":[-1]}', '{"a":["0"]}', '{"a":[true]}'])
def test_option_assign_with_malformed_json_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r'assign.*"orders"'):
        topics(drop=("subscribe",), assign=text)


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 250, "..", "a:b"])
def test_option_with_an_invalid_topic_name_is_rejected(name: str) -> None:
    with pytest.raises(OptionError, match="option subscribe="):
        topics(subscribe=name)


# unknown and rejected ones


def test_error_for_an_unknown_option_names_the_nearest_option() -> None:
    assert_rejected("there is no option startingofsets", "did you mean startingOffsets?", startingOfsets="earliest")
    assert_rejected(
        "not a setting of Kafka's clients", "did you mean kafka.isolation.level?", **{"kafka.isolation.levl": "x"}
    )
    assert_rejected("`kraft spark options` lists all", zzzzzz="1")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("kafka.key.deserializer", "cast"),
        ("kafka.value.serializer", "cast"),
        ("kafka.enable.auto.commit", "checkpoint"),
        ("kafka.interceptor.classes", "interceptors"),
        ("kafka.sasl.jaas.config", "SASL"),
        ("kafka.transactional.id", "transactionalIdPrefix"),
    ],
)
def test_unsupported_kafka_setting_is_rejected_with_advice(name: str, advice: str) -> None:
    assert_rejected(name, advice, **{name: "x"})


def test_kafka_settings_without_effect_are_accepted_and_listed() -> None:
    options = {
        **TOPIC,
        "kafka.linger.ms": "5",
        "kafka.session.timeout.ms": "1",
        "kafka.group.id": "g",
        "groupIdPrefix": "p",
    }
    parse_read(options, is_stream=True, now_ms=NOW_MS)
    assert without_effect(options, is_stream=True) == (
        "groupIdPrefix",
        "kafka.group.id",
        "kafka.linger.ms",
        "kafka.session.timeout.ms",
    )
    assert without_effect(TOPIC, is_stream=False) == ()


def test_trigger_limit_options_have_no_effect_on_a_batch() -> None:
    options = {**TOPIC, "maxOffsetsPerTrigger": "5"}
    assert topics(maxOffsetsPerTrigger="5").offsets_per_trigger_max is None
    assert without_effect(options, is_stream=False) == ("maxOffsetsPerTrigger",)
    assert topics(is_stream=True, maxOffsetsPerTrigger="5").offsets_per_trigger_max == 5


def test_options_that_spark_itself_adds_are_ignored() -> None:
    topics(path="/x", checkpointLocation="/y", queryName="q")
    assert without_effect({**TOPIC, "checkpointLocation": "/y"}, is_stream=True) == ()


def test_option_for_another_kind_of_read_is_rejected_and_the_error_names_that_kind() -> None:
    assert_rejected(
        "endingOffsets is for a batch read of topics, not for a stream", is_stream=True, endingOffsets="latest"
    )
    assert_rejected("commitGroup is for a stream of topics, not for a batch", commitGroup="g")
    assert_rejected("withDocs is for a table", withDocs="true")
    with pytest.raises(OptionError, match="subscribe is for a batch read of topics or a stream of topics"):
        parse_write(TOPIC)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("minOffsetsPerTrigger", "-5"),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "many"),
        ("minPartitions", "0"),
        ("maxRecordsPerPartition", "1.5"),
        ("pollInterval", "0"),
        ("maxTriggerDelay", "soon"),
        ("arrowRows", "0"),
        ("failOnDataLoss", "yes"),
        ("fetchOffset.numRetries", "-1"),
        ("kafka.fetch.max.bytes", "2147483648"),
        ("kafka.isolation.level", "dirty"),
        ("kafka.request.timeout.ms", "0"),
        ("commitGroup", " "),
        ("columns", ","),
    ],
)
def test_option_with_an_invalid_value_is_rejected_and_the_error_names_the_option(name: str, text: str) -> None:
    assert_rejected(f"option {name}={text}", is_stream=True, **{name: text})


def test_min_offsets_per_trigger_above_max_offsets_per_trigger_is_rejected() -> None:
    assert_rejected("minOffsetsPerTrigger=9", is_stream=True, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")


def test_options_for_sizes_and_durations_accept_units() -> None:
    settings = topics(is_stream=True, maxBytesPerTrigger="64m", maxTriggerDelay="90s", pollInterval="250")
    assert settings.bytes_per_trigger_max == 64 << 20
    assert settings.trigger_delay_max_ms == 90_000
    assert settings.poll_interval_ms == 250


def test_options_with_the_prefix_kafka_set_the_fetch_settings_of_a_read() -> None:
    settings = topics(
        **{
            "kafka.fetch.max.bytes": "1000",
            "kafka.max.partition.fetch.bytes": "2000",
            "kafka.check.crcs": "false",
            "kafka.isolation.level": "READ_COMMITTED",
            "kafka.client.rack": "r1",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "7",
            "fetchOffset.numRetries": "9",
        }
    )
    assert settings.fetch.bytes_max == 1000
    assert settings.fetch.partition_bytes_max == 2000
    assert not settings.fetch.check_crcs
    assert settings.fetch.read_committed
    assert settings.fetch.retries == 9
    assert (settings.connection.rack, settings.connection.client_id) == ("r1", "me")
    assert settings.connection.request_timeout_ms == 7


# where to begin and end


def test_option_starting_offsets_accepts_an_offset_per_partition_or_one_for_all() -> None:
    settings = topics(startingOffsets='{"orders":{"0":23,"1":-2}}', endingOffsets='{"orders":{"*":-1}}')
    assert settings.starting == Position(kind="offsets", offsets={"orders": {0: 23, 1: -2}})
    assert settings.ending == Position(kind="offsets", offsets={"orders": {EVERY_PARTITION: -1}})


def test_batch_that_starts_at_latest_or_ends_at_earliest_is_rejected() -> None:
    assert_rejected("startingOffsets=latest", startingOffsets="latest")
    assert_rejected("startingOffsets", "(-1)", startingOffsets='{"orders":{"0":-1}}')
    assert_rejected("endingOffsets=earliest", endingOffsets="earliest")
    assert_rejected("endingOffsets", "(-2)", endingOffsets='{"orders":{"0":-2}}')
    assert topics(is_stream=True, startingOffsets='{"orders":{"0":-1}}').starting is not None
    assert topics(is_stream=True, startingOffsets="Latest").starting == Position(kind="latest")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("earliestt", "not JSON"),
        ('{"orders":{"0":1}', "not JSON"),
        ('{"orders":5}', "topic orders"),
        ('{"orders":{}}', "topic orders"),
        ('{"orders":{"x":1}}', "'x' is no partition"),
        ('{"orders":{"0":-3}}', "-3 is not a 64-bit integer"),
        ('{"orders":{"0":1.5}}', "1.5 is not a 64-bit integer"),
        ('{"orders":{"0":true}}', "True is not a 64-bit integer"),
        ('{"orders":{"0":9223372036854775808}}', "is not a 64-bit integer"),
        ('{"orders":{"0":1,"0":2}}', "0 is there twice"),
        ('{"orders":{"0":1,"00":2}}', "a partition is there twice"),
        ('{"orders":{"*":1,"0":2}}', "stands for all"),
        ('{"other":{"0":1}}', "topic orders is read but not named"),
        ('{"orders":{"0":1},"other":{"0":1}}', "topic other is named but not read"),
    ],
)
def test_option_starting_offsets_with_malformed_json_is_rejected_with_the_reason(text: str, reason: str) -> None:
    assert_rejected("option startingOffsets", reason, startingOffsets=text)


def test_option_starting_offsets_must_name_exactly_the_assigned_partitions() -> None:
    with pytest.raises(OptionError, match="topic a, partition 1 is read but not named"):
        topics(drop=("subscribe",), assign='{"a":[0,1]}', startingOffsets='{"a":{"0":5}}')
    with pytest.raises(OptionError, match="topic a, partition 2 is named but not read"):
        topics(drop=("subscribe",), assign='{"a":[0]}', startingOffsets='{"a":{"0":5,"2":1}}')
    assert topics(drop=("subscribe",), assign='{"a":[0]}', startingOffsets='{"a":{"*":5}}').starting is not None


def test_starting_timestamp_overrides_times_per_partition_and_those_override_offsets() -> None:
    by_partition = '{"orders":{"0":1000}}'
    settings = topics(startingOffsets="earliest", startingOffsetsByTimestamp=by_partition)
    assert settings.starting == Position(kind="timestamps", timestamps={"orders": {0: 1000}})
    settings = topics(startingTimestamp="7", startingOffsetsByTimestamp=by_partition, endingTimestamp="9")
    assert settings.starting == Position(kind="timestamp", timestamp_ms=7)
    assert settings.ending == Position(kind="timestamp", timestamp_ms=9)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("10m", NOW_MS - 600_000),
        ("1h", NOW_MS - HOUR_MS),
        ("2d", NOW_MS - 48 * HOUR_MS),
        ("PT1H30M", NOW_MS - 90 * 60_000),
        ("2026-11-21T10:00:00Z", 1_795_255_200_000),
        ("2026-11-21T10:00:00", 1_795_255_200_000),
        ("2026-11-21T11:00:00+01:00", 1_795_255_200_000),
        ("1700000000000", 1_700_000_000_000),
        ("99999d", 0),
    ],
)
def test_option_since_accepts_a_duration_before_now_or_a_time(text: str, time_ms: int) -> None:
    assert topics(since=text).starting == Position(kind="timestamp", timestamp_ms=time_ms)


@pytest.mark.parametrize("text", ["", "2026", "yesterday", "-5m", "10", "10x", "1969-01-01"])
def test_option_since_with_a_malformed_value_is_rejected(text: str) -> None:
    assert_rejected(f"option since={text}", since=text)


def test_option_since_begins_at_the_end_of_partitions_without_newer_records_by_default() -> None:
    assert topics(startingTimestamp="7").fail_on_missing_timestamp
    assert not topics(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest").fail_on_missing_timestamp
    assert not topics(since="1h").fail_on_missing_timestamp
    assert topics(since="1h", startingOffsetsByTimestampStrategy="error").fail_on_missing_timestamp
    assert_rejected("since", "startingTimestamp", since="1h", startingTimestamp="7")


# patterns


@pytest.mark.parametrize(
    "pattern",
    [
        "orders.*",
        r"orders\.(eu|us)",
        "[a-z0-9_-]+",
        "[^.]+",
        "(?i)ORDERS",
        "(?:a|b)*?",
        "a{2,3}+",
        "(?<=o)x|(?!x)y",
        r"(a)\1",
        r"\x61",
        r"\w+\.\d{4}",
        "(?>a)b",
        "(?i:a)b",
    ],
)
def test_topic_pattern_with_equal_meaning_in_java_and_python_is_accepted(pattern: str) -> None:
    assert topics(drop=("subscribe",), subscribePattern=pattern).topics.pattern == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        r"\Qa.b\E",
        r"\p{L}+",
        r"\h",
        r"a\Z",
        r"a\z",
        r"\v",
        r"\101",
        r"\056",
        r"[\b]",
        "[a-z&&[^b]]",
        "[a[b]]",
        "[]a]",
        "[^]a]",
        "(?P<n>a)",
        "(?<n>a)",
        "(?#x)a",
        "(?x)a b",
        "(?u)a",
        "a(?i)b",
        "a{,3}",
        "a{x}",
        "{",
        "(a)(?(1)b|c)",
        "a(",
        "*a",
        "[z-a]",
        "",
        "a**",
        "[a--b]",
    ],
)
def test_topic_pattern_that_only_java_or_python_supports_is_rejected(pattern: str) -> None:
    with pytest.raises(OptionError, match="option subscribePattern"):
        topics(drop=("subscribe",), subscribePattern=pattern)


def test_topic_pattern_matches_only_ascii_digits_as_in_java() -> None:
    assert topic_pattern(r"\d").fullmatch("٣") is None


@given(st.text(r"\[]{}()?*+^$|.-&ab01dDQEZzpPixsu<>=!:,", max_size=12))
def test_topic_pattern_of_arbitrary_text_compiles_or_raises_an_option_error(text: str) -> None:
    with suppress(OptionValueError):
        topic_pattern(text)


# security


def test_tls_options_accept_pem_files() -> None:
    settings = topics(
        **{
            "kafka.security.protocol": "ssl",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.ssl.keystore.location": "/me.pem",
            "kafka.ssl.key.password": "secret",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    tls = settings.connection.tls
    assert tls is not None
    assert (tls.truststore_location, tls.keystore_location) == ("/ca.pem", "/me.pem")
    assert tls.key_password == "secret"
    assert not tls.verify_hostname


@pytest.mark.parametrize(
    "store",
    [
        {"kafka.ssl.truststore.type": "JKS", "kafka.ssl.truststore.location": "/ca"},
        {"kafka.ssl.truststore.location": "/ca.jks"},
        {"kafka.ssl.truststore.location": "/ca", "kafka.ssl.truststore.password": "hunter2"},
        {"kafka.ssl.keystore.type": "PKCS12", "kafka.ssl.keystore.location": "/me"},
    ],
)
def test_tls_option_with_a_java_store_is_rejected_with_conversion_commands(store: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"keytool -importkeystore.*openssl pkcs12") as caught:
        topics(**{"kafka.security.protocol": "SSL", **store})
    assert "hunter2" not in str(caught.value)


def test_the_error_for_a_sasl_option_lists_the_supported_protocols() -> None:
    assert_rejected("SASL_SSL", "PLAINTEXT or SSL", "no SASL", **{"kafka.security.protocol": "SASL_SSL"})


def test_option_errors_never_contain_secret_values() -> None:
    secret = {option.name for option in OPTIONS if option.is_secret}
    assert {"kafka.ssl.keystore.key", "kafka.ssl.key.password"} <= secret
    with pytest.raises(OptionError) as caught:
        topics(**{"kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": "hunter2"})
    assert "hunter2" not in str(caught.value)


# columns


class _Type:
    def __init__(self, text: str) -> None:
        self._text = text

    def simpleString(self) -> str:  # noqa: N802  as pyspark's
        return self._text


class _Field:
    def __init__(self, name: str, text: str, nullable: bool = True) -> None:
        self.name, self.dataType, self.nullable = name, _Type(text), nullable


class _Schema:
    """The parts of pyspark's StructType that are used, because a pure test does not load pyspark."""

    def __init__(self, *fields: _Field) -> None:
        self.fields = list(fields)


def test_declared_topic_columns_equal_those_of_sparks_kafka_connector() -> None:
    assert declared_schema(TOPIC) == (
        "`key` BINARY, `value` BINARY, `topic` STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, "
        "`timestampType` INT"
    )
    with_headers = declared_schema({**TOPIC, "includeheaders": "true"})
    assert with_headers.endswith("`headers` ARRAY<STRUCT<key: STRING, value: BINARY>>")


def test_option_columns_selects_columns_in_any_order_and_case() -> None:
    assert declared_schema({**TOPIC, "columns": "timestamptype, Offset"}) == "`timestampType` INT, `offset` BIGINT"
    assert topics(columns="timestamptype,Offset").columns == ("timestampType", "offset")
    assert_rejected("there is no column ofset", "did you mean offset?", columns="ofset")
    assert_rejected("includeHeaders=true", columns="headers")
    assert_rejected("offset is there twice", columns="offset,offset")


def test_user_schema_may_be_a_subset_of_the_columns() -> None:
    schema: Any = _Schema(_Field("offset", "bigint"), _Field("key", "binary"))
    assert check_schema(TOPIC, schema) == ("offset", "key")
    headers: Any = _Schema(_Field("headers", "array<struct<key:string,value:binary>>"))
    assert check_schema({**TOPIC, "includeHeaders": "true"}, headers) == ("headers",)


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (_Field("value", "string"), "column value is BINARY, not STRING: cast it in the query"),
        (_Field("vlaue", "binary"), "did you mean value?"),
        (_Field("Value", "binary"), "write value"),
        (_Field("offset", "bigint", nullable=False), "may be NULL"),
    ],
)
def test_user_schema_with_an_unknown_column_or_wrong_type_is_rejected(field: Any, reason: str) -> None:
    schema: Any = _Schema(field)
    with pytest.raises(OptionError) as caught:
        check_schema(TOPIC, schema)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([], "the schema has no column"),
        ([_Field("offset", "bigint"), _Field("offset", "bigint")], "column offset twice"),
    ],
)
def test_user_schema_without_columns_or_with_a_not_null_column_is_rejected(fields: list[Any], reason: str) -> None:
    schema: Any = _Schema(*fields)
    with pytest.raises(OptionError, match=reason):
        check_schema(TOPIC, schema)


def test_user_schema_that_differs_from_option_columns_is_rejected() -> None:
    schema: Any = _Schema(_Field("offset", "bigint"), _Field("key", "binary"))
    assert check_schema({**TOPIC, "columns": "Offset,key"}, schema) == ("offset", "key")
    for columns in ("offset", "key,offset"):
        with pytest.raises(OptionError, match="give one of them"):
            check_schema({**TOPIC, "columns": columns}, schema)


def test_user_schema_with_not_null_inside_an_array_or_struct_is_rejected() -> None:
    name, value = StructField("key", StringType()), StructField("value", BinaryType())
    fine = ArrayType(StructType([name, value]))
    rejected_types = [
        ArrayType(StructType([StructField("key", StringType(), nullable=False), value])),
        ArrayType(StructType([name, value]), containsNull=False),
    ]
    options = {**TOPIC, "includeHeaders": "true"}
    assert check_schema(options, StructType([StructField("headers", fine)])) == ("headers",)
    for kind in rejected_types:
        with pytest.raises(OptionError, match="column headers may be NULL"):
            check_schema(options, StructType([StructField("headers", kind)]))


# tables


def test_table_options_accept_brokers_or_a_folder() -> None:
    assert table(table="Partitions", columns="topic,leader").columns == ("topic", "leader")
    settings = parse_read({"table": "topics", "folder": "/data"}, is_stream=False, now_ms=NOW_MS)
    assert isinstance(settings, TableSettings)
    assert (settings.connection, settings.folder) == (None, "/data")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"table": "partitons"}, "did you mean partitions?"),
        ({"table": "topics", "folder": "/data"}, "give one of them"),
        ({"table": "topics", "columns": "topik"}, "did you mean topic?"),
        ({"table": "topics", "withDocs": "true"}, "withDocs is for configs"),
        ({"table": "topics", "metrics": "h:1"}, "metrics is for metrics"),
        ({"table": "metrics"}, "table metrics needs option metrics"),
        ({"table": "groups", "asOfOffset": "5"}, "asOfOffset is for brokers"),
        ({"table": "topics", "asOfOffset": "5", "asOfTimestamp": "1h"}, "give one of them"),
        ({"table": "topics", "fromOffset": "5"}, "fromOffset is for metadata_diff"),
        ({"table": "topics", "startingOffsets": "earliest"}, "startingOffsets is for"),
        ({"table": "offset_commits", "startingOffsets": "5"}, "startingOffsets"),
        ({"table": "metadata_events", "startingOffsets": "-5"}, "startingOffsets=-5"),
        ({"table": "topics", "subscribe": "a"}, "subscribe is for"),
    ],
)
def test_table_read_rejects_options_without_meaning_for_tables(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        table(**options)
    assert reason in str(caught.value)


def test_table_that_cannot_be_read_from_the_metadata_log_needs_the_option_for_brokers() -> None:
    with pytest.raises(OptionError, match="table groups is not in a folder"):
        parse_read({"table": "groups", "folder": "/data"}, is_stream=False, now_ms=NOW_MS)
    with pytest.raises(OptionError, match=r"table topics needs kafka\.bootstrap\.servers.*folder"):
        parse_read({"table": "topics"}, is_stream=False, now_ms=NOW_MS)


def test_as_of_options_accept_an_offset_or_a_time() -> None:
    assert table(table="topics", asOfOffset="5").as_of == When(offset=5)
    assert table(table="topics", asOfTimestamp="1h").as_of == When(timestamp_ms=NOW_MS - HOUR_MS)
    settings = table(table="metadata_diff", fromOffset="5", toTimestamp="9000")
    assert (settings.from_, settings.to) == (When(offset=5), When(timestamp_ms=9000))


def test_metadata_events_accepts_a_starting_offset_that_is_only_a_number() -> None:
    settings = table(table="metadata_events", startingOffsets="17", is_stream=True, maxOffsetsPerTrigger="9")
    assert settings.starting == Position(kind="offsets", offsets={"__cluster_metadata": {0: 17}})
    assert settings.offsets_per_trigger_max == 9
    assert (
        without_effect({"bootstrap": "one:1", "table": "metadata_events", "startingOffsets": "17"}, is_stream=True)
        == ()
    )
    assert table(table="metadata_events", startingOffsets="earliest").starting == Position(kind="earliest")


def test_stream_of_a_table_that_cannot_be_streamed_is_rejected() -> None:
    with pytest.raises(OptionError, match=r"table topics cannot be read as a stream: .*metadata_events"):
        table(table="topics", is_stream=True)


# sinks


def test_sink_options_need_only_brokers() -> None:
    settings = parse_write({"bootstrap": "one:1"})
    assert settings.topic is None
    assert settings.transactional_id_prefix is None
    settings = parse_write(
        {
            "kafka.bootstrap.servers": "one:1",
            "topic": "out",
            "markRecords": "true",
            "transactionalIdPrefix": "p",
            "progressTopic": "progress",
            "kafka.compression.type": "ZSTD",
            "kafka.batch.size": "2000",
            "kafka.acks": "all",
        }
    )
    assert (settings.topic, settings.mark_records, settings.transactional_id_prefix) == ("out", True, "p")
    assert (settings.progress_topic, settings.compression, settings.batch_bytes) == ("progress", "zstd", 2000)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "a,b"}, "option topic=a,b"),
        ({"kafka.compression.type": "rar"}, "zstd"),
        ({"kafka.buffer.memory": "10"}, "no batch would fit"),
        ({"progressTopic": "p"}, "transactionalIdPrefix"),
        ({"markRecord": "true"}, "did you mean markRecords?"),
    ],
)
def test_sink_rejects_options_without_meaning_for_sinks(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write({"bootstrap": "one:1", **options})
    assert reason in str(caught.value)


def test_kafka_settings_without_effect_on_a_sink_are_listed() -> None:
    assert without_effect_on_sink({"bootstrap": "one:1", "kafka.acks": "all"}) == ("kafka.acks",)


# the table of options


class TestTable:
    kinds: ClassVar = list(Kind)

    def test_option_names_are_unique_within_each_kind_of_read_or_write(self) -> None:
        for kind in self.kinds:
            assert len(options_of(kind)) == sum(kind in option.kinds for option in OPTIONS)

    def test_options_page_names_every_option(self) -> None:
        page = render_options()
        for option in OPTIONS:
            assert f"| `{option.name}` |" in page
            assert option.meaning


@given(st.dictionaries(st.sampled_from([option.name for option in OPTIONS]), st.text(max_size=8), max_size=6))
def test_arbitrary_options_give_settings_or_an_option_error(options: dict[str, str]) -> None:
    for parse in (
        lambda: parse_read({**TOPIC, **options}, is_stream=True, now_ms=NOW_MS),
        lambda: parse_read(options, is_stream=False, now_ms=NOW_MS),
        lambda: parse_write(options),
        lambda: declared_schema(options),
    ):
        with suppress(OptionError):
            parse()


def test_arbitrary_json_offsets_give_settings_or_an_option_error() -> None:
    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one) | _maps(one)))
    def check(value: Any) -> None:
        with suppress(OptionError):
            topics(startingOffsets=json.dumps(value))

    check()


def _maps(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(["orders", "0", "*", "x"]), one)


def test_importing_the_option_parsers_loads_neither_pyspark_nor_trio() -> None:
    code = (
        "import sys, kraft.client.spark.options, kraft.client.spark.predicates\n"
        "assert not {'pyspark', 'trio', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])
