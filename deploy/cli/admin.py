"""Run a command's requests against a cluster: find the cluster, and turn errors and timeouts into CommandFailed."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

import structlog
import trio

from kraft.client.cluster import ClusterUnreachable, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.deploy.cli.output import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from kraft.seam import sole_error
from kraft.wire.error_codes import ErrorCode

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

IS_IT_UP = "is it up? see kraft status, or give --bootstrap-server"
IS_THE_CONTROLLER_UP = "is it up? see kraft status, or correct --bootstrap-controller"

NOT_THERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)
ADVICE = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "see kraft topics list",
        ErrorCode.TOPIC_ALREADY_EXISTS: "add --if-not-exists if that is fine",
        ErrorCode.GROUP_ID_NOT_FOUND: "see kraft groups list",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "see kraft transactions list",
        ErrorCode.NON_EMPTY_GROUP: (
            "killed members leave after their session timeout; stop the others first: see kraft groups members"
        ),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
            "the group has another type, or members with other assignors; see kraft groups list"
        ),
        ErrorCode.UNKNOWN_MEMBER_ID: "the group has active members: stop them first",
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
        ErrorCode.BROKER_NOT_AVAILABLE: "use --bootstrap-controller for a controller; see kraft brokers",
        ErrorCode.BROKER_ID_NOT_REGISTERED: "see kraft brokers",
        ErrorCode.INVALID_REPLICATION_FACTOR: "see kraft brokers for how many are active",
        ErrorCode.LEADER_NOT_AVAILABLE: "see kraft topics describe --unavailable",
        ErrorCode.NOT_CONTROLLER: "the quorum has no leader now; see kraft quorum",
        ErrorCode.COORDINATOR_NOT_AVAILABLE: (
            "see kraft topics describe __consumer_offsets, or __transaction_state for a transactional id"
        ),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for permission on this topic",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for permission on this group",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask for permission on this transactional id",
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask for permission on the cluster",
        ErrorCode.LOG_DIR_NOT_FOUND: "see kraft logdirs",
        ErrorCode.MESSAGE_TOO_LARGE: (
            "send less at once, or raise max.request.size (-X) and the topic's max.message.bytes"
        ),
        ErrorCode.INVALID_TOPIC_EXCEPTION: "names have at most 249 characters: letters, digits, '.', '_' and '-'",
        ErrorCode.MISMATCHED_ENDPOINT_TYPE: (
            "give a broker's address with --bootstrap-server, a controller's with --bootstrap-controller; "
            "kraft status shows the ports"
        ),
        ErrorCode.OFFSET_OUT_OF_RANGE: "see kraft partitions list for the offsets that are there",
    }
)
"""Advice on what the user should do next, by error code."""


def run_async(main: Callable[[], Awaitable[T]], *, if_unreachable: str = IS_IT_UP) -> T:
    """Run an async function. A KafkaError, or the lack of a response, becomes CommandFailed. If no broker responded,
    its text ends with the advice `if_unreachable`. Ctrl-C and SIGTERM raise KeyboardInterrupt. SIGTERM is handled
    because `timeout` and supervisors send it: a group member that does not leave is removed only at its session
    timeout.

    Signals are handled here and not by trio. Trio raises KeyboardInterrupt in whichever task is running. In one of a
    client's own tasks, the exception would close the connections over which a member still has to leave its group."""
    try:
        with _logs_on_standard_error():
            return trio.run(_until_terminated, main)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        problem = sole_error(group)
        raise to_command_failed(problem, if_unreachable=if_unreachable) or problem from None
    except Exception as problem:
        failure = to_command_failed(problem, if_unreachable=if_unreachable)
        if failure is None:
            raise
        raise failure from None


@contextmanager
def _logs_on_standard_error() -> Iterator[None]:
    """Log the client's warnings to standard error: they must not mix with a command's output."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _until_terminated(main: Callable[[], Awaitable[T]]) -> T:
    async with trio.open_nursery() as nursery:
        await nursery.start(_raise_on_signals)
        result = await main()
        nursery.cancel_scope.cancel()
    return result


async def _raise_on_signals(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            raise KeyboardInterrupt


def to_command_failed(problem: BaseException | None, *, if_unreachable: str = IS_IT_UP) -> CommandFailed | None:
    """Return the message and exit code for a failure; None for a bug of this program."""
    if isinstance(problem, CommandFailed):
        return problem
    if isinstance(problem, (ClusterUnreachable, *CONNECTION_FAILURES)):
        return CommandFailed(f"{problem}; {if_unreachable}", code=EXIT_UNREACHABLE)
    if isinstance(problem, VersionMismatch) and "does not know METADATA" in str(problem):
        return CommandFailed(
            "who answered is no broker, but may be a controller: give a broker's address with --bootstrap-server; "
            "kraft status shows the ports"
        )
    if isinstance(problem, VersionMismatch):
        return CommandFailed(f"{problem}: the cluster cannot do this: its release is too old, or that of kraft")
    if isinstance(problem, KafkaError):
        code = EXIT_NOT_FOUND if problem.code in NOT_THERE else EXIT_FAILED
        return CommandFailed(sentence(problem), code=code)
    from kraft.runtime.tls import TlsConfigError  # imported here because most commands need no TLS

    if isinstance(problem, UnicodeEncodeError):
        return CommandFailed(f"{_typed(problem.object)}: not UTF-8, but names in a cluster must be", code=EXIT_USAGE)
    if isinstance(problem, ValueError | TlsConfigError):
        return CommandFailed(str(problem), code=EXIT_USAGE)
    return None


def _typed(text: str) -> str:
    r"""Return the text with each byte of the command line that is not UTF-8 shown as `\xff`. Python represents these
    bytes as lone surrogates."""
    return "".join(f"\\x{ord(one) & 0xFF:02x}" if "\udc80" <= one <= "\udcff" else one for one in text)


def sentence(problem: KafkaError) -> str:
    """Return a Kafka error as a sentence: what was rejected, Kafka's name for the reason, and what to do next."""
    text = _without_doubled_subject(str(problem).removeprefix(f"{problem.code.name}: "))
    advice = ADVICE.get(problem.code)
    return f"{text} ({problem.code.name})" + (f"; {advice}" if advice else "")


def _without_doubled_subject(text: str) -> str:
    """Return an error message without its doubled subject, as in `topic a: Topic 'a' already exists.` Our client puts
    the name first, and the cluster's own message may repeat it."""
    subject, _, rest = text.partition(": ")
    kind, _, name = subject.partition(" ")
    named = rf"(?<![\w.-]){re.escape(subject)}(?![\w-]|\.\w)|\b{re.escape(kind)} '{re.escape(name)}'"
    return rest if re.search(named, rest, re.IGNORECASE) else text


def require_known_host(bootstrap_servers: str) -> None:
    """Raise CommandFailed if none of these host names resolves: retrying would not help."""
    from kraft.deploy.launch.hosts import is_known_host

    try:
        hosts = [address.host for address in parse_bootstrap(bootstrap_servers)]
    except ValueError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    if not any(map(is_known_host, hosts)):
        named = ", ".join(dict.fromkeys(hosts))
        raise CommandFailed(f"unknown host: {named}; correct --bootstrap-server", code=EXIT_UNREACHABLE)


def find_bootstrap_servers(given: str | None) -> tuple[str, str]:
    """Return the brokers to connect to, and the advice to print if none of them responds. The brokers are the given
    ones; else those of the running local cluster that was started last; else Kafka's usual address."""
    from kraft.deploy.launch.errors import LaunchError
    from kraft.deploy.launch.folder import last_folder

    if given is not None:
        return given, IS_IT_UP
    try:
        folder = last_folder()
        if folder.runs:
            return folder.read()[0].bootstrap_servers(), IS_IT_UP
        down = f"the cluster in {folder.path} is down; start it with {folder.start_command}"
        return DEFAULT_BOOTSTRAP, f"{down}, or give --bootstrap-server"
    except LaunchError:
        return DEFAULT_BOOTSTRAP, IS_IT_UP
