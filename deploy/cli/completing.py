"""Candidates for shell completion of an argument: fixed words, and names from the cluster if it responds at once.

Completion never prints and never fails: the shell gets names or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.config import ConfigKey

ANSWER_MS_MAX = 1_000


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Complete to one of these words."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(incomplete, words)

    return complete


def complete_codec(incomplete: str) -> list[str]:
    """Complete the name of a compression codec."""
    from kraft.wire.records.compression import Compression

    return _beginning(incomplete, (codec.name.lower() for codec in Compression))


def complete_log_level(incomplete: str) -> list[str]:
    """Complete the log level of a node."""
    from kraft.deploy.launch.logs import LEVELS

    return _beginning(incomplete, LEVELS)


def complete_topic(ctx: Any, incomplete: str) -> list[str]:
    """Complete the name of a topic."""

    async def names(admin: Admin) -> list[str]:
        return [topic.name for topic in await admin.topics.list()]

    return _from_cluster(ctx, incomplete, names)


def complete_group(ctx: Any, incomplete: str) -> list[str]:
    """Complete the id of a group."""

    async def names(admin: Admin) -> list[str]:
        return [group.group_id for group in await admin.groups.list()]

    return _from_cluster(ctx, incomplete, names)


def complete_transactional_id(ctx: Any, incomplete: str) -> list[str]:
    """Complete a transactional id."""

    async def names(admin: Admin) -> list[str]:
        return [one.transactional_id for one in await admin.transactions.list()]

    return _from_cluster(ctx, incomplete, names)


def complete_broker(ctx: Any, incomplete: str) -> list[str]:
    """Complete the id of a broker."""

    async def ids(admin: Admin) -> list[str]:
        return [str(broker.node_id) for broker in (await admin.nodes.cluster()).brokers]

    return _from_cluster(ctx, incomplete, ids)


def complete_brokers(ctx: Any, incomplete: str) -> list[str]:
    """Complete the last of several broker ids, leaving out those named before it."""
    named, comma, last = incomplete.rpartition(",")
    return [f"{named}{comma}{one}" for one in complete_broker(ctx, last) if one not in named.split(",")]


def complete_configured_broker(ctx: Any, incomplete: str) -> list[str]:
    """Complete the id of a broker, or the word for all brokers."""
    return [*_beginning(incomplete, ["all"]), *complete_broker(ctx, incomplete)]


def complete_voter(ctx: Any, incomplete: str) -> list[str]:
    """Complete the id of a quorum voter."""

    async def ids(admin: Admin) -> list[str]:
        return [str(voter.node_id) for voter in (await admin.nodes.quorum()).voters]

    return _from_cluster(ctx, incomplete, ids)


def complete_node(ctx: Any, incomplete: str) -> list[str]:
    """Complete the id of a node of a local cluster; the nodes need not be running."""
    from kraft.deploy.launch.errors import LaunchError
    from kraft.deploy.launch.folder import ClusterFolder, last_folder

    data = ctx.params.get("data")
    try:
        layout, _ = (last_folder() if data is None else ClusterFolder(data)).read()
    except LaunchError:
        return []
    return _beginning(incomplete, (str(node.node_id) for node in layout.nodes()))


def complete_key(ctx: Any, incomplete: str) -> list[str]:
    """Complete a dynamic setting of the topic, group or broker named earlier on the command line."""
    from kraft.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, UpdateMode

    broker = ctx.params.get("broker")
    if ctx.params.get("topic") is not None:
        return _beginning(incomplete, _public(TOPIC_KEYS))
    if ctx.params.get("group") is not None:
        return _beginning(incomplete, _public(GROUP_KEYS))
    if broker is None:
        return []
    fixed = {UpdateMode.READ_ONLY} | ({UpdateMode.PER_BROKER} if broker == "all" else set())
    names = _public(BROKER_KEYS)
    return _beginning(incomplete, (name for name in names if BROKER_KEYS[name].update_mode not in fixed))


def complete_setting(ctx: Any, incomplete: str) -> list[str]:
    """Complete the KEY= of a dynamic setting given as KEY=VALUE."""
    return _with_equals(complete_key(ctx, incomplete))


def complete_topic_setting(incomplete: str) -> list[str]:
    """Complete the KEY= of a topic setting given as KEY=VALUE."""
    from kraft.config import TOPIC_KEYS

    return _with_equals(_beginning(incomplete, _public(TOPIC_KEYS)))


def complete_broker_setting(incomplete: str) -> list[str]:
    """Complete the KEY= of a node setting given as KEY=VALUE."""
    from kraft.config import BROKER_KEYS

    return _with_equals(_beginning(incomplete, _public(BROKER_KEYS)))


def complete_client_setting(incomplete: str) -> list[str]:
    """Complete the KEY= of a client setting that the command line takes as KEY=VALUE."""
    from kraft.deploy.cli.client_settings import GROUP_ID, known_names

    return _with_equals(_beginning(incomplete, sorted(known_names() - {GROUP_ID})))


def _from_cluster(ctx: Any, incomplete: str, names: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    from kraft.deploy.cli.admin import find_bootstrap_servers
    from kraft.deploy.cli.connection import ClusterConnection
    from kraft.deploy.cli.output import CommandFailed

    given = ctx.params.get("bootstrap_server") if ctx is not None else None
    servers, if_unreachable = find_bootstrap_servers(given)
    try:
        return _beginning(incomplete, ClusterConnection(servers, {}, ANSWER_MS_MAX, if_unreachable).run(names))
    except CommandFailed:
        return []


def _public(keys: Mapping[str, ConfigKey]) -> list[str]:
    return [name for name, key in keys.items() if not key.is_internal]


def _with_equals(names: Iterable[str]) -> list[str]:
    return [f"{name}=" for name in names]


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
