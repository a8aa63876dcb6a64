"""`kraft node`: run one node in this process, from a server.properties in Kafka's format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kraft.deploy.cli.completing import complete_log_level
from kraft.deploy.cli.output import warn


def node(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A server.properties file.")] = None,
    from_environment: Annotated[
        bool,
        typer.Option(
            "--from-environment", help="Take properties from KAFKA_… variables as well; they override the file."
        ),
    ] = False,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Only warn about keys that Kafka does not know.")
    ] = False,
    fault_control: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="Let kraft fault inject faults into this node."),
    ] = None,
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level", "--log.level", help="debug, info, warning or error.", autocompletion=complete_log_level
        ),
    ] = "info",
    log_json: Annotated[
        bool, typer.Option("--log-json", "--json", help="Write the log as JSON, one object per line.")
    ] = False,
    logger: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVEL", help="The level of one logger, such as kraft.broker.fetch; may be repeated."
        ),
    ] = None,
    kafka_log_lines: Annotated[
        bool, typer.Option("--kafka-log-lines", help="Also log readiness in Kafka's words.")
    ] = False,
) -> None:
    """Run one node (process.roles controller, broker or both) until SIGTERM or ctrl-C."""
    from kraft.deploy.launch.environment import environment_properties
    from kraft.deploy.launch.imports import NodeModules
    from kraft.deploy.launch.logs import LEVELS, parsed_logger_levels
    from kraft.deploy.launch.node_process import StatusPipe, read_config, run_node
    from kraft.deploy.launch.streams import make_outputs_lossy
    from kraft.deploy.launch.systemd import SystemdStatus

    if log_level not in LEVELS:
        raise typer.BadParameter(f"expected one of {', '.join(LEVELS)}", param_hint="--log-level")
    try:
        loggers = parsed_logger_levels(logger or ())
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--logger") from None
    make_outputs_lossy()
    if config is None and not from_environment:
        raise typer.BadParameter("name a file, or give --from-environment", param_hint="--config")
    over = environment_properties(os.environ) if from_environment else {}
    parsed = read_config(config, over=over, ignore_unknown=ignore_unknown, fault_control=fault_control)
    NodeModules().import_for_every_node()
    status = SystemdStatus.of_environment(os.environ) or StatusPipe(None)
    status.report(event="starting")
    code = run_node(
        parsed,
        status=status,
        log_level=log_level,
        log_json=log_json,
        kafka_log_lines=kafka_log_lines,
        loggers=loggers,
    )
    if code:
        warn(f"kraft: node {parsed.node_id} has ended with an error; the log above says why")
    raise typer.Exit(code)
