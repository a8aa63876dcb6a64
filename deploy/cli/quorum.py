"""`kraft quorum`: show voters, observers, leader and lag; add and remove voters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from kraft.deploy.cli.completing import complete_voter
from kraft.deploy.cli.connection import (
    ClusterConnection,
    over_network_or_controllers,
    read_properties,
    refuse_options_before,
)
from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    YesOption,
    confirm,
    print_json,
    print_table,
)
from kraft.deploy.cli.times import format_time

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.raft.identity import Voter

app = typer.Typer(
    help="Show the metadata quorum; add and remove controllers.", invoke_without_command=True, rich_markup_mode=None
)


@app.callback()
@over_network_or_controllers
def show_quorum(connection: ClusterConnection, ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the metadata quorum: leader, epoch, high watermark, and the progress of each voter and observer."""
    if ctx.invoked_subcommand is not None:
        refuse_options_before(ctx, ctx.invoked_subcommand)
        return
    _show_quorum(connection, as_json)


@app.command()
@over_network_or_controllers
def describe(connection: ClusterConnection, as_json: JsonOption = False) -> None:
    """Same as `kraft quorum`; the name used by kafka-metadata-quorum.sh."""
    _show_quorum(connection, as_json)


def _show_quorum(connection: ClusterConnection, as_json: bool) -> None:
    from kraft.storage.partition_metadata import encode_uuid

    state = connection.run(lambda admin: admin.nodes.quorum())
    end = state.log_end_offset
    rows = [
        (
            replica.node_id,
            "leader" if replica.node_id == state.leader and role == "voter" else role,
            *_progress(replica.log_end_offset, end),
            format_time(replica.last_fetch_ms),
            None if replica.directory_id is None else encode_uuid(replica.directory_id),
        )
        for role, replicas in (("voter", state.voters), ("observer", state.observers))
        for replica in replicas
    ]
    columns = ["node", "role", "log_end_offset", "lag", "last_fetch", "directory_id"]
    head = {"leader": state.leader, "epoch": state.leader_epoch, "high_watermark": state.high_watermark}
    if as_json:
        print_json({**head, "replicas": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    print("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in head.items()))
    print_table(columns, rows)


def _progress(log_end_offset: int, end: int) -> tuple[int | None, int | None]:
    """Return a replica's log end offset and lag; None for both if the leader has not received a fetch from it."""
    return (None, None) if log_end_offset < 0 else (log_end_offset, max(0, end - log_end_offset))


@app.command("add-controller")
@over_network_or_controllers
def add_controller(
    connection: ClusterConnection,
    controller: Annotated[
        str | None, typer.Argument(metavar="[ID@HOST:PORT:DIRECTORY-ID]", help="The controller and its address.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The controller's server.properties, on the host where it runs."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a controller a voter. It must have been started with --no-initial-controllers and have caught up."""
    if (controller is None) == (config is None):
        raise CommandFailed("which controller? give ID@HOST:PORT:DIRECTORY-ID, or --config FILE", code=EXIT_USAGE)
    voter = _parsed(controller) if controller is not None else _configured(config or Path())
    directory_id, address = voter.key.directory_id, voter.address
    assert directory_id is not None
    connection.run(lambda admin: admin.nodes.add_voter(voter.key.node_id, directory_id, address))
    _tell(as_json, voter.key.node_id, "is a voter now", is_voter=True)


@app.command("remove-controller")
@over_network_or_controllers
def remove_controller(
    connection: ClusterConnection,
    node: Annotated[int, typer.Argument(metavar="ID", help="Its node id.", autocompletion=complete_voter)],
    directory_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Its directory id; default: that of the voter of this node id.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a voter from the quorum, whether it is running or not. A running one should be stopped afterwards."""
    confirm(f"remove controller {node} from the quorum?", is_confirmed=yes)
    given = None if directory_id is None else _directory_id(directory_id)

    async def work(admin: Admin) -> None:
        found = given
        if found is None:
            voters = {one.node_id: one.directory_id for one in (await admin.nodes.quorum()).voters}
            found = voters.get(node)
            if found is None:
                known = ", ".join(map(str, sorted(voters)))
                raise CommandFailed(
                    f"there is no voter {node} with a directory id (voters: {known})", code=EXIT_NOT_FOUND
                )
        await admin.nodes.remove_voter(node, found)

    connection.run(work)
    _tell(as_json, node, "is no longer a voter", is_voter=False)


def _tell(as_json: bool, node: int, text: str, *, is_voter: bool) -> None:
    if as_json:
        print_json({"node": node, "voter": is_voter})
    else:
        print(f"controller {node} {text}")


def _parsed(text: str) -> Voter:
    from kraft.quorum.bootstrap_voters import BadVoters, parse_initial_controllers

    try:
        voters = parse_initial_controllers(text)
    except BadVoters as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    if len(voters.voters) != 1:
        named = ": " + ", ".join(map(str, voters.ids)) if voters.voters else ""
        raise CommandFailed(f"one controller at a time, not {len(voters.voters)}{named}", code=EXIT_USAGE)
    return voters.voters[0]


def _configured(path: Path) -> Voter:
    """Return the controller that this configuration describes, with the directory id from its formatted log
    directory."""
    from kraft.config import NodeConfig
    from kraft.quorum.bootstrap_voters import BadVoters, standalone_voters
    from kraft.storage.meta_properties import META_PROPERTIES, MetaProperties

    config = NodeConfig.parse(read_properties(path))
    meta = Path(config.metadata_log_dir) / META_PROPERTIES
    if not meta.exists():
        raise CommandFailed(f"{meta.parent} is not formatted: kraft storage format", code=EXIT_NOT_FOUND)
    directory_id = MetaProperties.decode(meta.read_bytes(), str(meta)).directory_id
    try:
        return standalone_voters(config, directory_id).voters[0]
    except BadVoters as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None


def _directory_id(text: str) -> UUID:
    from kraft.storage.partition_metadata import decode_uuid

    found = decode_uuid(text)
    if found is None:
        raise CommandFailed(
            f"--directory-id {text}: expected 22 characters, as kraft quorum shows them", code=EXIT_USAGE
        )
    return found
