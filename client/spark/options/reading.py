"""Parse the options of a read of topics or of a table into settings."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.client.spark.options.connection import connection_of, fetch_of, is_connected
from kraft.client.spark.options.given import OptionError, ParsedOptions, lowered, parse_option, read_given
from kraft.client.spark.options.positions import ending_of, fails_on_missing_timestamp, starting_of
from kraft.client.spark.options.schemas import check_columns, table_named
from kraft.client.spark.options.table import OPTIONS, Kind
from kraft.client.spark.options.values import OptionValueError, moment_ms, number
from kraft.client.spark.settings import Position, TableSettings, TopicSelection, TopicSettings, When
from kraft.client.spark.tables import TABLES, ColumnSource, Table

METADATA_LOG = "__cluster_metadata"
_METADATA_EVENTS, _METADATA_DIFF, _METRICS = "metadata_events", "metadata_diff", "metrics"
_STARTS = ("startingOffsets", "startingTimestamp", "since")


def parse_read(options: Mapping[str, str], *, is_stream: bool, now_ms: int) -> TopicSettings | TableSettings:
    """Parse the options of a batch or stream into settings. `now_ms` is the current time (ms since 1970) that `since`
    and other durations count back from. Raises OptionError for unknown, invalid or conflicting options."""
    if "table" in lowered(options):
        return _table_settings(options, is_stream, now_ms)
    given = read_given(options, Kind.STREAM if is_stream else Kind.BATCH)
    topics = _selection(given)
    settings = TopicSettings(
        connection=connection_of(given),
        topics=topics,
        starting=starting_of(given, topics, now_ms),
        ending=ending_of(given, topics, now_ms),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        fail_on_missing_timestamp=fails_on_missing_timestamp(given),
        fetch=fetch_of(given),
        include_headers=given.get("includeHeaders", False),
        columns=check_columns(options, given.get("columns")),
        partitions_min=given.get("minPartitions"),
        records_per_partition_max=given.get("maxRecordsPerPartition"),
        push_timestamp_end=given.get("pushTimestampEnd", False),
        offsets_per_trigger_max=given.get("maxOffsetsPerTrigger"),
        offsets_per_trigger_min=given.get("minOffsetsPerTrigger"),
        bytes_per_trigger_max=given.get("maxBytesPerTrigger"),
        trigger_delay_max_ms=given.get("maxTriggerDelay", 15 * 60 * 1000),
        poll_interval_ms=given.get("pollInterval", 100),
        commit_group=given.get("commitGroup"),
    )
    least, most = settings.offsets_per_trigger_min, settings.offsets_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    return settings


def without_effect(options: Mapping[str, str], *, is_stream: bool) -> tuple[str, ...]:
    """Return the names of options accepted without effect, for one log line. Raises the OptionErrors
    of `parse_read`."""
    is_table = "table" in lowered(options)
    kind = Kind.TABLE if is_table else Kind.STREAM if is_stream else Kind.BATCH
    return read_given(_without_plain_start(options) if is_table else options, kind).without_effect


def _selection(given: ParsedOptions) -> TopicSelection:
    which = given.only_one("subscribe", "topic", "subscribePattern", "assign")
    if which is None:
        raise OptionError(
            "no topic is named: give one of the options subscribe, subscribePattern and assign; "
            "or table, for a table of the cluster's state"
        )
    value = given.get(which)
    if which == "subscribePattern":
        return TopicSelection(pattern=value)
    return TopicSelection(assign=value) if which == "assign" else TopicSelection(subscribe=value)


def _table_settings(options: Mapping[str, str], is_stream: bool, now_ms: int) -> TableSettings:
    given = read_given(_without_plain_start(options), Kind.TABLE)
    table = table_named(given.get("table"))
    if is_stream and not table.is_streamable:
        raise OptionError(f"table {table.name} cannot be read as a stream: {_listed('is_streamable')} can")
    _check_scope(given, table)
    return TableSettings(
        table=table.name,
        connection=connection_of(given) if is_connected(given) else None,
        folder=_folder(given, table),
        columns=check_columns(options, given.get("columns")),
        as_of=_when(given, "asOf", now_ms),
        from_=_when(given, "from", now_ms),
        to=_when(given, "to", now_ms),
        starting=_table_start(given, options, table, now_ms),
        offsets_per_trigger_max=given.get("maxOffsetsPerTrigger"),
        with_docs=given.get("withDocs", False),
        with_lag_time=given.get("withLagTime", False),
        metrics=_metrics(given, table),
    )


def _check_scope(given: ParsedOptions, table: Table) -> None:
    """Raise OptionError for an option that has no effect on this table."""
    scopes = {
        "withDocs": ("configs",),
        "withLagTime": ("group_offsets",),
        "metrics": (_METRICS,),
        **dict.fromkeys(("fromOffset", "fromTimestamp", "toOffset", "toTimestamp"), (_METADATA_DIFF,)),
        **dict.fromkeys((*_STARTS, "maxOffsetsPerTrigger"), _names("is_streamable")),
        **dict.fromkeys(("asOfOffset", "asOfTimestamp"), _names("has_time_travel")),
    }
    for option, tables in scopes.items():
        if given.has(option) and table.name not in tables:
            raise OptionError(f"option {option} is for {', '.join(tables)}, not for table {table.name}: leave it out")


def _names(flag: str) -> tuple[str, ...]:
    return tuple(table.name for table in TABLES.values() if getattr(table, flag))


def _listed(flag: str) -> str:
    return ", ".join(_names(flag))


def _folder(given: ParsedOptions, table: Table) -> str | None:
    """Return the data folder if the table is read from one. Raises OptionError unless either brokers or a folder are
    given, or if the table cannot be read from a folder."""
    folder: str | None = given.get("folder")
    if folder is None:
        if not is_connected(given) and table.name != _METRICS:
            raise OptionError(f"table {table.name} needs kafka.bootstrap.servers=HOST:PORT,..., or folder=DATA-FOLDER")
        return None
    if is_connected(given):
        raise OptionError("folder and kafka.bootstrap.servers are both given: give one of them")
    is_all_log = any(column.source is ColumnSource.LOG for column in table.columns) and table.name.startswith(
        "metadata_"
    )
    if not (table.has_time_travel or is_all_log):
        raise OptionError(f"table {table.name} is not in a folder: give kafka.bootstrap.servers=HOST:PORT,...")
    return folder


def _metrics(given: ParsedOptions, table: Table) -> tuple[str, ...]:
    """Return the metrics endpoints to read. Raises OptionError if the table is `metrics` and no endpoint is given."""
    endpoints: tuple[str, ...] = given.get("metrics", ())
    if table.name == _METRICS and not endpoints:
        raise OptionError("table metrics needs option metrics=HOST:PORT,... of what exports Prometheus metrics")
    return endpoints


def _when(given: ParsedOptions, prefix: str, now_ms: int) -> When | None:
    which = given.only_one(f"{prefix}Offset", f"{prefix}Timestamp")
    if which is None:
        return None
    if which.endswith("Offset"):
        return When(offset=given.get(which))
    return When(timestamp_ms=moment_ms(given.get(which), now_ms))


def _without_plain_start(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without a `startingOffsets` that is only a number. Such a value is valid only for
    metadata_events, not for topics."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() != "startingoffsets" or not value.strip().lstrip("-").isdigit()
    }


def _table_start(given: ParsedOptions, options: Mapping[str, str], table: Table, now_ms: int) -> Position | None:
    plain = lowered(options).get("startingoffsets", "").strip()
    if plain.lstrip("-").isdigit():
        given = _with_plain_start(given, plain, table)
    if given.only_one(*_STARTS) is None:
        return None
    topics = TopicSelection(subscribe=(METADATA_LOG if table.name == _METADATA_EVENTS else "__consumer_offsets",))
    return starting_of(given, topics, now_ms)


def _with_plain_start(given: ParsedOptions, plain: str, table: Table) -> ParsedOptions:
    """Replace a `startingOffsets` that is only a number by the equal map of topic and partition to offset. Raises
    OptionError for tables other than metadata_events."""
    option = next(one for one in OPTIONS if one.name == "startingOffsets")
    if table.name != _METADATA_EVENTS:
        parse_option(option, plain)  # raises: a number alone is valid only for a log with one partition
    try:
        offset = number(0)(plain)
    except OptionValueError as problem:
        raise OptionError(f"option startingOffsets={plain}: {problem}, or earliest or latest") from None
    return ParsedOptions(
        given.kind, {**given.values, "startingOffsets": {METADATA_LOG: {0: offset}}}, given.without_effect
    )
