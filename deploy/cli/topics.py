"""`kraft topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_topic
from kraft.deploy.cli.connection import Connection, over_network, pair
from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    emphasized,
    plural,
    print_json,
    print_table,
    show,
)

if TYPE_CHECKING:
    from kraft.client.admin import Admin, CreatedTopic, PartitionDescription, TopicDescription

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True, rich_markup_mode=None)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC…", autocompletion=complete_topic)]

_PARTITION_COLUMNS = ["topic", "partition", "leader", "epoch", "replicas", "isr", "offline"]


@app.command()
@over_network
def create(
    connection: Connection,
    topic: TopicsArgument,
    partitions: Annotated[int, typer.Option(help="-1: the brokers' num.partitions.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the brokers' default.replication.factor.")] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="1:2:3,…", help="Replicas of each partition, the preferred one first; no numbers then."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is fine.")] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Ask whether it could be; do nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create topics, all of the same shape."""
    settings = dict(pair(entry, "--config") for entry in config or ())
    assignment = _parse_assignment(replica_assignment)

    async def work(admin: Admin) -> list[tuple[str, CreatedTopic | None]]:
        from kraft.client import KafkaError
        from kraft.client.admin import NewTopic
        from kraft.wire.error_codes import ErrorCode

        done: list[tuple[str, CreatedTopic | None]] = []
        for name in topic:
            wanted = NewTopic(name, partitions, replication_factor, settings, assignment)
            try:
                done.append((name, await admin.topics.create(wanted, validate_only=validate_only)))
            except KafkaError as problem:
                if not (if_not_exists and problem.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                done.append((name, None))
        return done

    created = connection.run(work)
    if as_json:
        rows = [
            {"topic": name, "partitions": got.partitions, "replication_factor": got.replication_factor}
            if got is not None
            else {"topic": name, "exists": True}
            for name, got in created
        ]
        print_json(rows[0] if len(rows) == 1 else rows)
        return
    verb = "could be created" if validate_only else "created"
    for name, got in created:
        if got is None:
            print(f"topic {name} is there already")
        else:
            print(f"topic {name} {verb}: {plural(got.partitions, 'partition')}, {got.replication_factor} replicas each")


@app.command("list")
@over_network
def list_topics(
    connection: Connection,
    pattern: Annotated[str | None, typer.Argument(metavar="[REGEX]", help="Only topics whose name it finds.")] = None,
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
    connection: Connection,
    topic: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Default: all.", autocompletion=complete_topic)
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions that have replicas out of sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only partitions without a leader.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show partitions: leader, replicas, in-sync replicas; and the settings that are a topic's own."""

    async def work(admin: Admin) -> list[tuple[TopicDescription, dict[str, str]]]:
        found = await admin.topics.describe(topic) if topic else await admin.topics.list()
        return [(one, await _own_settings(admin, one.name) if topic else {}) for one in found]

    described = connection.run(work)
    if topic and not (under_replicated or unavailable):
        _show_topics(described, as_json)
        return

    def is_wanted(part: PartitionDescription) -> bool:
        return not (under_replicated and not part.is_under_replicated) and not (unavailable and part.leader is not None)

    rows = [_partition_row(part) for one, _ in described for part in one.partitions if is_wanted(part)]
    show(as_json, _PARTITION_COLUMNS, rows)


@app.command()
@over_network
def alter(
    connection: Connection,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions; it can only grow.")],
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
    connection: Connection,
    topic: TopicsArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is fine.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete topics and their records."""

    async def work(admin: Admin) -> list[str]:
        from kraft.client import KafkaError
        from kraft.wire.error_codes import ErrorCode

        deleted = []
        for name in topic:
            try:
                await admin.topics.delete(name)
                deleted.append(name)
            except KafkaError as problem:
                if not (if_exists and problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
        return deleted

    deleted = connection.run(work)
    if as_json:
        rows = [{"topic": name, "deleted": name in deleted} for name in topic]
        print_json(rows[0] if len(rows) == 1 else rows)
        return
    for name in topic:
        print(f"topic {name} {'deleted' if name in deleted else 'was not there'}")


def compiled(pattern: str | None) -> re.Pattern[str]:
    """A regular expression; without one, one that finds everything."""
    try:
        return re.compile(pattern or "")
    except re.error as problem:
        raise CommandFailed(f"{pattern!r} is not a regular expression: {problem}", code=EXIT_USAGE) from None


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """`TOPIC` or `TOPIC:0,2-4` as a topic and its partitions (None: all)."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    chosen: list[int] = []
    for entry in numbers.split(","):
        low, dash, high = entry.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise CommandFailed(f"{text}: expected TOPIC or TOPIC:0,2-4", code=EXIT_USAGE)
        chosen += range(int(low), int(high or low) + 1)
    return topic, sorted(set(chosen))


async def choose_partitions(admin: Admin, wanted: Iterable[str]) -> list[tuple[str, int]]:
    """The partitions that `TOPIC` and `TOPIC:0,2-4` name. CommandFailed for one that is not there."""
    parsed = [parse_partitions(text) for text in wanted]
    found = {topic.name: topic for topic in await admin.topics.describe([topic for topic, _ in parsed])}
    chosen: list[tuple[str, int]] = []
    for topic, numbers in parsed:
        there = [part.index for part in found[topic].partitions]
        for number in numbers or ():
            if number not in there:
                raise CommandFailed(
                    f"topic {topic} has partitions 0 to {len(there) - 1}, not {number}", code=EXIT_NOT_FOUND
                )
        chosen += [(topic, number) for number in (there if numbers is None else numbers)]
    return sorted(set(chosen))


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
    return (part.topic, part.index, part.leader, part.leader_epoch, part.replicas, part.isr, part.offline)


def _show_topics(described: list[tuple[TopicDescription, dict[str, str]]], as_json: bool) -> None:
    columns = _PARTITION_COLUMNS[1:]
    values = []
    for topic, settings in described:
        rows = [_partition_row(part)[1:] for part in topic.partitions]
        if as_json:
            partitions = [dict(zip(columns, row, strict=True)) for row in rows]
            values.append(
                {"topic": topic.name, "id": str(topic.topic_id), "settings": settings, "partitions": partitions}
            )
            continue
        own = ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))
        print(f"topic {emphasized(topic.name)}  id {topic.topic_id}  settings {own or '-'}")
        print_table(columns, rows)
    if as_json:
        print_json(values[0] if len(values) == 1 else values)


async def _own_settings(admin: Admin, topic: str) -> dict[str, str]:
    from kraft.client.admin import ConfigResource, ConfigSource, ResourceType

    entries = await admin.configs.describe(ConfigResource(ResourceType.TOPIC, topic))
    return {entry.name: str(entry.value) for entry in entries if entry.source is ConfigSource.TOPIC}
