"""`kraft consume --share-group`: print the records that a share group delivers, and acknowledge them, like
kafka-console-share-consumer.sh.

A record is acknowledged once it is printed. Records that were delivered and not printed are released at the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, warn

if TYPE_CHECKING:
    from kraft.client import Acknowledgement, ShareConsumer, ShareRecord

RECORDS_MAX = 500
OTHER_OPTIONS = (
    "--share-group {group}: settings of the group, such as share.auto.offset.reset and share.isolation.level, decide "
    "where to read and what to deliver; leave out {names} (see kraft configs describe --group {group})"
)


def check_share_options(
    group: str | None, topics: list[str], others: dict[str, object], *, release: bool, reject: bool
) -> None:
    """Raise CommandFailed for options that do not go together. `others` are the options that a share group excludes, by
    name; those that are not None or empty were given."""
    if group is None:
        if release or reject:
            raise CommandFailed("--release and --reject need --share-group", code=EXIT_USAGE)
        return
    if not group:
        raise CommandFailed("--share-group is empty: name a group", code=EXIT_USAGE)
    given = [name for name, value in others.items() if value]
    if given:
        raise CommandFailed(OTHER_OPTIONS.format(group=group, names=", ".join(given)), code=EXIT_USAGE)
    if release and reject:
        raise CommandFailed("give either --release or --reject", code=EXIT_USAGE)
    if any(":" in name for name in topics):
        raise CommandFailed("--share-group assigns partitions itself: name topics only", code=EXIT_USAGE)


async def consume_shared(
    connection: ClusterConnection,
    settings: dict[str, Any],
    topics: list[str],
    show: Callable[[Any], bytes],
    count: int | None,
    write: Callable[[bytes], Awaitable[None]],
    *,
    release: bool,
    reject: bool,
) -> None:
    """Read these topics as a member of a share group, until `count` records were printed."""
    from kraft.client import Acknowledgement, ShareConsumer

    acknowledgement = Acknowledgement.ACCEPT
    if release or reject:
        acknowledgement = Acknowledgement.RELEASE if release else Acknowledgement.REJECT
    async with connection.admin() as admin:
        await admin.nodes.cluster()  # fails within seconds if there is no cluster
    async with ShareConsumer(**settings) as consumer:
        await consumer.subscribe(topics)
        await print_shared(consumer, show, count, write, acknowledgement)


async def print_shared(
    consumer: ShareConsumer,
    show: Callable[[ShareRecord], bytes],
    count: int | None,
    write: Callable[[bytes], Awaitable[None]],
    acknowledgement: Acknowledgement,
) -> None:
    """Print and acknowledge records, until `count` of them were printed."""
    left = count
    while left is None or left > 0:
        records = await consumer.poll(records_max=RECORDS_MAX if left is None else min(RECORDS_MAX, left))
        await write(b"".join(show(record) for record in records))
        for record in records:
            consumer.acknowledge(record, acknowledgement)
        for error in (await consumer.commit()).values():
            if error is not None:
                warn(f"{error.message}; printed records come again")
        if left is not None:
            left -= len(records)
