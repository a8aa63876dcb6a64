"""What the shell is told when it completes an argument: names from the cluster, if it answers at once.

Nothing is printed and nothing fails here: a shell that asks gets names or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.client.admin import Admin

ANSWER_MS_MAX = 1_000


def complete_topic(ctx: Any, incomplete: str) -> list[str]:
    """Topics that begin so."""

    async def names(admin: Admin) -> list[str]:
        return [topic.name for topic in await admin.topics.list()]

    return _matching(ctx, incomplete, names)


def complete_group(ctx: Any, incomplete: str) -> list[str]:
    """Groups that begin so."""

    async def names(admin: Admin) -> list[str]:
        return [group.group_id for group in await admin.groups.list()]

    return _matching(ctx, incomplete, names)


def _matching(ctx: Any, incomplete: str, names: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    from kraft.deploy.cli.admin import bootstrap_servers
    from kraft.deploy.cli.connection import Connection
    from kraft.deploy.cli.output import CommandFailed

    given = ctx.params.get("bootstrap_server") if ctx is not None else None
    try:
        found = Connection(bootstrap_servers(given), {}, ANSWER_MS_MAX).run(names)
    except CommandFailed:
        return []
    return [name for name in found if name.startswith(incomplete)]
