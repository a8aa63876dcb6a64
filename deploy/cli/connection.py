"""Connection of a command to its cluster: the options that all commands over the network share.

`@over_network` gives a command these options; the command's function receives one `ClusterConnection` instead. If a
setting is given more than once, the later of these sources overrides: `--command-config FILE` (a file as for Kafka's
tools), the `--tls-…` options, `-X`.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from kraft.deploy.cli.completing import complete_client_setting
from kraft.deploy.cli.output import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.client.core.configs import ClientConfig
    from kraft.runtime import TlsSettings

T = TypeVar("T")

TIMEOUT_MS = 10_000
TIMEOUT_SECONDS_MAX = 2_147_483
"""Maximum value of `--timeout` in seconds, because requests carry the timeout as milliseconds in 32 bits."""
REFUSED_MS = 2_000
"""Milliseconds after which a command without --timeout fails if every address refuses the connection."""
PEM = "PEM"
SERVERS_VARIABLE = "KRAFT_BOOTSTRAP_SERVER"
PAIRS = MappingProxyType({"--header": "NAME=VALUE"})
"""Format of the pairs that an option takes, by option. Options that are not listed take KEY=VALUE."""

SHARED_OPTIONS: Mapping[str, tuple[Any, Any]] = MappingProxyType(
    {
        "bootstrap_server": (
            Annotated[
                str | None,
                typer.Option(
                    "--bootstrap-server",
                    "--bootstrap",
                    "-b",
                    metavar="HOST:PORT,…",
                    envvar=SERVERS_VARIABLE,
                    help="Brokers to ask; default: of the clusters that run, the one started last, "
                    "else 127.0.0.1:9092.",
                ),
            ],
            None,
        ),
        "command_config": (
            Annotated[
                Path | None,
                typer.Option(
                    "--command-config",
                    metavar="FILE",
                    help="A properties file of client settings, as Kafka's tools take.",
                ),
            ],
            None,
        ),
        "client_settings": (
            Annotated[
                list[str] | None,
                typer.Option(
                    "-X",
                    metavar="KEY=VALUE",
                    help="A client setting by Kafka's name; may be repeated.",
                    autocompletion=complete_client_setting,
                ),
            ],
            None,
        ),
        "tls": (Annotated[bool, typer.Option("--tls", help="Use TLS: security.protocol=SSL.")], False),
        "tls_ca": (
            Annotated[
                str | None,
                typer.Option("--tls-ca", metavar="FILE", help="PEM file of the authorities to trust; implies --tls."),
            ],
            None,
        ),
        "tls_cert": (
            Annotated[
                str | None,
                typer.Option(
                    "--tls-cert", metavar="FILE", help="PEM file of the client's certificate and key; implies --tls."
                ),
            ],
            None,
        ),
        "timeout": (
            Annotated[
                float | None,
                typer.Option(
                    "--timeout",
                    metavar="SECONDS",
                    min=0.001,
                    max=TIMEOUT_SECONDS_MAX,
                    help="How long to wait for an answer [10; 2 where all refuse]; in produce: for the delivery of "
                    "each record [120].",
                ),
            ],
            None,
        ),
    }
)
"""Name, annotation and default of each shared option."""

CONTROLLER_OPTION = (
    "bootstrap_controller",
    Annotated[
        str | None,
        typer.Option(
            "--bootstrap-controller",
            metavar="HOST:PORT,…",
            help="Controllers to ask, instead of brokers.",
        ),
    ],
)
"""Name and annotation of `--bootstrap-controller`, for commands that controllers can answer."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """Addresses of a command's cluster, and the client settings given for it, by Kafka's names.

    `if_unreachable` is the advice to print if no broker responds at these addresses. `is_given` is true if the user
    gave the address, and false if it is that of a local cluster that was found running."""

    bootstrap_servers: str
    settings: Mapping[str, str]
    given_timeout_ms: int | None
    if_unreachable: str
    asks_controllers: bool = False
    """Whether `bootstrap_servers` are controllers."""
    is_given: bool = True

    @property
    def timeout_ms(self) -> int:
        """Maximum milliseconds to wait for a response."""
        return TIMEOUT_MS if self.given_timeout_ms is None else self.given_timeout_ms

    @property
    def refused_ms(self) -> int | None:
        """Maximum milliseconds to retry while every address refuses the connection. None: no separate limit for refused
        connections."""
        return REFUSED_MS if self.given_timeout_ms is None else None

    def tls(self) -> TlsSettings | None:
        """TLS settings from `security.protocol` and the `ssl.` settings."""
        from kraft.deploy.cli.tls_settings import client_tls

        return client_tls(self.settings)

    def producer_settings(self, **options: str | None) -> dict[str, Any]:
        """Return keyword arguments for a producer. An option that is not None overrides the setting of the same name. A
        setting overrides the delivery timeout that `--timeout` implies."""
        from kraft.client.core.configs import ProducerConfig

        patience = {} if self.given_timeout_ms is None else {"delivery_timeout_ms": self.given_timeout_ms}
        settings = patience | self._arguments(ProducerConfig, options)
        if options.get("transactional_id") is None:
            # only if the command asks for transactions: an application may use the id in the settings
            settings.pop("transactional_id", None)
        return settings

    def consumer_settings(self, group: str | None = None, **options: str | None) -> dict[str, Any]:
        """Return keyword arguments for a consumer, which is a member of `group` if that is not None. An option that is
        not None overrides the setting of the same name."""
        from kraft.client.core.configs import ConsumerConfig

        settings = self._arguments(ConsumerConfig, options)
        for name in ("group_id", "group_instance_id") if group is None else ():
            settings.pop(name, None)
        return settings if group is None else {**settings, "group_id": group}

    def share_consumer_settings(self, group: str, count: int | None) -> dict[str, Any]:
        """Return keyword arguments for a share consumer that is a member of `group`, and acknowledges explicitly. It
        fetches not many more records than `count`, because all that it fetches are taken from other members."""
        from kraft.client.core.configs import ShareConsumerConfig

        own = {"group_id": group, "share_acknowledgement_mode": "explicit"}
        settings = {**self._arguments(ShareConsumerConfig, {}), **own}
        usual = settings.get("max_poll_records", ShareConsumerConfig.max_poll_records)
        return settings if count is None or count >= int(usual) else {**settings, "max_poll_records": count}

    def _arguments(self, config: type[ClientConfig], options: Mapping[str, str | None]) -> dict[str, Any]:
        from kraft.deploy.cli.client_settings import settings_of

        own = {name.replace(".", "_"): value for name, value in settings_of(config, self.settings).items()}
        given = {name: value for name, value in options.items() if value is not None}
        return {**own, **given, "bootstrap_servers": self.bootstrap_servers, "tls": self.tls()}

    def run(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run `work` with an admin client; failures become CommandFailed."""

        async def main() -> T:
            async with self.admin() as admin:
                return await work(admin)

        return self.run_async(main)

    def run_async(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run an async function that talks to this cluster; failures become CommandFailed."""
        from kraft.deploy.cli.admin import require_known_host, run_async

        require_known_host(self.bootstrap_servers)
        try:
            return run_async(main, if_unreachable=self.if_unreachable)
        except CommandFailed as problem:
            if problem.code != EXIT_UNREACHABLE:
                raise
            raise CommandFailed(f"{problem}{self._advice(str(problem))}", code=EXIT_UNREACHABLE) from None

    def _advice(self, problem: str) -> str:
        """Return advice about TLS for an error of a client that could not establish any connection."""
        if self.tls() is not None:
            return "; does it speak TLS there, and is its certificate one that --tls-ca trusts?"
        return "; does it want --tls?" if "before the answer to API_VERSIONS" in problem else ""

    def admin(self) -> Admin:
        """Return an admin client, not yet opened."""
        from kraft.client.admin import Admin

        servers, controllers = ("", self.bootstrap_servers) if self.asks_controllers else (self.bootstrap_servers, "")
        return Admin(
            bootstrap_servers=servers,
            bootstrap_controllers=controllers,
            client_id=self.settings.get("client.id", "kraft-cli"),
            timeout_ms=self.timeout_ms,
            refused_ms=self.refused_ms,
            tls=self.tls(),
        )


def over_network(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command, and pass their values to it as its first parameter, `connection`."""
    return _with_options(verb, SHARED_OPTIONS)


def over_network_or_controllers(verb: Callable[..., None]) -> Callable[..., None]:
    """Do the same as `over_network`, for a command that controllers can answer as well as brokers."""
    name, annotation = CONTROLLER_OPTION
    (first, option), *others = SHARED_OPTIONS.items()
    return _with_options(verb, {first: option, name: (annotation, None), **dict(others)})


def _with_options(verb: Callable[..., None], shared: Mapping[str, tuple[Any, Any]]) -> Callable[..., None]:
    signature = inspect.signature(verb)
    hints = get_type_hints(verb, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(signature.parameters.values())[1:]
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    ]

    @functools.wraps(verb)
    def with_options(**given: Any) -> None:
        options = {name: given.pop(name) for name in shared}
        verb(_connection(**options), **given)

    with_options.__signature__ = signature.replace(parameters=[*own, *added], return_annotation=None)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
    return with_options


def _connection(
    *,
    bootstrap_server: str | None,
    command_config: Path | None,
    client_settings: Sequence[str] | None,
    tls: bool,
    tls_ca: str | None,
    tls_cert: str | None,
    timeout: float | None,
    bootstrap_controller: str | None = None,
) -> ClusterConnection:
    from kraft.deploy.cli.admin import IS_THE_CONTROLLER_UP, find_bootstrap_servers
    from kraft.deploy.cli.client_settings import drop_unknown, refuse_unknown

    settings: dict[str, str] = {}
    if command_config is not None:
        settings = read_properties(command_config)
        drop_unknown(settings, command_config)
    if tls or tls_ca or tls_cert:
        settings["security.protocol"] = "SSL"
    for name, path in (("ssl.truststore", tls_ca), ("ssl.keystore", tls_cert)):
        if path is not None:
            settings |= {f"{name}.location": path, f"{name}.type": PEM}
    given = dict(pair(entry, "-X") for entry in client_settings or ())
    refuse_unknown(given)
    settings |= given
    named = settings.pop("bootstrap.servers", None)
    for option, addresses in (("server", bootstrap_server), ("controller", bootstrap_controller)):
        if addresses == "":
            raise CommandFailed(f"--bootstrap-{option} is empty: expected HOST:PORT,…", code=EXIT_USAGE)
    if timeout is not None and math.isnan(timeout):
        raise CommandFailed("--timeout nan: expected a number of seconds", code=EXIT_USAGE)
    timeout_ms = None if timeout is None else round(timeout * 1000)
    if bootstrap_controller is not None:
        if bootstrap_server not in (None, os.environ.get(SERVERS_VARIABLE)):
            text = "--bootstrap-server and --bootstrap-controller are given: expected one of them"
            raise CommandFailed(text, code=EXIT_USAGE)
        return ClusterConnection(
            bootstrap_controller, settings, timeout_ms, IS_THE_CONTROLLER_UP, asks_controllers=True
        )
    given_servers = bootstrap_server or named
    servers, if_unreachable = find_bootstrap_servers(given_servers)
    return ClusterConnection(servers, settings, timeout_ms, if_unreachable, is_given=given_servers is not None)


def read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file. Raise CommandFailed if it cannot be read."""
    from kraft.config import parse_properties

    return dict(parse_properties(read_text(path)))


def read_text(path: Path) -> str:
    """Read the text of a properties file. Raise CommandFailed if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise CommandFailed(f"{path}: {problem.strerror}", code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path}: this is not text, so it is not a properties file", code=EXIT_USAGE) from None


def pair(entry: str, option: str = "") -> tuple[str, str]:
    """Split `KEY=VALUE` into a pair. Raise CommandFailed for anything else."""
    key, equals, value = entry.partition("=")
    if not equals or not key.strip():
        raise CommandFailed(f"{option} {entry}: expected {PAIRS.get(option, 'KEY=VALUE')}".strip(), code=EXIT_USAGE)
    return key.strip(), value


def refuse_options_before(ctx: typer.Context, verb: str) -> None:
    """Raise CommandFailed for options that precede the subcommand, where Kafka's tool takes them. There they apply only
    to the command without a subcommand, so the subcommand would act on another cluster than the user meant."""
    for option in ctx.command.params:
        source = ctx.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise CommandFailed(
                f"{option.opts[0]} stands before {verb}: put it behind, {ctx.command_path} {verb} … {option.opts[0]} …",
                code=EXIT_USAGE,
            )
