"""Resolve the options for the positions at which a read begins and ends. If several options are given, one of them has
precedence.
"""

from __future__ import annotations

from collections.abc import Collection

from kraft.client.spark.options.given import OptionError, ParsedOptions
from kraft.client.spark.options.table import Kind
from kraft.client.spark.options.values import moment_ms
from kraft.client.spark.settings import EARLIEST, EVERY_PARTITION, LATEST, PartitionValues, Position, TopicSelection


def starting_of(given: ParsedOptions, topics: TopicSelection, now_ms: int) -> Position | None:
    """Return the position at which the read begins, or None if no option sets it. Times have precedence over offsets.
    One time for all partitions has precedence over times per partition."""
    single = given.only_one("startingTimestamp", "since")
    if single == "since" and given.has("startingOffsetsByTimestamp"):
        raise OptionError("since and startingOffsetsByTimestamp are both given: give one of them")
    if single is not None:
        return Position(kind="timestamp", timestamp_ms=moment_ms(given.get(single), now_ms))
    position = _of_maps(given, "startingOffsetsByTimestamp", "startingOffsets", topics)
    if position is not None and given.kind is Kind.BATCH:
        if position.kind == "latest":
            raise OptionError("option startingOffsets=latest: a batch would read nothing; give earliest or offsets")
        _refuse_offset(position, "startingOffsets", LATEST, "a batch cannot begin at the latest offset (-1)")
    return position


def ending_of(given: ParsedOptions, topics: TopicSelection, now_ms: int) -> Position | None:
    """Return the position at which a batch ends; None if no option sets it, which means latest. Options have the same
    precedence as in `starting_of`."""
    if given.has("endingTimestamp"):
        return Position(kind="timestamp", timestamp_ms=moment_ms(given.get("endingTimestamp"), now_ms))
    position = _of_maps(given, "endingOffsetsByTimestamp", "endingOffsets", topics)
    if position is not None and position.kind == "earliest":
        raise OptionError("option endingOffsets=earliest: nothing would be read; give latest or offsets")
    if position is not None:
        _refuse_offset(position, "endingOffsets", EARLIEST, "a batch cannot end at the earliest offset (-2)")
    return position


def fails_on_missing_timestamp(given: ParsedOptions) -> bool:
    """Whether it is an error if a partition has no record at or after the requested starting time."""
    default = "latest" if given.has("since") else "error"
    return bool(given.get("startingOffsetsByTimestampStrategy", default) == "error")


def _of_maps(given: ParsedOptions, times: str, offsets: str, topics: TopicSelection) -> Position | None:
    if given.has(times):
        _check_names(times, given.get(times), topics)
        return Position(kind="timestamps", timestamps=given.get(times))
    value = given.get(offsets)
    if value is None or value == "latest" or value == "earliest":
        return None if value is None else Position(kind=value)
    _check_names(offsets, value, topics)
    return Position(kind="offsets", offsets=value)


def _refuse_offset(position: Position, option: str, refused: int, why: str) -> None:
    for topic, partitions in position.offsets.items():
        if refused in partitions.values():
            raise OptionError(f"option {option}, topic {topic}: {why}")


def _check_names(option: str, values: PartitionValues, topics: TopicSelection) -> None:
    """Raise OptionError unless a position names exactly the topics that are read and, with `assign`, exactly their
    partitions."""
    wanted = topics.subscribe if topics.assign is None else tuple(topics.assign)
    if wanted is None:
        return
    _check_same(option, "topic", values, wanted)
    for topic, partitions in (topics.assign or {}).items():
        if EVERY_PARTITION not in values[topic]:
            _check_same(option, f"topic {topic}, partition", values[topic], partitions)


def _check_same(option: str, subject: str, named: Collection[object], wanted: Collection[object]) -> None:
    missing = [one for one in wanted if one not in named]
    if missing:
        raise OptionError(
            f"option {option}: {subject} {missing[0]} is read but not named: name all "
            '({"TOPIC":{"*":-2}} stands for all partitions of a topic)'
        )
    extra = [one for one in named if one not in wanted]
    if extra:
        raise OptionError(f"option {option}: {subject} {extra[0]} is named but not read: leave it out, or read it too")
