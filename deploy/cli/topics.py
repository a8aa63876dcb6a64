"""`kraft topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    print_json,
    print_table,
    show,
)

if TYPE_CHECKING:
    from kraft.deploy.cli.admin import Admin

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True, rich_markup_mode=None)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(help="-1: the brokers' num.partitions.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the brokers' default.replication.factor.")] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic."""
    from kraft.config import validate_topic_config
    from kraft.deploy.cli.admin import run_admin

    settings = dict(pair(entry) for entry in config or ())
    for key, value in settings.items():
        validate_topic_config(key, value)
    got = run_admin(bootstrap, lambda admin: admin.create_topic(topic, partitions, replication_factor, settings))
    if as_json:
        print_json({"topic": topic, "partitions": got[0], "replication_factor": got[1]})
    else:
        print(f"topic {topic} created: {got[0]} partitions, {got[1]} replicas each")


@app.command("list")
def list_topics(bootstrap: BootstrapOption = None, as_json: JsonOption = False) -> None:
    """List the topics."""
    from kraft.deploy.cli.admin import run_admin

    answer = run_admin(bootstrap, lambda admin: admin.metadata(None))
    rows = [
        (t.name, len(t.partitions), len(t.partitions[0].replica_nodes) if t.partitions else 0, bool(t.is_internal))
        for t in sorted(answer.topics, key=lambda topic: str(topic.name))
    ]
    show(as_json, ["topic", "partitions", "replicas", "internal"], rows)


@app.command()
def describe(topic: TopicArgument, bootstrap: BootstrapOption = None, as_json: JsonOption = False) -> None:
    """Show a topic's partitions: leader, replicas, in-sync replicas; and the settings that are its own."""
    from kraft.deploy.cli.admin import run_admin

    found, configs = run_admin(bootstrap, lambda admin: _describe(admin, topic))
    rows = [
        (
            int(p.partition_index),
            int(p.leader_id) if p.leader_id >= 0 else None,
            int(p.leader_epoch),
            [int(node) for node in p.replica_nodes],
            [int(node) for node in p.isr_nodes],
            [int(node) for node in p.offline_replicas],
        )
        for p in sorted(found.partitions, key=lambda part: int(part.partition_index))
    ]
    columns = ["partition", "leader", "epoch", "replicas", "isr", "offline"]
    if as_json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"topic": topic, "id": str(found.topic_id), "settings": configs, "partitions": partitions})
        return
    settings = ",".join(f"{key}={value}" for key, value in sorted(configs.items()))
    print(f"topic {topic}  id {found.topic_id}  settings {settings or '-'}")
    print_table(columns, rows)


@app.command()
def alter(
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions; it can only grow.")],
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add partitions to a topic."""
    from kraft.deploy.cli.admin import run_admin

    run_admin(bootstrap, lambda admin: admin.add_partitions(topic, partitions))
    if as_json:
        print_json({"topic": topic, "partitions": partitions})
    else:
        print(f"topic {topic} now has {partitions} partitions")


@app.command()
def delete(topic: TopicArgument, bootstrap: BootstrapOption = None, as_json: JsonOption = False) -> None:
    """Delete a topic and its records."""
    from kraft.deploy.cli.admin import run_admin

    run_admin(bootstrap, lambda admin: admin.delete_topic(topic))
    if as_json:
        print_json({"topic": topic, "deleted": True})
    else:
        print(f"topic {topic} deleted")


def pair(entry: str) -> tuple[str, str]:
    """`KEY=VALUE` as a pair."""
    key, equals, value = entry.partition("=")
    if not equals or not key.strip():
        raise CommandFailed(f"{entry}: expected KEY=VALUE", code=EXIT_USAGE)
    return key.strip(), value


async def _describe(admin: Admin, topic: str) -> tuple[Any, dict[str, str]]:
    from kraft.deploy.cli.admin import TOPIC_RESOURCE, require_success

    answer = await admin.metadata([topic])
    if not answer.topics:
        raise CommandFailed(f"there is no topic {topic}", code=EXIT_NOT_FOUND)
    require_success(answer.topics[0], f"topic {topic}")
    configs = await admin.describe_configs(TOPIC_RESOURCE, topic)
    own = {str(c.name): str(c.value) for c in configs if int(c.config_source) == 1}
    return answer.topics[0], own
