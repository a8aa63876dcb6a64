"""One node as a process: from a properties file to `serve`, and to its exit.

Exit codes: 0 after a clean stop, 1 for an error that an operator can fix (the text says how), 70 for a broken
invariant. SIGTERM, SIGINT and SIGHUP stop cleanly; a second signal stops at once. The launcher learns of readiness and
failure on a status pipe, one JSON object per line.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from kraft.config import ConfigError, NodeConfig, parse_properties

if TYPE_CHECKING:
    import trio

    from kraft.broker.node.serve import Node
    from kraft.runtime.fault_control import FaultControl

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_BROKEN = 70

FAULT_CONTROL_KEY = "kraft.fault.control.socket"
DIRECTORY_KEYS = ("log.dirs", "log.dir", "metadata.log.dir")

START_IS_OVER_SECONDS = 1.0
IMPORT_PAUSE_SECONDS = 0.01
"""Seconds between two imports of message classes while the node serves."""


class StartTookTooLong(Exception):
    """The node was not ready within server.max.startup.time.ms."""


class Status(Protocol):
    """Reports the state of a node to the process that has started the node."""

    @property
    def alive_seconds(self) -> float | None:
        """Maximum seconds between two calls of `report_alive` while the event loop runs; None if it need not be
        called."""

    def report(self, **fields: object) -> None:
        """Report an event of the node: starting, ready, or failed. The event failed has an error text."""

    def report_stopping(self) -> None:
        """Report that the node is stopping as requested."""

    def report_alive(self) -> None:
        """Report that the event loop is running."""


class StatusPipe:
    """Reports to the launcher over a pipe. If `descriptor` is None, nothing is reported."""

    alive_seconds = None

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def report(self, **fields: object) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(fields).encode() + b"\n")
        except OSError:
            self._descriptor = None

    def report_stopping(self) -> None:
        """Do nothing, because the launcher itself has requested the stop."""

    def report_alive(self) -> None:
        """Do nothing, because the launcher notices by itself when the process ends."""


def read_config(
    path: Path | None,
    *,
    over: Mapping[str, str] = MappingProxyType({}),
    ignore_unknown: bool = False,
    fault_control: Path | None = None,
) -> NodeConfig:
    """Return the configuration in a properties file. The properties `over` override those of the file, and
    `fault_control` overrides the path of the fault control socket. Raise ConfigError if the file is invalid or cannot
    be read."""
    try:
        text = "" if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise ConfigError("", f"cannot read {path}: {why}") from None
    properties = dict(parse_properties(text)) | dict(over)
    properties |= {key: _absolute(properties[key]) for key in DIRECTORY_KEYS if key in properties}
    if fault_control is not None:
        properties[FAULT_CONTROL_KEY] = str(fault_control)
    return NodeConfig.parse(properties, ignore_unknown=ignore_unknown)


def _absolute(directories: str) -> str:
    """Return the list of paths with each path absolute. Relative paths are resolved from the working directory."""
    paths = (path.strip() for path in directories.split(","))
    return ",".join(os.path.abspath(path) if path else "" for path in paths)


def run_node(
    config: NodeConfig,
    *,
    status: Status,
    log_level: str = "info",
    log_json: bool = False,
    cluster_id: str | None = None,
    title: str = "",
    kafka_log_lines: bool = False,
    loggers: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Run a node until it ends. Return its exit code.

    With a `cluster_id`, empty log directories are formatted for that cluster. With `kafka_log_lines`, readiness is also
    logged in the same words as in Kafka, which tools that start containers wait for. `loggers` has the levels of single
    loggers, by name."""
    import structlog
    import trio

    from kraft.deploy.launch.logs import configure_logs

    set_title(config, title)
    raise_file_limit()
    as_json = log_json or config.string("kraft.log.format") == "json"
    configure_logs(log_level, node_id=config.node_id, as_json=as_json, loggers=loggers)
    log = structlog.get_logger("kraft.deploy.launch")
    log.info("the node starts", pid=os.getpid(), roles=",".join(sorted(config.roles)))
    try:
        trio.run(_live, config, status, cluster_id, kafka_log_lines)
    except BaseException as problem:  # noqa: BLE001 - the process ends here: told, logged, turned into its exit code
        cause = _first_leaf(problem)
        broken = not _is_operational(cause)
        text = str(cause) or type(cause).__name__
        log.error("the node stops", reason=text, traceback=traceback.format_exception(problem) if broken else None)
        status.report(event="failed", error=text)
        return EXIT_BROKEN if broken else EXIT_FAILED
    log.info("the node has stopped")
    return EXIT_CLEAN


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the system's maximum, because logs and connections need many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_title(config: NodeConfig, note: str = "") -> None:
    """Set the title that `ps` shows: `kraft node 1 broker NOTE`."""
    from setproctitle import setproctitle

    words = ("kraft node", str(config.node_id), ",".join(sorted(config.roles)), note)
    setproctitle(" ".join(word for word in words if word))


async def _live(config: NodeConfig, status: Status, cluster_id: str | None, kafka_log_lines: bool) -> None:
    import trio

    from kraft.broker.node.serve import serve
    from kraft.broker.serving.metrics.process import register_process_metrics
    from kraft.runtime import RuntimeSettings, open_seam
    from kraft.runtime.garbage import GarbagePolicy
    from kraft.runtime.process import USAGE, package_version

    garbage = GarbagePolicy()
    garbage.start()
    settings = RuntimeSettings(
        connections_idle_ms=config.integer("connections.max.idle.ms"),
        listen_backlog=config.integer("socket.listen.backlog.size"),
        shares_wait=True,
        worked=garbage.worked,
    )
    faults = _fault_control(config)
    links, replies = (None, None) if faults is None else (faults.links, faults.replies)
    opening = open_seam(
        node_name=str(config.node_id),
        settings=settings,
        dial_map=config.dial_map,
        links=links,
        disk_faults=None if faults is None else faults.disk,
    )
    async with opening as seam, trio.open_nursery() as nursery:
        nursery.start_soon(garbage.run)
        if faults is not None:
            await nursery.start(faults.run, config.string(FAULT_CONTROL_KEY))
        serving = partial(serve, config, seam, cluster_id=cluster_id, replies=replies, version=package_version)
        node = await nursery.start(partial(_serve_to_the_end, serving, nursery.cancel_scope))
        register_process_metrics(USAGE, node.metrics)
        if node.admin is not None:
            status.report(event="starting", admin=str(node.admin.address))
        nursery.start_soon(_stop_on_signal, partial(_stop, node, status), nursery.cancel_scope)
        if status.alive_seconds is not None:
            nursery.start_soon(_report_alive, status, status.alive_seconds)
        await _wait_ready(node, config.integer("server.max.startup.time.ms"))
        status.report(event="ready")
        if kafka_log_lines:
            _log_ready_as_kafka(config.node_id)
        if config.is_controller:
            await _import_messages(lambda: node.quorum.is_leader)


def _log_ready_as_kafka(node_id: int) -> None:
    """Log the lines of Kafka's BrokerLifecycleManager and KafkaServer that testcontainers modules wait for."""
    import structlog

    log = structlog.get_logger("kraft.deploy.launch")
    for line in (
        "Transitioning from RECOVERY to RUNNING",
        "Kafka Server started",
        f"[KafkaServer id={node_id}] started",
    ):
        log.info(line)


def _fault_control(config: NodeConfig) -> FaultControl | None:
    """Return the object that controls injected faults; None unless the node is started with a fault control socket."""
    if not config.string(FAULT_CONTROL_KEY):
        return None
    from kraft.runtime.fault_control import FaultControl
    from kraft.runtime.links import LinkPolicies
    from kraft.wire.reply_policy import ReplyPolicy

    return FaultControl(LinkPolicies(), ReplyPolicy())


async def _import_messages(is_active: Callable[[], bool]) -> None:
    """Import the message classes of a controller's APIs before they are requested, a few milliseconds at a time.

    The classes of DescribeQuorum are imported at once. The other classes are imported only on the active controller,
    because on other controllers 3 MB would be wasted; these import a class when they need it. The import waits until
    the other nodes of this machine have probably started and no longer need its processors."""
    import trio

    from kraft.wire.api_keys import ApiKey
    from kraft.wire.messages import request_class, response_class

    changes = (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.DESCRIBE_CLUSTER,
    )
    for key in (ApiKey.DESCRIBE_QUORUM, *changes):
        for load in (request_class, response_class):
            load(key)
            await trio.sleep(IMPORT_PAUSE_SECONDS)
        if key is ApiKey.DESCRIBE_QUORUM:
            await trio.sleep(START_IS_OVER_SECONDS)
            if not is_active():
                return


async def _wait_ready(node: Node, time_ms: int) -> None:
    import trio

    with trio.move_on_after(time_ms / 1000) as waiting:
        await node.wait_ready()
    if waiting.cancelled_caught:
        raise StartTookTooLong(
            f"the node is not ready after server.max.startup.time.ms={time_ms}; is a majority of the controllers up?"
        )


async def _serve_to_the_end(
    serve: Callable[..., Awaitable[None]], scope: trio.CancelScope, *, task_status: trio.TaskStatus[Node]
) -> None:
    await serve(task_status=task_status)
    scope.cancel()


async def _report_alive(status: Status, seconds: float) -> None:
    import trio

    while True:
        status.report_alive()
        await trio.sleep(seconds)


def _stop(node: Node, status: Status) -> None:
    status.report_stopping()
    node.request_stop()


async def _stop_on_signal(request_stop: Callable[[], None], scope: trio.CancelScope) -> None:
    import trio

    asked = False
    with trio.open_signal_receiver(*_stop_signals()) as signals:
        async for _ in signals:
            if asked:
                scope.cancel()
            asked = True
            request_stop()


def _stop_signals() -> list[signal.Signals]:
    """Return the signals that stop the node. SIGHUP, which a closed terminal sends, is among them unless it is ignored,
    as nohup does."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hang_up]


def _first_leaf(problem: BaseException) -> BaseException:
    """Return the first exception within nested exception groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _is_operational(problem: BaseException) -> bool:
    """Whether an operator can fix the cause of an error: one of our errors with a readable text, or a system error."""
    from kraft.seam import InvariantError

    ours = type(problem).__module__.startswith("kraft.")
    return isinstance(problem, OSError) or (ours and not isinstance(problem, InvariantError))


def main(arguments: Sequence[str]) -> int:
    """`python -m kraft.deploy.launch.node_process PROPERTIES [STATUS_DESCRIPTOR [LOG_LEVEL [CLUSTER_ID]]]`: run a node
    without a zygote. With a cluster id, empty log directories are formatted for that cluster."""
    from kraft.deploy.launch.imports import hide_modules

    hide_modules()
    path = Path(arguments[0])
    given = dict(zip(("status", "log_level", "cluster_id"), arguments[1:], strict=False))
    status = StatusPipe(int(given["status"]) if "status" in given else None)
    try:
        config = read_config(path)
    except ConfigError as problem:
        print(f"{path}: {problem}", file=sys.stderr)
        status.report(event="failed", error=str(problem))
        return EXIT_FAILED
    return run_node(
        config,
        status=status,
        log_level=given.get("log_level", "info"),
        cluster_id=given.get("cluster_id"),
        title=str(path.parent.parent),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
