"""`kraft features`: show the finalized feature levels of the cluster, and raise or lower them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.connection import ClusterConnection, over_network_or_controllers, pair
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, JsonOption, print_json, show

if TYPE_CHECKING:
    from kraft.client.admin import FeatureChange

app = typer.Typer(help="Show and change the levels of features.", no_args_is_help=True, rich_markup_mode=None)

LEVEL_MAX = (1 << 15) - 1

LevelsArgument = Annotated[list[str], typer.Argument(metavar="FEATURE=LEVEL…", help="Level 0 turns a feature off.")]
ValidateOption = Annotated[bool, typer.Option("--validate-only", help="Check whether it is possible; change nothing.")]


@app.command()
@over_network_or_controllers
def describe(connection: ClusterConnection, as_json: JsonOption = False) -> None:
    """Show each feature: the finalized level, and the levels that the brokers support."""
    found = connection.run(lambda admin: admin.nodes.features())
    rows = [(one.name, one.level, one.min_level, one.max_level) for one in found]
    show(as_json, ["feature", "level", "min_level", "max_level"], rows)


@app.command()
@over_network_or_controllers
def upgrade(
    connection: ClusterConnection,
    levels: LevelsArgument,
    validate_only: ValidateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Raise feature levels; the new behaviour is in use from then on."""
    from kraft.client.admin import FeatureChange

    _change(connection, levels, FeatureChange.UPGRADE, validate_only, as_json)


@app.command()
@over_network_or_controllers
def downgrade(
    connection: ClusterConnection,
    levels: LevelsArgument,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if metadata is lost.")] = False,
    validate_only: ValidateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Lower feature levels."""
    from kraft.client.admin import FeatureChange

    change = FeatureChange.UNSAFE_DOWNGRADE if unsafe else FeatureChange.SAFE_DOWNGRADE
    _change(connection, levels, change, validate_only, as_json)


def _change(
    connection: ClusterConnection, levels: list[str], change: FeatureChange, validate_only: bool, as_json: bool
) -> None:
    wanted = {}
    for name, level in (pair(entry) for entry in levels):
        if not level.isdecimal() or int(level) > LEVEL_MAX:
            raise CommandFailed(f"{name}={level}: a level is a whole number, at most {LEVEL_MAX}", code=EXIT_USAGE)
        wanted[name] = int(level)
    connection.run(lambda admin: admin.nodes.update_features(wanted, change=change, validate_only=validate_only))
    if as_json:
        print_json({"changed": not validate_only, "levels": wanted})
    else:
        levels_text = ", ".join(f"{name}={level}" for name, level in wanted.items())
        print(f"{'could be changed' if validate_only else 'changed'}: {levels_text}")
