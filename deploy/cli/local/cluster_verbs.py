"""Commands for a local cluster's processes: up, down, status, logs, kill, stop, start, pause, resume."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.completing import complete_broker_setting, complete_log_level, complete_node, one_of
from kraft.deploy.cli.early import take_zygote
from kraft.deploy.cli.local.foreground import addresses_json, addresses_text, announce, show_until_end, warn_of_killed
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, DataOption, JsonOption, print_json, show, warn

if TYPE_CHECKING:
    from kraft.deploy.launch.control import LocalCluster
    from kraft.deploy.launch.folder import ClusterFolder
    from kraft.deploy.launch.layout import ClusterLayout

NodeArgument = Annotated[
    int, typer.Argument(metavar="NODE", help="Node id, as kraft status shows it.", autocompletion=complete_node)
]

_FOLLOW_SECONDS = 0.2
ANY_PORT = 0


def up(
    controllers: Annotated[int | None, typer.Option(min=1, help="Controllers, as processes of their own. [3]")] = None,
    brokers: Annotated[int | None, typer.Option(min=1, help="Brokers, as processes of their own. [3]")] = None,
    combined: Annotated[int | None, typer.Option(min=1, help="Nodes with both roles; replaces the two above.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Folder; default: a temporary one.")] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port of broker 1; the others follow, controllers 100 above; 0: free ones. [9092]"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[NODE:]KEY=VALUE",
            help="A setting of every node, or of one: 2:KEY=VALUE; may be repeated.",
            autocompletion=complete_broker_setting,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="dev: fast first rebalance, as many replicas as the brokers allow, at most 3; or kafka. [dev]",
            autocompletion=one_of("dev", "kafka"),
        ),
    ] = None,
    racks: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Racks of the brokers, in order; repeated if there are fewer.")
    ] = None,
    external: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A second listener for clients on other machines.")
    ] = None,
    fault_control: Annotated[
        bool, typer.Option("--fault-control", help="Let kraft fault inject faults into the nodes.")
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Run kraft console beside it, at http://127.0.0.1:8480.")
    ] = False,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let the pages of --console change the cluster and make faults.")
    ] = False,
    background: Annotated[bool, typer.Option("--background", help="Return once the cluster is ready.")] = False,
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error.", autocompletion=complete_log_level)
    ] = "info",
    log_json: Annotated[
        bool, typer.Option("--log-json", help="The nodes write their logs as JSON: kraft.log.format=json.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster on this machine and wait until every broker is ready."""
    given = {
        "controllers": controllers,
        "brokers": brokers,
        "combined": combined,
        "port": port,
        "profile": profile,
        "external": external,
        "fault_control": fault_control or None,
        "settings": [*(settings or []), *(["kraft.log.format=json"] if log_json else [])] or None,
        "racks": racks,
    }
    from kraft.deploy.launch.streams import make_outputs_lossy

    make_outputs_lossy()
    if console or allow_changes:
        _check_console(console, background)
    cluster = _launch(data, given, log_level)
    for notice in cluster.notices:
        warn(notice)
    try:
        cluster.wait_ready()
        if background:
            cluster.detach()
            is_known = _is_known(cluster)
            announce(cluster, as_json, how_to_end="kraft down" + ("" if is_known else f" --data {cluster.folder.path}"))
            return
        with _console(cluster, allow_changes, as_json) if console else nullcontext():
            show_until_end(cluster, as_json, is_temporary=data is None)
    except BaseException:
        cluster.down()
        raise


def _check_console(is_wanted: bool, background: bool) -> None:
    """Raise CommandFailed before anything is started, if a console cannot run for this cluster."""
    from kraft.deploy.cli.console import require_extra

    if not is_wanted:
        raise CommandFailed("--allow-changes is for the pages of --console: give both", code=EXIT_USAGE)
    if background:
        raise CommandFailed("--console ends with kraft up: with --background run kraft console", code=EXIT_USAGE)
    require_extra()


def _console(cluster: LocalCluster, allow_changes: bool, as_json: bool) -> AbstractContextManager[None]:
    from kraft.deploy.cli.local.console_beside import console_beside

    return console_beside(cluster, allow_changes=allow_changes, as_json=as_json)


def _is_known(cluster: LocalCluster) -> bool:
    """Whether `kraft down` without --data would find this cluster. It would not if the home folder is not writable."""
    from kraft.deploy.launch.folder import started_folders

    return [folder.path for folder in started_folders()[:1]] == [cluster.folder.path]


def _launch(data: str | None, given: Mapping[str, Any], log_level: str) -> LocalCluster:
    """Start the processes. On failure, end all of them and delete a temporary folder."""
    from kraft.deploy.launch.control import LocalCluster
    from kraft.deploy.launch.logs import LEVELS

    zygote = take_zygote()
    temporary: Path | None = None
    try:
        if log_level not in LEVELS:
            raise CommandFailed(f"--log-level {log_level}: expected one of {', '.join(LEVELS)}", code=EXIT_USAGE)
        folder, is_temporary = _folder_of_up(data)
        temporary = folder.path if is_temporary else None
        layout, cluster_id = _layout_of_up(folder, given)
    except BaseException:
        if zygote is not None:
            zygote.abandon()
        if temporary is not None:
            temporary.rmdir()
        raise
    try:
        return LocalCluster.up(
            folder, layout, cluster_id, zygote=zygote, is_temporary=is_temporary, log_level=log_level
        )
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def down(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Stop all nodes of the cluster cleanly."""
    cluster = find_cluster(data)
    was_up = cluster.is_up
    killed = cluster.down()
    if as_json:
        print_json({"data": str(cluster.folder.path), "was_up": was_up, "killed": killed})
        return
    print(f"{cluster.folder.path} is down" if was_up else f"the cluster in {cluster.folder.path} was not up")
    warn_of_killed(killed)


def status(
    data: DataOption = None,
    every: Annotated[bool, typer.Option("--all", help="One line for each cluster that this user has started.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cluster's processes."""
    if every:
        show(as_json, ["data", "bootstrap", "up"], _started())
        return
    cluster = find_cluster(data)
    nodes = cluster.status()
    if as_json:
        rows = [
            {
                "node": n.node_id,
                "roles": n.roles,
                "ports": n.ports,
                "pid": n.pid,
                "state": n.state,
                "ended": n.ended,
                "admin": n.admin,
            }
            for n in nodes
        ]
        up_now = any(n.pid is not None for n in nodes)
        print_json({**addresses_json(cluster), "cluster_id": cluster.cluster_id, "up": up_now, "nodes": rows})
        return
    print(f"{cluster.folder.path}  {addresses_text(cluster, '  ')}  cluster {cluster.cluster_id}")
    show(
        False,
        ["node", "roles", "ports", "admin", "pid", "state", "ended"],
        [(n.node_id, n.roles, n.ports, n.admin, n.pid, n.state, n.ended) for n in nodes],
    )
    if not cluster.is_up:
        print(f"start it again with {cluster.folder.start_command}")


def logs(
    node: Annotated[
        int | None,
        typer.Argument(metavar="[NODE]", help="Node id; default: all nodes.", autocompletion=complete_node),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines from the end of each log.")] = 100,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the logs of nodes, merged by time."""
    cluster = find_cluster(data)
    chosen = cluster.node_ids if node is None else [cluster.folder.plan(node).node_id]
    positions = dict.fromkeys(chosen, 0)
    found = _read_logs(cluster, positions)
    _print_logs({node_id: text[-lines:] if lines else [] for node_id, text in found.items()}, as_json)
    while follow:
        time.sleep(_FOLLOW_SECONDS)
        _print_logs(_read_logs(cluster, positions), as_json)


def _read_logs(cluster: LocalCluster, positions: dict[int, int]) -> dict[int, list[str]]:
    """Return the new lines in the log of each of these nodes: those after its position in `positions`. Advance the
    position."""
    from kraft.deploy.cli.local.node_logs import read_from

    found: dict[int, list[str]] = {}
    for node_id, position in positions.items():
        text, positions[node_id] = read_from(cluster.folder.node(node_id) / "node.log", position)
        found[node_id] = text.splitlines()
    return found


def _print_logs(lines: dict[int, list[str]], as_json: bool) -> None:
    from kraft.deploy.cli.local.node_logs import labelled, merge_by_time

    for _, node_id, line in merge_by_time(lines):
        if as_json:
            print_json({"node": node_id, "line": line})
        else:
            print(labelled(node_id, line))
    sys.stdout.flush()


def kill(node: NodeArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Kill a node with SIGKILL, without a clean shutdown."""
    _done(as_json, node, "killed", find_cluster(data).kill(node))


def stop(node: NodeArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Stop a node cleanly: it hands over its partition leaderships first."""
    _done(as_json, node, "stopped", find_cluster(data).stop(node))


def start(node: NodeArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Start a node that was killed or stopped, and wait until it is ready."""
    cluster = find_cluster(data)
    cluster.start(node)
    _done(as_json, node, "started", next(n.pid for n in cluster.status() if n.node_id == node))


def pause(node: NodeArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Freeze a node with SIGSTOP: other nodes and clients see a hanging process."""
    _done(as_json, node, "paused", find_cluster(data).pause(node))


def resume(node: NodeArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Let a paused node continue."""
    cluster = find_cluster(data)
    was_paused = any(n.node_id == node and n.state == "paused" for n in cluster.status())
    _done(as_json, node, "resumed" if was_paused else "was not paused", cluster.resume(node))


def _started() -> list[tuple[str, str, bool]]:
    from kraft.deploy.launch.folder import started_folders

    return [(str(one.path), one.read()[0].bootstrap_servers(), one.runs) for one in started_folders()]


def find_cluster(data: str | None) -> LocalCluster:
    from kraft.deploy.launch.control import LocalCluster
    from kraft.deploy.launch.folder import ClusterFolder, last_folder

    return LocalCluster.find(ClusterFolder(data) if data is not None else last_folder())


def _folder_of_up(data: str | None) -> tuple[ClusterFolder, bool]:
    from kraft.deploy.launch.folder import ClusterFolder

    if data is not None:
        return ClusterFolder(data), False
    return ClusterFolder(tempfile.mkdtemp(prefix="kraft-")), True


def _layout_of_up(folder: ClusterFolder, given: Mapping[str, Any]) -> tuple[ClusterLayout, str]:
    """Return the layout of the cluster: the one stored in the folder, changed as the options say."""
    from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
    from kraft.deploy.launch.ports import choose_port

    asked = {name: value for name, value in given.items() if value is not None}
    is_any_port = asked.get("port") == ANY_PORT
    if is_any_port:
        del asked["port"]
    if "settings" in asked:
        asked["settings"], asked["node_settings"] = _settings_of_nodes(asked["settings"])
    if asked.get("combined") and (asked.get("controllers") or asked.get("brokers")):
        raise CommandFailed("--combined replaces --controllers and --brokers: leave them out", code=EXIT_USAGE)
    if not folder.exists():
        layout = ClusterLayout(**asked)
        return choose_port(layout) if is_any_port else layout, new_cluster_id()
    stored, cluster_id = folder.read()
    for name in ("controllers", "brokers", "combined"):
        if name in asked and asked[name] != getattr(stored, name):
            raise CommandFailed(
                f"the cluster in {folder.path} has {name}={getattr(stored, name)}, not {asked[name]}; "
                f"leave --{name} out, or choose another --data",
                code=EXIT_USAGE,
            )
    from dataclasses import replace

    if "settings" in asked:  # settings given at an earlier start still apply
        before = stored.node_settings
        asked["settings"] = {**stored.settings, **asked["settings"]}
        asked["node_settings"] = {
            node: {**before.get(node, {}), **asked["node_settings"].get(node, {})}
            for node in {**before, **asked["node_settings"]}
        }
    layout = replace(stored, **asked)
    return choose_port(layout) if is_any_port else layout, cluster_id


def _settings_of_nodes(entries: list[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the values of --set in two parts: those for all nodes, and those for one node (2:KEY=VALUE), by node
    id."""
    of_all: list[str] = []
    of_one: dict[str, list[str]] = {}
    for entry in entries:
        node, colon, setting = entry.partition(":")
        if colon and node.isdecimal():
            of_one.setdefault(str(int(node)), []).append(setting)
        else:
            of_all.append(entry)
    return parse_settings(of_all), {node: parse_settings(settings) for node, settings in of_one.items()}


def parse_settings(entries: list[str]) -> dict[str, str]:
    """Parse the values of --set, each KEY=VALUE. Raise CommandFailed or ConfigError for invalid ones. Warn of a key
    that has no effect."""
    from kraft.config import Effect, broker_key

    settings: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            raise CommandFailed(f"--set {entry}: expected KEY=VALUE", code=EXIT_USAGE)
        known = broker_key(key.strip())
        known.parse(value)
        if known.effect is Effect.NO_EFFECT:
            warn(f"{known.name} has no effect: {known.reason}")
        settings[key.strip()] = value
    return settings


def _done(as_json: bool, node: int, what: str, pid: int | None) -> None:
    if as_json:
        print_json({"node": node, "done": what, "pid": pid})
    else:
        print(f"node {node} {what} (pid {pid})")
