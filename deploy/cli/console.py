"""`kraft console`: a web console for a cluster, ours or Apache Kafka's."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, JsonOption, print_json

if TYPE_CHECKING:
    from kraft.client.consumer import Consumer
    from kraft.client.producer import Producer
    from kraft.deploy.console.settings import ConsoleSettings

HOST = "127.0.0.1"
PORT = 8480
PORT_MAX = 65_535
STDIN_BYTES = 4_096
ANSWER_MS = 5_000
"""Maximum milliseconds that the console waits for a response unless --timeout is given."""


@over_network
def console(
    connection: ClusterConnection,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = HOST,
    port: Annotated[int, typer.Option("--port", min=0, max=PORT_MAX, help="Port; 0: a free one.")] = PORT,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let pages change the cluster; default: read only.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder of a local cluster, which is the one shown unless an address is given: its metadata log, "
            "faults and metrics; default: of those that run, the one started last.",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", metavar="NODE=HOST:PORT", help="Address of a node's /metrics; may be repeated."),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option("--schema-registry", metavar="URL", help="Schema registry for Avro records: http://HOST:PORT."),
    ] = None,
    ends_with_stdin: Annotated[
        bool, typer.Option("--end-with-stdin", hidden=True, help="End when standard input ends.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a cluster in the browser: http://127.0.0.1:8480. Reads only, unless --allow-changes is given."""
    require_extra()
    from kraft.deploy.console.serving import CannotListen, bound_socket, serve
    from kraft.deploy.console.settings import ConsoleSettings

    def consumer(**more: object) -> Consumer:
        from kraft.client.consumer import Consumer

        return Consumer(**{**connection.consumer_settings(), **more})

    def producer(**more: object) -> Producer:
        from kraft.client.producer import Producer

        return Producer(**{**connection.producer_settings(), **more})

    if schema_registry is not None:
        _check_registry(schema_registry)
    connection, folder = _located(connection, data)
    addresses = _addresses(metrics or [])
    try:
        listener = bound_socket(host, port)
    except CannotListen as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    settings = ConsoleSettings(
        bootstrap=connection.bootstrap_servers,
        admin=connection.admin,
        consumer=consumer,
        producer=producer,
        host=host,
        port=listener.getsockname()[1],
        allow_changes=allow_changes,
        data=folder,
        schema_registry=schema_registry,
        metrics=addresses,
    )

    async def main() -> None:
        from trio import sleep_forever

        def started(_: object) -> None:
            _announce(settings, as_json)

        await serve(settings, listener, _stdin_ended if ends_with_stdin else sleep_forever, started)

    connection.run_async(main)


async def _stdin_ended() -> None:
    """Wait until standard input, a pipe, is at its end: the process that holds its other end has closed it or has
    ended."""
    from trio.lowlevel import wait_readable

    descriptor = sys.stdin.fileno()
    await wait_readable(descriptor)
    while os.read(descriptor, STDIN_BYTES):
        await wait_readable(descriptor)


def _announce(settings: ConsoleSettings, as_json: bool) -> None:
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{address}:{settings.port}/"
    if as_json:
        print_json({"url": url, "bootstrap": settings.bootstrap, "allow_changes": settings.allow_changes})
        sys.stdout.flush()  # flush: a program may read this output while the console keeps running
    else:
        mode = "changes allowed" if settings.allow_changes else "read-only"
        print(f"console: {url} ({mode}), cluster {settings.bootstrap}; end it with ctrl-C", flush=True)


def require_extra() -> None:
    """Raise CommandFailed if the extra [console] is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("starlette", "anycorn", "jinja2", "regex") if find_spec(name) is None]
    if missing:
        raise CommandFailed(f"the console needs {', '.join(missing)}: pip install 'pykraft[console]'", code=EXIT_USAGE)


def _check_registry(url: str) -> None:
    """Raise CommandFailed for a malformed address of a schema registry."""
    from urllib.parse import urlsplit

    if "@" in urlsplit(url).netloc:  # because pages show the address
        raise CommandFailed("--schema-registry: a user and password in the URL are not supported", code=EXIT_USAGE)
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"--schema-registry {url}: expected http://HOST:PORT", code=EXIT_USAGE)


def _located(connection: ClusterConnection, data: str | None) -> tuple[ClusterConnection, Path | None]:
    """Return the connection to the cluster to show, and the folder of a local cluster, if any. The cluster is the one
    at the given address; else the one of the given folder; else the one that commands use by default."""
    from kraft.deploy.launch.errors import LaunchError
    from kraft.deploy.launch.folder import ClusterFolder, last_folder

    if data is None and connection.is_given:
        return connection, None
    if data is None:
        try:
            folder = last_folder()
        except LaunchError:
            return connection, None
        return connection, folder.path if folder.runs else None
    folder = ClusterFolder(data)
    if not folder.exists():
        raise CommandFailed(f"--data {data}: there is no cluster of kraft up", code=EXIT_USAGE)
    if connection.is_given:
        return connection, folder.path
    return replace(connection, bootstrap_servers=folder.read()[0].bootstrap_servers()), folder.path


def _addresses(entries: list[str]) -> dict[int, str]:
    found = {}
    for entry in entries:
        node, equals, address = entry.partition("=")
        if not (equals and node.isdecimal() and address.rpartition(":")[2].isdecimal()):
            raise CommandFailed(f"--metrics {entry}: expected NODE=HOST:PORT", code=EXIT_USAGE)
        found[int(node)] = address
    return found
