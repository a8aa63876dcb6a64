"""`kraft configs`: what topics and brokers are set to, from where, and how to change it."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.deploy.cli.output import EXIT_USAGE, BootstrapOption, CommandFailed, JsonOption, print_json, show
from kraft.deploy.cli.topics import pair

app = typer.Typer(help="Show and change settings of topics and brokers.", no_args_is_help=True, rich_markup_mode=None)

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="TOPIC")]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", metavar="ID", help='A broker id, or "all" for the cluster-wide settings.')
]

SOURCES = {
    1: "topic",
    2: "this broker, dynamic",
    3: "all brokers, dynamic",
    4: "server.properties",
    5: "default",
    6: "logger",
    8: "group",
}
SET, DELETE, APPEND, SUBTRACT = range(4)


@app.command()
def describe(
    topic: TopicOption = None,
    broker: BrokerOption = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the settings of a topic or a broker, and where each value comes from."""
    from kraft.deploy.cli.admin import run_admin

    kind, name = _resource(topic, broker)
    configs = run_admin(bootstrap, lambda admin: admin.describe_configs(kind, name))
    rows = [
        (
            str(c.name),
            "[hidden]" if c.is_sensitive else c.value,
            SOURCES.get(int(c.config_source), "?"),
            bool(c.read_only),
        )
        for c in sorted(configs, key=lambda config: str(config.name))
        if not (changed and int(c.config_source) == 5)
    ]
    show(as_json, ["key", "value", "source", "read_only"], rows)


@app.command()
def alter(
    topic: TopicOption = None,
    broker: BrokerOption = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete", metavar="KEY", help="Back to the default.")] = None,
    append: Annotated[list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.")] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Take from a list.")
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a topic or a broker while it runs."""
    from kraft.deploy.cli.admin import run_admin

    kind, name = _resource(topic, broker)
    changes: list[tuple[int, str, str | None]] = [(DELETE, key, None) for key in delete or ()]
    for operation, entries in ((SET, settings), (APPEND, append), (SUBTRACT, subtract)):
        changes += [(operation, *pair(entry)) for entry in entries or ()]
    if not changes:
        raise CommandFailed("nothing to change: give --set, --delete, --append or --subtract", code=EXIT_USAGE)
    run_admin(bootstrap, lambda admin: admin.alter_configs(kind, name, changes))
    if as_json:
        print_json({"changed": [key for _, key, _ in changes]})
    else:
        print(f"changed: {', '.join(key for _, key, _ in changes)}")


def _resource(topic: str | None, broker: str | None) -> tuple[int, str]:
    from kraft.deploy.cli.admin import BROKER_RESOURCE, TOPIC_RESOURCE

    if (topic is None) == (broker is None):
        raise CommandFailed("give either --topic TOPIC or --broker ID", code=EXIT_USAGE)
    if topic is not None:
        return TOPIC_RESOURCE, topic
    if broker == "all":
        return BROKER_RESOURCE, ""
    if not (broker or "").isdigit():
        raise CommandFailed(f'--broker {broker}: expected a broker id or "all"', code=EXIT_USAGE)
    return BROKER_RESOURCE, broker or ""
