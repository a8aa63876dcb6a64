"""`kraft fault`: inject faults into links and responses of running nodes, and clear them again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.completing import complete_node
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, DataOption, JsonOption, print_json, show

if TYPE_CHECKING:
    from kraft.deploy.launch.fault_client import FaultClient

app = typer.Typer(
    name="fault",
    help="Inject faults into links and responses of nodes started with --fault-control.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

NodeArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="The node: its id, or the path of its fault control socket.",
        autocompletion=complete_node,
    ),
]
OptionalNode = Annotated[
    str | None,
    typer.Argument(
        metavar="[NODE]",
        help="A node's id, or the path of its socket; default: all nodes.",
        autocompletion=complete_node,
    ),
]


class LinkPolicy(StrEnum):
    """Effect of a link fault on connections."""

    OPEN = "open"
    REFUSE = "refuse"
    HANG = "hang"
    RESET = "reset"


@app.command()
def link(
    node: NodeArgument,
    peer: Annotated[
        int, typer.Argument(metavar="PEER", help="The node that NODE connects to.", autocompletion=complete_node)
    ],
    policy: Annotated[LinkPolicy, typer.Argument(help="New state of the link from NODE to PEER.")],
    listener: Annotated[str | None, typer.Option(metavar="NAME", help="Only this listener of PEER.")] = None,
    both: Annotated[bool, typer.Option("--both", help="The link from PEER to NODE as well.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Open, refuse, hang or reset the connections that NODE opens to PEER."""
    if both and not node.isdecimal():
        raise CommandFailed("--both needs NODE as an id", code=EXIT_USAGE)
    if node.isdecimal():
        _folder(data).plan(peer)  # raises an error for an unknown peer: no connection to it would ever exist
    pairs = [(node, peer), (str(peer), int(node))] if both else [(node, peer)]
    for here, there in pairs:
        _client(data, here).link(there, policy.value, listener=listener)
    if as_json:
        print_json([{"from": here, "to": there, "policy": policy.value} for here, there in pairs])
    else:
        for here, there in pairs:
            print(f"link from {here} to {there}: {policy.value}")


@app.command()
def reply(
    node: NodeArgument,
    api: Annotated[str | None, typer.Option(metavar="NAME", help="Only this API: Produce, ListOffsets …")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only requests about this topic.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only requests about this partition of it.")] = None,
    client_id: Annotated[str | None, typer.Option(metavar="ID", help="Only requests of this client id.")] = None,
    error: Annotated[
        str | None, typer.Option(metavar="NAME", help="Respond with this error, such as REQUEST_TIMED_OUT.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Never respond.")] = False,
    delay_ms: Annotated[
        int | None, typer.Option("--delay", metavar="MS", help="Delay the response by this time.")
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="Close the connection.")] = False,
    times: Annotated[int | None, typer.Option(min=1, help="How many times; default: until it is cleared.")] = None,
    after: Annotated[bool, typer.Option("--after", help="Process the request, then spoil its response.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the responses to chosen requests: an error, no response, a delayed response, or a closed connection. A
    rule for one topic applies to the whole request that names the topic."""
    actions = {"error": error is not None, "drop": drop, "delay": delay_ms is not None, "close": close}
    chosen = [name for name, is_chosen in actions.items() if is_chosen]
    if len(chosen) != 1:
        raise CommandFailed("choose one of --error NAME, --drop, --delay MS and --close", code=EXIT_USAGE)
    given: dict[str, Any] = {
        "api": api,
        "topic": topic,
        "partition": partition,
        "client_id": client_id,
        "error": error,
        "delay_ms": delay_ms,
        "times": times,
    }
    rule = {name: value for name, value in given.items() if value is not None}
    rule |= {"action": chosen[0], "after": after}
    _require_rule(rule)
    number = _client(data, node).reply(**rule)
    if as_json:
        print_json({"node": node, "rule": number})
    else:
        print(f"rule {number} of node {node} is active; end it with kraft fault clear {node} --rule {number}")


@app.command()
def clear(
    node: OptionalNode = None,
    rule: Annotated[int | None, typer.Option(metavar="NUMBER", help="Only this reply rule.")] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Clear the faults of one node or of all."""
    if rule is not None and node is None:
        raise CommandFailed("--rule needs NODE: each node numbers its own rules", code=EXIT_USAGE)
    nodes = _running(data) if node is None else [node]
    for node_id in nodes:
        _client(data, node_id).clear(rule)
    if as_json:
        print_json({"nodes": nodes, "rule": rule})
    else:
        print(f"node {', '.join(nodes)}: " + ("all faults are cleared" if rule is None else f"no rule {rule}"))


@app.command(name="list")
def list_(
    node: OptionalNode = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the active faults."""
    rows: list[tuple[str, str, int | None, str, int | None]] = []
    for node_id in _running(data) if node is None else [node]:
        faults = _client(data, node_id).listed()
        for one in faults["links"]:
            where = f"to {one['node']}" + (f" on {one['listener']}" if one["listener"] else "")
            rows.append((node_id, "link", None, f"{where}: {one['policy']}", None))
        for one in faults["rules"]:
            number, applied = one.pop("rule"), one.pop("applied")
            text = " ".join(f"{name}={value}" for name, value in one.items())
            rows.append((node_id, "reply", number, text, applied))
    show(as_json, ["node", "kind", "rule", "fault", "applied"], rows)


def _require_rule(rule: dict[str, Any]) -> None:
    """Raise CommandFailed for a rule that the node would reject."""
    from kraft.wire.reply_policy import BadRule, rule_from

    try:
        rule_from(rule)
    except BadRule as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None


def _client(data: str | None, node: str) -> FaultClient:
    from kraft.deploy.launch.fault_client import FaultClient

    return FaultClient.of_node(_folder(data), int(node)) if node.isdecimal() else FaultClient(Path(node))


def _folder(data: str | None) -> Any:
    from kraft.deploy.launch.folder import ClusterFolder, last_folder

    return last_folder() if data is None else ClusterFolder(data)


def _running(data: str | None) -> list[str]:
    """Return the running nodes of the cluster."""
    from kraft.deploy.launch.control import LocalCluster

    return [str(node.node_id) for node in LocalCluster.find(_folder(data)).status() if node.pid is not None]
