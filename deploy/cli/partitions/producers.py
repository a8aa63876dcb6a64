"""`kraft partitions producers`, which is also `kraft transactions describe-producers`: the producers of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_broker, complete_topic
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import JsonOption, show
from kraft.deploy.cli.times import format_time

if TYPE_CHECKING:
    from kraft.client.admin import Admin


@over_network
def producers(
    connection: ClusterConnection,
    topic: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:0,2-4]…", autocompletion=complete_topic, help="All partitions, or these."),
    ],
    broker: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            help="Ask this broker about its replicas, not the leaders.",
            autocompletion=complete_broker,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the idempotent and transactional producers that wrote to partitions recently."""

    async def work(admin: Admin) -> list[tuple[object, ...]]:
        from kraft.deploy.cli.topics import choose_partitions

        found = await admin.partitions.producers(await choose_partitions(admin, topic), broker=broker)
        return [
            (
                *tp,
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                format_time(one.last_timestamp_ms),
                one.coordinator_epoch,
                one.transaction_start,
            )
            for tp, states in sorted(found.items())
            for one in states
        ]

    columns = [
        "topic",
        "partition",
        "producer_id",
        "epoch",
        "last_sequence",
        "last_write",
        "coordinator_epoch",
        "open_transaction_from",
    ]
    show(as_json, columns, connection.run(work))
