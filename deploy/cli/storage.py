"""`kraft storage`: format the log directories of a node, and show what is stored in them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE, CommandFailed, JsonOption, print_json, show

if TYPE_CHECKING:
    from kraft.config import NodeConfig
    from kraft.raft.identity import VoterSet

app = typer.Typer(help="Format and inspect log directories.", no_args_is_help=True, rich_markup_mode=None)

ConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="The node's server.properties.")]


@app.command("format")
def format_storage(
    config: ConfigOption,
    cluster_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The cluster's id, the same on all nodes; default: a new one.")
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Skip folders that are formatted already.")
    ] = False,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="This controller is the only initial voter of a new quorum.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            metavar="ID@HOST:PORT:DIRECTORY-ID,…",
            help="The initial voters of a new quorum; give the same list on each of them.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", help="This controller joins an existing quorum.")
    ] = False,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Only warn about keys that Kafka does not know.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Prepare the log directories of a new node: write its cluster id and node id, and the initial voters if
    controller.quorum.voters does not name them."""
    from kraft.deploy.launch.layout import is_cluster_id, new_cluster_id

    if cluster_id is not None and not is_cluster_id(cluster_id):
        raise CommandFailed(
            f"--cluster-id {cluster_id}: expected 22 characters of URL-safe base64 (a random one: {new_cluster_id()})",
            code=EXIT_USAGE,
        )
    parsed = _parse(config, ignore_unknown=ignore_unknown)
    if standalone + (initial_controllers is not None) + no_initial_controllers > 1:
        raise CommandFailed(
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other", code=EXIT_USAGE
        )
    has_choice = standalone or no_initial_controllers or initial_controllers is not None
    voters = _first_voters(parsed, standalone=standalone, initial=initial_controllers, has_choice=has_choice)
    chosen, formatted = _format(parsed, cluster_id, ignore_formatted, voters)
    if as_json:
        print_json({"cluster_id": chosen, "node_id": parsed.node_id, "formatted": formatted})
        return
    for directory in formatted:
        print(f"formatted {directory} for node {parsed.node_id} of cluster {chosen}")
    if not formatted:
        print("nothing to do: all folders are formatted")


@app.command("random-uuid")
def random_uuid(as_json: JsonOption = False) -> None:
    """Print a random id, as --cluster-id and the directory ids of --initial-controllers take it."""
    from kraft.deploy.launch.layout import new_cluster_id

    drawn = new_cluster_id()
    if as_json:
        print_json({"uuid": drawn})
    else:
        print(drawn)


@app.command()
def info(
    config: ConfigOption,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Only warn about keys that Kafka does not know.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cluster and node that the log directories of a node belong to."""
    rows = _describe(_parse(config, ignore_unknown=ignore_unknown))
    show(as_json, ["directory", "state", "cluster_id", "node_id", "directory_id"], rows)
    if any(row[1] != "formatted" for row in rows):
        raise typer.Exit(EXIT_NOT_FOUND)


def _parse(path: Path, *, ignore_unknown: bool = False) -> NodeConfig:
    from kraft.deploy.launch.node_process import read_config

    return read_config(path, ignore_unknown=ignore_unknown)


def _directories(config: NodeConfig) -> list[str]:
    return list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))


def _first_voters(config: NodeConfig, *, standalone: bool, initial: str | None, has_choice: bool) -> VoterSet | None:
    """Return the voters for the bootstrap checkpoint; None if the options name no initial voters. May raise
    CommandFailed or ConfigError."""
    import random

    from kraft.quorum.bootstrap_voters import (
        BadVoters,
        own_voter_directory,
        parse_initial_controllers,
        require_one_source_of_voters,
        standalone_voters,
    )
    from kraft.seam import draw_uuid

    require_one_source_of_voters(config, has_choice=has_choice)
    if not standalone and initial is None:
        return None
    if not config.is_controller:
        raise CommandFailed(
            "only a controller can be a voter; a broker alone needs none of these options", code=EXIT_USAGE
        )
    try:
        voters = (
            parse_initial_controllers(initial)
            if initial is not None
            else standalone_voters(config, draw_uuid(random.SystemRandom().getrandbits))
        )
        own_voter_directory(config, voters)
    except BadVoters as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    return voters


def _format(
    config: NodeConfig, cluster_id: str | None, ignore_formatted: bool, voters: VoterSet | None
) -> tuple[str, list[str]]:
    """Format the directories that are not formatted yet. Return the cluster id and the directories that were formatted
    now. Without a given cluster id, use the id of directories that are already formatted, else a new id."""
    from kraft.broker.node.identity import format_directories
    from kraft.deploy.cli.admin import run_async
    from kraft.deploy.launch.layout import new_cluster_id
    from kraft.quorum.bootstrap_voters import own_voter_directory, write_bootstrap_checkpoint
    from kraft.runtime import open_seam
    from kraft.seam import DiskError
    from kraft.storage.meta_properties import ForeignDirectory, read_meta_properties

    async def work() -> tuple[str, list[str]]:
        async with open_seam(node_name="kraft storage") as seam:
            disk = seam.disk
            found = {path: read_meta_properties(disk, path) for path in _directories(config)}
            taken = {path: meta for path, meta in found.items() if meta is not None}
            if taken and not ignore_formatted:
                first = next(iter(taken))
                raise CommandFailed(f"{first} is formatted already; --ignore-formatted leaves such folders alone")
            known = next((meta.cluster_id for meta in taken.values()), None)
            chosen = cluster_id or known or new_cluster_id()

            def first_voters() -> None:
                if voters is not None:
                    write_bootstrap_checkpoint(disk, config, voters, seam.clock.wall_ms())

            format_all = partial(
                format_directories,
                config,
                disk,
                seam.random,
                chosen,
                metadata_directory_id=None if voters is None else own_voter_directory(config, voters),
                before_metadata=first_voters,
            )
            try:
                return chosen, await disk.offload(format_all)
            except (ForeignDirectory, DiskError) as problem:
                raise CommandFailed(str(problem)) from None

    return run_async(work)


def _describe(config: NodeConfig) -> list[tuple[Any, ...]]:
    from kraft.deploy.cli.admin import run_async
    from kraft.runtime import open_seam
    from kraft.storage.meta_properties import ForeignDirectory, read_meta_properties
    from kraft.storage.partition_metadata import encode_uuid

    async def work() -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        async with open_seam(node_name="kraft storage") as seam:
            for path in _directories(config):
                try:
                    found = read_meta_properties(seam.disk, path)
                except ForeignDirectory as problem:
                    rows.append((path, str(problem), None, None, None))
                    continue
                if found is None:
                    rows.append((path, "not formatted", None, None, None))
                else:
                    identity = (found.cluster_id, found.node_id, encode_uuid(found.directory_id))
                    rows.append((path, "formatted", *identity))
        return rows

    return run_async(work)
