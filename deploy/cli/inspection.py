"""`kraft cluster`, `logdirs`, `apis` and `unregister`: show the nodes, their log directories and APIs; remove
a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_broker, complete_topic
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import (
    CommandFailed,
    JsonOption,
    YesOption,
    confirm,
    print_json,
    print_table,
    show,
    size,
    warn,
)

if TYPE_CHECKING:
    from kraft.client.admin import (
        Admin,
        ClusterDescription,
        LogDir,
        QuorumDescription,
        TopicDescription,
    )


@over_network
def cluster(connection: ClusterConnection, as_json: JsonOption = False) -> None:
    """Show the cluster in one view: id, brokers, controller, topics, partitions in trouble."""

    async def work(admin: Admin) -> tuple[ClusterDescription, QuorumDescription, tuple[TopicDescription, ...]]:
        return await admin.nodes.cluster(), await admin.nodes.quorum(), await admin.topics.list()

    described, quorum_state, topics = connection.run(work)
    partitions = [part for topic in topics for part in topic.partitions]
    facts = {
        "cluster_id": described.cluster_id,
        "active_brokers": [broker.node_id for broker in described.brokers if not broker.is_fenced],
        "fenced_brokers": [broker.node_id for broker in described.brokers if broker.is_fenced],
        "active_controller": quorum_state.leader,
        "voters": [voter.node_id for voter in quorum_state.voters],
        "metadata_offset": quorum_state.high_watermark,
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": sum(1 for part in partitions if part.is_under_replicated),
        "without_leader": sum(1 for part in partitions if part.leader is None),
    }
    if as_json:
        print_json(facts)
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        shown = ",".join(str(item) for item in value) or "-" if isinstance(value, list) else value
        print(f"{name.replace('_', ' '):{width}}  {'-' if shown is None else shown}")


@over_network
def logdirs(
    connection: ClusterConnection,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            "--broker", metavar="ID", help="Only this broker; may be repeated.", autocompletion=complete_broker
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=complete_topic),
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="Show each replica.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the log directories of the brokers: bytes used and bytes free."""

    async def work(admin: Admin) -> tuple[LogDir, ...]:
        found = await admin.nodes.log_dirs(broker)
        if not broker:
            _warn_of_unavailable(await admin.nodes.cluster(), {one.broker for one in found})
        if not topic:
            return found
        missing = set(topic) - {part.topic for one in found for part in one.replicas}
        if missing:  # raises an error for partitions that do not exist, or that have no replica on these brokers
            await admin.topics.describe(sorted(missing))
        return tuple(
            replace(one, replicas=tuple(part for part in one.replicas if part.topic in topic)) for one in found
        )

    found = connection.run(work)
    if as_json:
        print_json(found)
        return
    if replicas or topic:
        rows: list[tuple[object, ...]] = [
            (one.broker, one.path, part.topic, part.partition, size(part.size_bytes), part.lag, part.is_future)
            for one in found
            for part in one.replicas
        ]
        print_table(["broker", "directory", "topic", "partition", "size", "lag", "future"], rows)
        return
    print_table(
        ["broker", "directory", "replicas", "size", "free", "total", "error"],
        [
            (
                one.broker,
                one.path,
                len(one.replicas),
                size(one.size_bytes),
                size(one.usable_bytes),
                size(one.total_bytes),
                one.error,
            )
            for one in found
        ],
    )


@over_network
def apis(
    connection: ClusterConnection,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker", metavar="ID", help="Id of the broker to ask; default: any.", autocompletion=complete_broker
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the requests that a broker supports, their versions, and the highest version that both sides know."""
    from kraft.wire.api_keys import CLIENT_APIS, ApiKey

    theirs = connection.run(lambda admin: admin.nodes.api_versions(broker))
    names = {int(key): key.name.title().replace("_", "") for key in ApiKey}
    ours = {int(key): known.max for key, known in CLIENT_APIS.items()}
    rows = [
        (key, names.get(key, "unknown"), low, high, min(high, ours[key]) if key in ours else None)
        for key, (low, high) in sorted(theirs.items())
    ]
    show(as_json, ["key", "api", "min_version", "max_version", "newest_common"], rows)


@over_network
def unregister(
    connection: ClusterConnection,
    broker: Annotated[
        int,
        typer.Argument(metavar="BROKER", help="Its id, as kraft brokers shows it.", autocompletion=complete_broker),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also an active one: it will lead nothing until it is restarted.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Unregister a broker that will not come back. Partitions keep it as a replica until they are reassigned."""
    confirm(f"unregister broker {broker}?", is_confirmed=yes)

    async def work(admin: Admin) -> None:
        active = [one.node_id for one in (await admin.nodes.cluster()).brokers if not one.is_fenced]
        if broker in active and not force:
            raise CommandFailed(
                f"broker {broker} is active, and would lead nothing until it is restarted: stop it first "
                f"(kraft stop {broker}), and unregister it when kraft brokers shows it as fenced; or give --force"
            )
        await admin.nodes.unregister_broker(broker)

    connection.run(work)
    if as_json:
        print_json({"broker": broker, "unregistered": True})
    else:
        print(f"broker {broker} is unregistered")


def _warn_of_unavailable(described: ClusterDescription, answered: set[int]) -> None:
    silent = sorted({broker.node_id for broker in described.brokers} - answered)
    if silent:
        warn(f"not running, so not shown: broker {', '.join(map(str, silent))}")
