"""`kraft groups`: list and describe groups, see their lag and members, reset and delete offsets, delete groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_group, complete_topic, one_of
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.groups.descriptions import json_of, member_table, text_of
from kraft.deploy.cli.groups.offset_resets import reset_offsets
from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    plural,
    print_json,
    show,
    warn,
)
from kraft.deploy.cli.several import NameResult, attempt_each, report_results

if TYPE_CHECKING:
    from kraft.client.admin import Admin, GroupDescription
    from kraft.deploy.cli.groups.descriptions import Lags

app = typer.Typer(
    help="Consumer groups and share groups: lag, members, offsets, deletion.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group)]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP…", autocompletion=complete_group)]


STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Unknown",
)
TYPES = ("classic", "consumer", "share", "streams")


Described = tuple["GroupDescription", "Lags"]


def _named(option: str, given: list[str] | None, known: tuple[str, ...]) -> list[str]:
    """Return the given group state or type in Kafka's spelling. Raise CommandFailed for one that Kafka does not
    have."""
    spelled = {name.lower(): name for name in known}
    for name in given or ():
        if name.lower() not in spelled:
            raise CommandFailed(f"{option} {name}: expected one of {', '.join(known)}", code=EXIT_USAGE)
    return [spelled[name.lower()] for name in given or ()]


@app.command("list")
@over_network
def list_groups(
    connection: ClusterConnection,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", help="Only groups in this state: Stable, Empty, Dead, …", autocompletion=one_of(*STATES)
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only this type: classic, consumer, share, …", autocompletion=one_of(*TYPES)),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the groups of all brokers."""
    states, types = _named("--state", state, STATES), _named("--type", kind, TYPES)
    found = connection.run(lambda admin: admin.groups.list(states=states, types=types))
    rows = [(one.group_id, one.state, one.type, one.protocol_type, one.coordinator) for one in found]
    show(as_json, ["group", "state", "type", "protocol", "coordinator"], rows)


@app.command()
@over_network
def describe(
    connection: ClusterConnection,
    group: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP…]", autocompletion=complete_group, help="Default: all.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=complete_topic),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of groups: committed offset, log end offset, lag and consumer of each partition. A share group
    has a start offset instead, and a partition may have several consumers."""

    async def work(admin: Admin) -> list[NameResult[Described]]:
        from kraft.client.admin.group_lag import find_progress
        from kraft.client.admin.groups import DESCRIBED_TYPES

        async def describe_one(name: str) -> Described:
            described = await admin.groups.describe(name)
            return described, await find_progress(admin, described, topic)

        if topic:
            await admin.topics.describe(topic)  # a missing group is not the same as a group without commits
        if group:
            return await attempt_each(list(dict.fromkeys(group)), describe_one)
        listed = await admin.groups.list()
        for one in listed:
            if one.type not in DESCRIBED_TYPES:
                warn(f"kraft: group {one.group_id} is not shown: it is a {one.type.lower()} group")
        described = [one.group_id for one in listed if one.type in DESCRIBED_TYPES]
        outcomes = await attempt_each(described, describe_one)
        # deleted in the meantime
        return [one for one in outcomes if one.problem is None or one.problem.code != EXIT_NOT_FOUND]

    found = connection.run(work)
    told = [one.name for one in found if one.value is not None]

    def line(name: str, described: Described) -> str:
        return ("" if name == told[0] else "\n") + text_of(*described)

    for one in found:
        if group and topic and one.value is not None and not one.value[1]:
            warn(f"group {one.name} does not read {', '.join(topic)} and has no offset there")
    report_results(found, "group_id", as_json, lambda name, described: json_of(*described), line, as_list=not group)


@app.command()
@over_network
def members(connection: ClusterConnection, group: GroupArgument, as_json: JsonOption = False) -> None:
    """Show the members of a group, and the partitions that each one reads. Members of a consumer group (KIP-848) or a
    share group also have an epoch, those of a consumer group the assignment that they are moving to."""
    found = connection.run(lambda admin: admin.groups.describe(group))
    show(as_json, *member_table(found))


app.command("reset-offsets")(reset_offsets)


@app.command()
@over_network
def delete(connection: ClusterConnection, group: GroupsArgument, as_json: JsonOption = False) -> None:
    """Delete groups that have no members, and their offsets."""

    async def work(admin: Admin) -> list[NameResult[None]]:
        return await attempt_each(group, admin.groups.delete)

    def row(name: str, _: None) -> dict[str, object]:
        return {"group": name, "deleted": True}

    report_results(connection.run(work), "group", as_json, row, lambda name, _: f"group {name} deleted")


@app.command("delete-offsets")
@over_network
def delete_offsets(
    connection: ClusterConnection,
    group: GroupArgument,
    topic: Annotated[
        list[str],
        typer.Option("--topic", metavar="TOPIC[:0,2-4]", help="May be repeated.", autocompletion=complete_topic),
    ],
    as_json: JsonOption = False,
) -> None:
    """Delete the offsets that a group has committed for topics that it no longer reads. Of a share group, which must
    be empty, the offsets in all partitions of a topic are deleted."""

    async def work(admin: Admin) -> list[tuple[str, int]]:
        from kraft.deploy.cli.topics import choose_partitions

        is_share = await admin.groups.is_share(group)
        if is_share:
            _require_whole_topics(topic)
        chosen = await choose_partitions(admin, topic)
        if is_share:
            known = set(await admin.share_groups.offsets(group))
            await admin.share_groups.delete_offsets(group, topic)
        else:
            known = set(await admin.groups.offsets(group))
            await admin.groups.delete_offsets(group, chosen)
        deleted = [tp for tp in chosen if tp in known]
        if not deleted:
            raise CommandFailed(
                f"group {group} has no committed offsets of {', '.join(topic)}; see kraft groups describe {group}",
                code=EXIT_NOT_FOUND,
            )
        return deleted

    show(as_json, ["topic", "partition"], connection.run(work))


def _require_whole_topics(topics: Iterable[str]) -> None:
    """Raise CommandFailed if an argument names partitions, because a share group's offsets are deleted by topic."""
    from kraft.deploy.cli.topics import parse_partitions

    for text in topics:
        name, numbers = parse_partitions(text)
        if numbers is not None:
            raise CommandFailed(
                f"--topic {text}: the offsets of a share group are deleted by topic; give --topic {name}",
                code=EXIT_USAGE,
            )


@app.command("remove-members")
@over_network
def remove_members(
    connection: ClusterConnection,
    group: GroupArgument,
    member: Annotated[list[str] | None, typer.Option("--member", metavar="ID", help="May be repeated.")] = None,
    instance: Annotated[
        list[str] | None, typer.Option("--instance", metavar="ID", help="A static member; may be repeated.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Remove all members.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove members from a group; their partitions go to the others."""
    if not (member or instance or everybody):
        raise CommandFailed("which members? give --member ID, --instance ID or --all", code=EXIT_USAGE)

    async def work(admin: Admin) -> list[str]:
        from kraft.client import KafkaError
        from kraft.client.admin.groups import CONSUMER, SHARE
        from kraft.wire.error_codes import ErrorCode

        described = await admin.groups.describe(group)
        if described.type == SHARE:
            raise CommandFailed(f"group {group} is a share group: a member leaves only when it is stopped")
        chosen = [
            one
            for one in described.members
            if everybody or one.member_id in (member or ()) or one.instance_id in (instance or ())
        ]
        if not chosen and not everybody:
            known = ", ".join(one.instance_id or one.member_id for one in described.members) or "none"
            raise CommandFailed(f"group {group} has no such member (members: {known})")
        if chosen:
            try:
                await admin.groups.remove_members(group, chosen)
            except KafkaError as problem:
                if problem.code is not ErrorCode.UNKNOWN_MEMBER_ID or described.type != CONSUMER:
                    raise
                raise CommandFailed(
                    f"group {group} is a consumer group: only members of the classic protocol can be removed; others "
                    "leave when they are stopped"
                ) from problem
        return [one.instance_id or one.member_id for one in chosen]

    removed = connection.run(work)
    if as_json:
        print_json({"group": group, "removed": removed})
    else:
        print(f"{plural(len(removed), 'member')} removed from group {group}")
