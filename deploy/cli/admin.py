"""Running what a verb asks of a cluster: where the cluster is, and what becomes of its refusals and silences."""

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
        ErrorCode.NON_EMPTY_GROUP: "stop its members first, or see kraft groups remove-members",
        ErrorCode.UNKNOWN_MEMBER_ID: "the group has active members: stop them first",
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
        ErrorCode.BROKER_NOT_AVAILABLE: "controllers are asked with --bootstrap-controller; see kraft brokers",
        ErrorCode.BROKER_ID_NOT_REGISTERED: "see kraft brokers",
        ErrorCode.INVALID_REPLICATION_FACTOR: "see kraft brokers for how many are active",
        ErrorCode.LEADER_NOT_AVAILABLE: "see kraft topics describe --unavailable",
        ErrorCode.NOT_CONTROLLER: "the quorum has no leader now; see kraft quorum",
        ErrorCode.COORDINATOR_NOT_AVAILABLE: "see kraft topics describe __consumer_offsets",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for the right on this topic",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for the right on this group",
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask for the right on the cluster",
        ErrorCode.LOG_DIR_NOT_FOUND: "see kraft logdirs",
        ErrorCode.MESSAGE_TOO_LARGE: (
            "send less at once, or raise max.request.size (-X) and the topic's max.message.bytes"
        ),
        ErrorCode.INVALID_TOPIC_EXCEPTION: "names are of letters, digits, '.', '_' and '-', at most 249",
        ErrorCode.MISMATCHED_ENDPOINT_TYPE: (
            "give a broker's address with --bootstrap-server, a controller's with --bootstrap-controller; "
            "kraft status shows the ports"
        ),
        ErrorCode.OFFSET_OUT_OF_RANGE: "see kraft partitions list for the offsets that are there",
    }
)
"""What to do next."""


def run_async(main: Callable[[], Awaitable[T]], *, if_silent: str = IS_IT_UP) -> T:
    """Run an async function; what a cluster refused or did not answer becomes CommandFailed, with the advice
    `if_silent` where nobody answered. Ctrl-C and SIGTERM end it by KeyboardInterrupt: `timeout` and supervisors send
    the latter, and a member that just died would be missed late.

    Neither is left to trio, which raises it in whatever task runs just then: in one of a client's own it would end the
    connections over which a member is to leave."""
    try:
        with _logs_on_standard_error():
            return trio.run(_until_terminated, main)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        problem = sole_error(group)
        raise explained(problem, if_silent=if_silent) or problem from None
    except Exception as problem:
        failure = explained(problem, if_silent=if_silent)
        if failure is None:
            raise
        raise failure from None


@contextmanager
def _logs_on_standard_error() -> Iterator[None]:
    """What our client warns of is not for those who read the verb's output."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _until_terminated(main: Callable[[], Awaitable[T]]) -> T:
    async with trio.open_nursery() as nursery:
        await nursery.start(_heed_signals)
        result = await main()
        nursery.cancel_scope.cancel()
    return result


async def _heed_signals(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            raise KeyboardInterrupt


def explained(problem: BaseException | None, *, if_silent: str = IS_IT_UP) -> CommandFailed | None:
    """What to tell of a failure, and the exit code for it; None for one that is a fault of ours."""
    if isinstance(problem, CommandFailed):
        return problem
    if isinstance(problem, (ClusterUnreachable, *CONNECTION_FAILURES)):
        return CommandFailed(f"{problem}; {if_silent}", code=EXIT_UNREACHABLE)
    if isinstance(problem, VersionMismatch) and "does not know METADATA" in str(problem):
        return CommandFailed(
            "who answered is no broker, but may be a controller: give a broker's address with --bootstrap-server; "
            "kraft status shows the ports"
        )
    if isinstance(problem, VersionMismatch):
        return CommandFailed(f"{problem}: the cluster cannot do this, its release is too old (or ours)")
    if isinstance(problem, KafkaError):
        code = EXIT_NOT_FOUND if problem.code in NOT_THERE else EXIT_FAILED
        return CommandFailed(sentence(problem), code=code)
    from kraft.runtime.tls import TlsConfigError  # only here, because most command lines need no TLS

    if isinstance(problem, UnicodeEncodeError):
        return CommandFailed(f"{_typed(problem.object)}: not UTF-8, as all names in a cluster are", code=EXIT_USAGE)
    if isinstance(problem, ValueError | TlsConfigError):
        return CommandFailed(str(problem), code=EXIT_USAGE)
    return None


def _typed(text: str) -> str:
    """The text with `\\xff` for bytes of the command line that are no UTF-8: Python makes lone surrogates of them."""
    return "".join(f"\\x{ord(one) & 0xFF:02x}" if "\udc80" <= one <= "\udcff" else one for one in text)


def sentence(problem: KafkaError) -> str:
    """A refusal as a sentence: what was refused, Kafka's name for why, and what to do next."""
    text = _without_doubled_subject(str(problem).removeprefix(f"{problem.code.name}: "))
    advice = ADVICE.get(problem.code)
    return f"{text} ({problem.code.name})" + (f"; {advice}" if advice else "")


def _without_doubled_subject(text: str) -> str:
    """`topic a: Topic 'a' already exists.` without what it says twice: the cluster's own words may name what our client
    names before them."""
    subject, _, rest = text.partition(": ")
    kind, _, name = subject.partition(" ")
    named = rf"(?<![\w.-]){re.escape(subject)}(?![\w-]|\.\w)|\b{re.escape(kind)} '{re.escape(name)}'"
    return rest if re.search(named, rest, re.IGNORECASE) else text


def require_known_host(bootstrap_servers: str) -> None:
    """CommandFailed if no name among these addresses leads anywhere: to ask again would be in vain."""
    from kraft.deploy.launch.hosts import is_known_host

    try:
        hosts = [address.host for address in parse_bootstrap(bootstrap_servers)]
    except ValueError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    if not any(map(is_known_host, hosts)):
        named = ", ".join(dict.fromkeys(hosts))
        raise CommandFailed(f"unknown host: {named}; correct --bootstrap-server", code=EXIT_UNREACHABLE)


def whom_to_ask(given: str | None) -> tuple[str, str]:
    """The brokers to ask, and the advice if none of them answers: those given, else of the clusters that run the one
    started last, else Kafka's usual address."""
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
