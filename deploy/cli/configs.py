"""`kraft configs`: show the settings of topics, brokers and groups and where each comes from, and change them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import (
    complete_broker,
    complete_configured_broker,
    complete_group,
    complete_key,
    complete_setting,
    complete_topic,
)
from kraft.deploy.cli.connection import ClusterConnection, over_network, over_network_or_controllers, pair, read_text
from kraft.deploy.cli.output import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    plain,
    print_json,
    print_table,
    show,
    warn,
)

if TYPE_CHECKING:
    from kraft.client.admin import ConfigChange, ConfigResource
    from kraft.config import ConfigKey
    from kraft.config.check import CheckedSetting, RawSetting

app = typer.Typer(
    help="Show and change settings of topics, brokers, groups and loggers; check a server.properties.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", autocompletion=complete_topic)]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="ID",
        help='A broker id, or "all" for the cluster-wide settings.',
        autocompletion=complete_configured_broker,
    ),
]
LoggersOption = Annotated[
    str | None,
    typer.Option(
        "--loggers",
        metavar="ID",
        help="The loggers of a broker or controller: TRACE, DEBUG, INFO, WARN, ERROR or FATAL of each, until it stops.",
        autocompletion=complete_broker,
    ),
]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="GROUP", autocompletion=complete_group)]

VALUE_SHOWN_MAX = 48
_MARKUP = re.compile(r"<[^>]*>")

SOURCES = MappingProxyType(
    {
        "topic": "topic",
        "dynamic_broker": "this broker, dynamic",
        "dynamic_default_broker": "all brokers, dynamic",
        "static_broker": "server.properties",
        "default": "default",
        "dynamic_broker_logger": "logger",
        "client_metrics": "client metrics",
        "group": "group",
    }
)


@app.command()
@over_network_or_controllers
def describe(
    connection: ClusterConnection,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    loggers: LoggersOption = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from the default.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each setting.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the settings of a topic, a broker or a group and where each value comes from, or the levels of loggers."""
    resource = _resource(topic, broker, group, loggers, asks_controllers=connection.asks_controllers)
    entries = connection.run(lambda admin: admin.configs.describe(resource, documentation=explain))
    rows = [
        (
            entry.name,
            "[hidden]" if entry.is_sensitive else entry.value,
            SOURCES.get(entry.source.name.lower(), "unknown"),
            entry.is_read_only,
            *([_MARKUP.sub("", entry.documentation or "")] if explain else []),
        )
        for entry in entries
        if not (changed and entry.source.name == "DEFAULT")
    ]
    show(as_json, ["key", "value", "source", "read_only", *(["what_it_is"] if explain else [])], rows)


@app.command()
@over_network_or_controllers
def alter(
    connection: ClusterConnection,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    loggers: LoggersOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", autocompletion=complete_setting)
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="Reset a key to its default.", autocompletion=complete_key),
    ] = None,
    append: Annotated[
        list[str] | None,
        typer.Option("--append", metavar="KEY=VALUE", help="Add a value to a list.", autocompletion=complete_setting),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option(
            "--subtract", metavar="KEY=VALUE", help="Remove a value from a list.", autocompletion=complete_setting
        ),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check whether it is possible; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a running topic, broker or group, or the levels of loggers."""
    resource = _resource(topic, broker, group, loggers, asks_controllers=connection.asks_controllers)
    changes = _changes(settings or [], delete or [], append or [], subtract or [])
    _check_names(resource, settings or [], delete or [])
    connection.run(lambda admin: admin.configs.alter(resource, changes, validate_only=validate_only))
    names = [change.name for change in changes]
    if as_json:
        print_json({"changed": [], "could_be_changed": names} if validate_only else {"changed": names})
    else:
        print(f"{'could be changed' if validate_only else 'changed'}: {', '.join(names)}")


@app.command("list")
@over_network
def list_resources(connection: ClusterConnection, as_json: JsonOption = False) -> None:
    """List everything that has settings: topics, brokers, groups."""
    found = connection.run(lambda admin: admin.configs.resources())
    show(as_json, ["type", "name"], [(resource.type.name.lower(), resource.name) for resource in found])


@app.command()
def keys(
    pattern: Annotated[
        str | None, typer.Argument(metavar="[REGEX]", help="Only keys whose name matches this regular expression.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each key.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the settings that brokers, topics and groups may have, with types and defaults. Needs no cluster."""
    from kraft.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS

    try:
        wanted = re.compile(pattern or "")
    except re.error as problem:
        raise CommandFailed(f"{pattern!r} is no regular expression: {problem}", code=EXIT_USAGE) from None
    rows = [
        (
            key.name,
            kind,
            key.type.name.lower(),
            key.default,
            key.effect.name.lower(),
            *([_explanation(key)] if explain else []),
        )
        for kind, table in (("broker", BROKER_KEYS), ("topic", TOPIC_KEYS), ("group", GROUP_KEYS))
        for key in table.values()
        if wanted.search(key.name) and not key.is_internal
    ]
    if not rows:
        raise CommandFailed(f"no key has {pattern} in its name; kraft configs keys lists all", code=EXIT_NOT_FOUND)
    show(as_json, ["key", "resource", "type", "default", "effect", *(["what_it_is"] if explain else [])], rows)


@app.command()
def check(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A server.properties file.")] = None,
    from_environment: Annotated[
        bool, typer.Option("--from-environment", help="Check KAFKA_… variables as well; they override the file.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain what each line of a server.properties means here. Needs no cluster and starts no node. Exit code 1 if a
    node would not start with it."""
    from kraft.config.check import STOPS, check_settings, check_whole

    if file is None and not from_environment:
        raise CommandFailed("what to check? Name a FILE, or give --from-environment", code=EXIT_USAGE)
    settings = [*(_settings_of(file) if file is not None else ()), *(_environment() if from_environment else ())]
    checked = check_settings(settings)
    problem = None if any(one.meaning in STOPS for one in checked) else check_whole(settings)
    starts = problem is None and not any(one.meaning in STOPS for one in checked)
    if as_json:
        rows = [{**plain(one), "meaning": one.meaning.value} for one in checked]
        print_json({"starts": starts, "problem": problem, "settings": rows})
    else:
        cells = [(one.source, one.key, _cut(one.value), one.meaning.value, _note(one)) for one in checked]
        print_table(["from", "key", "value", "meaning", "note"], cells)
        if starts:
            print("a node would start with this")
        else:
            warn(f"a node would not start with this: {problem or wrong_lines(checked)}")
    if not starts:
        raise typer.Exit(EXIT_FAILED)


def wrong_lines(checked: Sequence[CheckedSetting]) -> str:
    """Return the settings of the file that keep a node from starting, as text."""
    from kraft.config.check import STOPS, Meaning

    wrong = [one for one in checked if one.meaning in STOPS]
    ignorable = all(one.meaning is Meaning.UNKNOWN for one in wrong)
    return ", ".join(f"{one.source} ({one.key})" for one in wrong) + (
        "; with --ignore-unknown it would" if ignorable else ""
    )


def _note(one: CheckedSetting) -> str | None:
    """Return a remark on a setting: the reason why the check reports it, else the default that it replaces."""
    from kraft.config.check import Meaning

    if one.why or one.meaning is not Meaning.EFFECTIVE or not one.default:
        return one.why or None
    return f"the default is {_cut(one.default)}"


def _cut(text: str) -> str:
    """Shorten a value to fit into a table; --json prints all of it."""
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[: VALUE_SHOWN_MAX - 1]}…"


def _settings_of(file: Path) -> list[RawSetting]:
    from kraft.config.check import RawSetting
    from kraft.config.properties import numbered_properties

    return [RawSetting(f"line {number}", key, value) for number, key, value in numbered_properties(read_text(file))]


def _environment() -> list[RawSetting]:
    from kraft.config.check import RawSetting
    from kraft.deploy.launch.environment import environment_settings

    return [RawSetting(variable, key, value) for variable, key, value in environment_settings(os.environ)]


def _explanation(key: ConfigKey) -> str:
    """Return what the setting is for or, if setting it has no effect here, the reason."""
    text = _MARKUP.sub("", key.doc)
    return f"{text} {key.effect.value.capitalize()}: {key.reason}." if key.reason else text


def _changes(settings: list[str], delete: list[str], append: list[str], subtract: list[str]) -> list[ConfigChange]:
    from kraft.client.admin import ConfigChange, ConfigOperation

    changes = [ConfigChange(ConfigOperation.DELETE, key) for key in delete]
    for operation, option, entries in (
        (ConfigOperation.SET, "--set", settings),
        (ConfigOperation.APPEND, "--append", append),
        (ConfigOperation.SUBTRACT, "--subtract", subtract),
    ):
        changes += [ConfigChange(operation, *pair(entry, option)) for entry in entries]
    if not changes:
        raise CommandFailed("nothing to change: give --set, --delete, --append or --subtract", code=EXIT_USAGE)
    return changes


def _check_names(resource: ConfigResource, settings: list[str], delete: list[str]) -> None:
    """Raise ConfigError for a key to delete that topics or groups do not have: the cluster would ignore it. Warn of a
    key to set that has no effect, or that this program does not know. The cluster decides whether a key may be set."""
    from kraft.client.admin import ResourceType
    from kraft.config import (
        BROKER_KEYS,
        GROUP_KEYS,
        TOPIC_KEYS,
        ConfigError,
        Effect,
        broker_key,
        group_key,
        topic_key,
    )

    known = {ResourceType.TOPIC: TOPIC_KEYS, ResourceType.GROUP: GROUP_KEYS}.get(resource.type, BROKER_KEYS)
    look_up = {ResourceType.TOPIC: topic_key, ResourceType.GROUP: group_key}.get(resource.type)
    if look_up is not None:
        for name in delete:
            look_up(name)
    for entry in settings:
        name = entry.partition("=")[0].strip()
        if resource.type is ResourceType.BROKER:
            try:
                broker_key(name)
            except ConfigError as problem:
                warn(f"{problem}; brokers store it but do not use it")
        key = known.get(name)
        if key is not None and key.effect is Effect.NO_EFFECT:
            warn(f"{key.name} has no effect: {key.reason}")


def _resource(
    topic: str | None, broker: str | None, group: str | None, loggers: str | None, *, asks_controllers: bool
) -> ConfigResource:
    from kraft.client.admin import ConfigResource, ResourceType

    if sum(given is not None for given in (topic, broker, group, loggers)) != 1:
        raise CommandFailed("give either --topic TOPIC, --broker ID, --group GROUP or --loggers ID", code=EXIT_USAGE)
    if asks_controllers and loggers is None:
        raise CommandFailed(
            "controllers only know their own --loggers; use --bootstrap-server for the rest", code=EXIT_USAGE
        )
    if topic is not None:
        return ConfigResource(ResourceType.TOPIC, topic)
    if group is not None:
        return ConfigResource(ResourceType.GROUP, group)
    if loggers is not None:
        if not loggers.isdigit():
            raise CommandFailed(f"--loggers {loggers}: expected the id of a broker or controller", code=EXIT_USAGE)
        return ConfigResource(ResourceType.BROKER_LOGGER, loggers)
    if broker == "all":
        return ConfigResource(ResourceType.BROKER, "")
    if not (broker or "").isdigit():
        raise CommandFailed(f'--broker {broker}: expected a broker id or "all"', code=EXIT_USAGE)
    return ConfigResource(ResourceType.BROKER, broker or "")
