"""`kraft topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_topic, complete_topic_setting
from kraft.deploy.cli.connection import ClusterConnection, over_network, pair
from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    confirm,
    emphasized,
    plain,
    plural,
    print_json,
    show,
    table,
)
from kraft.deploy.cli.several import NameResult, attempt_each, report_results

if TYPE_CHECKING:
    from kraft.client.admin import Admin, CreatedTopic, PartitionDescription, TopicDescription

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True, rich_markup_mode=None)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC…", autocompletion=complete_topic)]

PARTITIONS_MAX = 1_000_000
"""Maximum number of partitions in an argument. It is more than a cluster can have, and few enough to be enumerated."""

INT32_MAX = (1 << 31) - 1
INT16_MAX = (1 << 15) - 1

MIN_ISR = "min.insync.replicas"

_PARTITION_COLUMNS = ("topic", "partition", "leader", "epoch", "replicas", "isr", "elr", "last_known_elr", "offline")


@app.command()
@over_network
def create(
    connection: ClusterConnection,
    topic: TopicsArgument,
    partitions: Annotated[int, typer.Option(max=INT32_MAX, help="-1: the brokers' num.partitions.")] = -1,
    replication_factor: Annotated[
        int, typer.Option(max=INT16_MAX, help="-1: the brokers' default.replication.factor.")
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="KEY=VALUE",
            help="A topic setting; may be repeated.",
            autocompletion=complete_topic_setting,
        ),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            metavar="1:2:3,…", help="Replicas of each partition, the preferred one first; replaces the numbers."
        ),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check whether it is possible; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create topics, all with the same partitions, replication factor and settings."""
    settings = dict(pair(entry, "--config") for entry in config or ())
    assignment = _parse_assignment(replica_assignment)

    async def work(admin: Admin) -> list[NameResult[CreatedTopic | None]]:
        from kraft.client import KafkaError
        from kraft.client.admin import NewTopic
        from kraft.wire.error_codes import ErrorCode

        async def create_one(name: str) -> CreatedTopic | None:
            wanted = NewTopic(name, partitions, replication_factor, settings, assignment)
            try:
                return await admin.topics.create(wanted, validate_only=validate_only)
            except KafkaError as problem:
                if if_not_exists and problem.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return None
                raise

        return await attempt_each(topic, create_one)

    def row(name: str, got: CreatedTopic | None) -> dict[str, object]:
        if got is None:
            return {"topic": name, "created": False, "exists": True}
        shape = {"partitions": got.partitions, "replication_factor": got.replication_factor}
        return {"topic": name, "created": not validate_only, **shape}

    def line(name: str, got: CreatedTopic | None) -> str:
        if got is None:
            return f"topic {name} is there already"
        verb = "could be created" if validate_only else "created"
        return f"topic {name} {verb}: {shape_text(got.partitions, got.replication_factor)}"

    report_results(connection.run(work), "topic", as_json, row, line)


@app.command("list")
@over_network
def list_topics(
    connection: ClusterConnection,
    pattern: Annotated[
        str | None, typer.Argument(metavar="[REGEX]", help="Only topics whose name matches this regular expression.")
    ] = None,
    internal: Annotated[bool, typer.Option(help="Show Kafka's own topics too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """List the topics."""
    wanted = compiled(pattern)
    topics = [
        topic
        for topic in connection.run(lambda admin: admin.topics.list())
        if wanted.search(topic.name) and (internal or not topic.is_internal)
    ]
    rows = [
        (
            topic.name,
            len(topic.partitions),
            topic.replication_factor,
            topic.is_internal,
            sum(1 for part in topic.partitions if part.is_under_replicated),
        )
        for topic in topics
    ]
    show(as_json, ["topic", "partitions", "replicas", "internal", "under_replicated"], rows)


@app.command()
@over_network
def describe(
    connection: ClusterConnection,
    topic: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Default: all.", autocompletion=complete_topic)
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions that have replicas out of sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only partitions without a leader.")] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option("--under-min-isr", help="Only partitions with fewer replicas in sync than min.insync.replicas."),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option("--at-min-isr", help="Only partitions with exactly min.insync.replicas replicas in sync."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show partitions: leader, replicas, ISR, and eligible leader replicas (ELR); and settings of the topic itself."""
    if under_min_isr and at_min_isr:
        raise CommandFailed("give either --under-min-isr or --at-min-isr: no partition is both", code=EXIT_USAGE)
    if topic and not (under_replicated or unavailable or under_min_isr or at_min_isr):
        _describe_each(connection, topic, as_json)
        return

    async def work(admin: Admin) -> tuple[tuple[TopicDescription, ...], dict[str, int]]:
        found = await admin.topics.describe_partitions(topic or None)
        return found, await _least_in_sync(admin, found) if under_min_isr or at_min_isr else {}

    found, least = connection.run(work)

    def is_wanted(part: PartitionDescription) -> bool:
        spare = len(part.isr) - least[part.topic] if part.topic in least else None
        return (
            (part.is_under_replicated or not under_replicated)
            and (part.leader is None or not unavailable)
            and ((spare is not None and spare < 0) or not under_min_isr)
            and (spare == 0 or not at_min_isr)
        )

    rows = [_partition_row(part) for one in found for part in one.partitions if is_wanted(part)]
    show(as_json, _PARTITION_COLUMNS, rows)


@app.command()
@over_network
def alter(
    connection: ClusterConnection,
    topic: TopicArgument,
    partitions: Annotated[
        int, typer.Option(min=1, max=INT32_MAX, help="The new number of partitions; it can only grow.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Add partitions to a topic."""
    connection.run(lambda admin: admin.topics.add_partitions(topic, partitions))
    if as_json:
        print_json({"topic": topic, "partitions": partitions})
    else:
        print(f"topic {topic} now has {plural(partitions, 'partition')}")


@app.command()
@over_network
def delete(
    connection: ClusterConnection,
    topic: TopicsArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Delete internal topics (__…) without confirmation; other topics never need one."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete topics and their records."""

    internal = [name for name in topic if name.startswith("__")]
    if internal:
        confirm(f"delete {', '.join(internal)}, which the brokers need themselves?", is_confirmed=yes)

    async def work(admin: Admin) -> list[NameResult[bool]]:
        from kraft.client import KafkaError
        from kraft.wire.error_codes import ErrorCode

        async def delete_one(name: str) -> bool:
            try:
                await admin.topics.delete(name)
            except KafkaError as problem:
                if if_exists and problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return False
                raise
            return True

        return await attempt_each(topic, delete_one)

    def line(name: str, was_there: bool) -> str:
        return f"topic {name} {'deleted' if was_there else 'was not there'}"

    report_results(connection.run(work), "topic", as_json, lambda name, done: {"topic": name, "deleted": done}, line)


async def shape_of(admin: Admin, topic: str) -> tuple[int, int] | None:
    """Return the number of partitions and the replication factor of a topic. None if no broker has the topic in its
    metadata yet: brokers learn of a new topic at different times."""
    from kraft.client import KafkaError
    from kraft.client.cluster import ClusterUnreachable

    try:
        (found,) = await admin.topics.describe([topic])
    except (KafkaError, ClusterUnreachable):
        return None
    return len(found.partitions), found.replication_factor


def shape_text(partitions: int, replication_factor: int) -> str:
    """Return `1 partition, 2 replicas`, or `3 partitions, 2 replicas each`."""
    each = "" if partitions == 1 else " each"
    return f"{plural(partitions, 'partition')}, {plural(replication_factor, 'replica')}{each}"


def compiled(pattern: str | None) -> re.Pattern[str]:
    """Return the compiled regular expression; for None, an expression that matches everything."""
    try:
        return re.compile(pattern or "")
    except re.error as problem:
        raise CommandFailed(f"{pattern!r} is not a regular expression: {problem}", code=EXIT_USAGE) from None


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse `TOPIC` or `TOPIC:0,2-4` into a topic and its partitions (None: all)."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    chosen: list[int] = []
    for entry in numbers.split(","):
        low, dash, high = entry.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise CommandFailed(f"{text}: expected TOPIC or TOPIC:0,2-4", code=EXIT_USAGE)
        first, last = int(low), int(high or low)
        if not first <= last < PARTITIONS_MAX:
            raise CommandFailed(
                f"{text}: {entry} is no range of partitions: expected the lower number first, and all below "
                f"{PARTITIONS_MAX:,}",
                code=EXIT_USAGE,
            )
        chosen += range(first, last + 1)
    return topic, sorted(set(chosen))


async def choose_partitions(admin: Admin, wanted: Iterable[str]) -> list[tuple[str, int]]:
    """Return the partitions that arguments such as `TOPIC` and `TOPIC:0,2-4` name, in order. Raise CommandFailed if one
    does not exist."""
    return list(await choose_described(admin, wanted))


async def choose_described(admin: Admin, wanted: Iterable[str]) -> dict[tuple[str, int], PartitionDescription]:
    """Return the descriptions of the partitions that these arguments name. See `choose_partitions`."""
    parsed = [parse_partitions(text) for text in wanted]
    found = {topic.name: topic for topic in await admin.topics.describe([topic for topic, _ in parsed])}
    chosen: dict[tuple[str, int], PartitionDescription] = {}
    for topic, numbers in parsed:
        there = {part.index: part for part in found[topic].partitions}
        for number in there if numbers is None else numbers:
            if number not in there:
                raise CommandFailed(
                    f"topic {topic} has partitions 0 to {len(there) - 1}, not {number}", code=EXIT_NOT_FOUND
                )
            chosen[(topic, number)] = there[number]
    return dict(sorted(chosen.items()))


async def offsets_at_time(
    admin: Admin, time_ms: int, ends: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Return for each partition the offset of its first record at or after this time, but never more than its offset in
    `ends`. So records that are written later are left out."""
    found = await admin.partitions.offsets(dict.fromkeys(ends, time_ms))
    return {tp: min(found[tp].offset, end) if found[tp].offset >= 0 else end for tp, end in ends.items()}


def _parse_assignment(text: str | None) -> dict[int, list[int]]:
    if text is None:
        return {}
    try:
        return {at: [int(node) for node in entry.split(":")] for at, entry in enumerate(text.split(","))}
    except ValueError:
        raise CommandFailed(
            f"--replica-assignment {text}: expected broker ids as 1:2,2:3 (two partitions, two replicas each)",
            code=EXIT_USAGE,
        ) from None


def _partition_row(part: PartitionDescription) -> tuple[object, ...]:
    placed = (part.replicas, part.isr, part.elr, part.last_known_elr, part.offline)
    return (part.topic, part.index, part.leader, part.leader_epoch, *placed)


def _describe_each(connection: ClusterConnection, topics: list[str], as_json: bool) -> None:
    columns = _PARTITION_COLUMNS[1:]

    async def work(admin: Admin) -> list[NameResult[tuple[TopicDescription, dict[str, str]]]]:
        async def describe_one(name: str) -> tuple[TopicDescription, dict[str, str]]:
            (found,) = await admin.topics.describe_partitions([name])
            return found, await _own_settings(admin, name)

        return await attempt_each(list(dict.fromkeys(topics)), describe_one)

    def row(name: str, told: tuple[TopicDescription, dict[str, str]]) -> dict[str, object]:
        topic, settings = told
        partitions = [dict(zip(columns, _partition_row(part)[1:], strict=True)) for part in topic.partitions]
        return {"topic": name, "id": plain(topic.topic_id), "settings": settings, "partitions": partitions}

    def lines(name: str, told: tuple[TopicDescription, dict[str, str]]) -> str:
        topic, settings = told
        own = ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))
        head = f"topic {emphasized(name)}  id {plain(topic.topic_id)}  settings {own or '-'}"
        return f"{head}\n{table(columns, [_partition_row(part)[1:] for part in topic.partitions])}"

    report_results(connection.run(work), "topic", as_json, row, lines)


async def _least_in_sync(admin: Admin, topics: Iterable[TopicDescription]) -> dict[str, int]:
    """Return min.insync.replicas of each topic. Topics that were deleted in the meantime are missing."""
    from kraft.client import KafkaError
    from kraft.client.admin import ConfigResource, ResourceType
    from kraft.wire.error_codes import ErrorCode

    least: dict[str, int] = {}
    for topic in topics:
        try:
            entries = await admin.configs.describe(ConfigResource(ResourceType.TOPIC, topic.name))
        except KafkaError as problem:
            if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        least[topic.name] = next((int(entry.value or 0) for entry in entries if entry.name == MIN_ISR), 0)
    return least


async def _own_settings(admin: Admin, topic: str) -> dict[str, str]:
    from kraft.client.admin import ConfigResource, ConfigSource, ResourceType

    entries = await admin.configs.describe(ConfigResource(ResourceType.TOPIC, topic))
    return {entry.name: str(entry.value) for entry in entries if entry.source is ConfigSource.TOPIC}
