"""Errors and missing responses of a cluster become a message, an exit code, and advice for the user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
import trio
import trio.testing

from kraft.client import KafkaError
from kraft.client.background import open_background
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import Disconnected, TimedOut, VersionMismatch
from kraft.deploy.cli.admin import (
    ADVICE,
    DEFAULT_BOOTSTRAP,
    IS_IT_UP,
    find_bootstrap_servers,
    require_known_host,
    run_async,
    sentence,
    to_command_failed,
)
from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.topics import parse_partitions
from kraft.deploy.launch.folder import ClusterFolder, remember_last
from kraft.deploy.launch.layout import ClusterLayout, is_cluster_id
from kraft.deploy.launch.processes import identify, write_identity
from kraft.seam import Address, DialFailed, DialOutcome, Peer
from kraft.wire.error_codes import ErrorCode
from tests.stages.kraft_command import Command


def run_with_closed(stream: int, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with one of its standard streams closed, as a shell can start a command."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "kraft.deploy.cli", *arguments]
    shell = ["sh", "-c", f'"$@" {stream}>&-', "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ClusterUnreachable("nobody"), 3),
        (TimedOut("too late"), 3),
        (Disconnected("cut"), 3),
        (DialFailed(Peer(None, "x", Address("h", 1)), DialOutcome.REFUSED), 3),
        (VersionMismatch("too old"), 1),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t"), 4),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "group g"), 4),
        (KafkaError(ErrorCode.NON_EMPTY_GROUP, "group g"), 1),
        (ValueError("not HOST:PORT"), 2),
        (CommandFailed("said already", code=7), 7),
    ],
)
def test_each_kind_of_command_failure_gives_its_exit_code(failure: Exception, code: int) -> None:
    told = to_command_failed(failure)
    assert told is not None
    assert told.code == code


def test_a_controller_address_given_as_bootstrap_server_is_recognized() -> None:
    for said in (
        VersionMismatch("the broker does not know METADATA"),
        KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a controller's listener"),
    ):
        told = str(to_command_failed(said))
        assert "give a broker's address with --bootstrap-server" in told
        assert "kraft status shows the ports" in told


def test_a_stopped_local_cluster_is_named_in_the_advice_and_not_contacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert find_bootstrap_servers(None) == (DEFAULT_BOOTSTRAP, IS_IT_UP)
    folder = ClusterFolder(tmp_path / "data")
    folder.create(ClusterLayout(brokers=1, port=24000), "an-id")
    remember_last(folder)
    servers, if_unreachable = find_bootstrap_servers(None)
    assert servers == DEFAULT_BOOTSTRAP
    start = f"start it with kraft up --background --data {folder.path}, or give --bootstrap-server"
    assert if_unreachable == f"the cluster in {folder.path} is down; {start}"
    me = identify(os.getpid())
    assert me is not None
    write_identity(folder.node(1), me)
    assert find_bootstrap_servers(None) == ("127.0.0.1:24000", IS_IT_UP)
    assert find_bootstrap_servers("elsewhere:1") == ("elsewhere:1", IS_IT_UP)


def test_an_unreachable_cluster_is_reported_with_advice() -> None:
    async def ask() -> None:
        raise ClusterUnreachable("nobody")

    with pytest.raises(CommandFailed, match="nobody; start it"):
        ClusterConnection("127.0.0.1:1", {}, None, "start it").run_async(ask)


def test_an_unknown_host_is_reported_before_a_client_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, *arguments: object, **options: object) -> list[object]:
        if host == "there.example":
            return []
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def ask() -> str:
        return "asked"

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(CommandFailed, match=r"unknown host: nobody\.example; correct --bootstrap-server") as failure:
        ClusterConnection("nobody.example:9092,nobody.example:9093", {}, None, "").run_async(ask)
    assert failure.value.code == 3
    assert ClusterConnection("nobody.example:9092,there.example:9092", {}, None, "").run_async(ask) == "asked"


@pytest.mark.parametrize("host", ["a..b", ".example", "x" * 70])
def test_an_invalid_host_name_is_reported_as_unknown(host: str) -> None:
    with pytest.raises(CommandFailed, match="unknown host: ") as failure:
        require_known_host(f"{host}:9092")
    assert failure.value.code == 3


def test_configs_keys_lists_all_keys_or_those_that_match_a_regular_expression(tmp_path: Path) -> None:
    kraft = Command(tmp_path)
    found = kraft.json("configs", "keys", "^retention")
    assert [(row["key"], row["resource"]) for row in found] == [("retention.ms", "topic"), ("retention.bytes", "topic")]
    assert {"broker", "group", "topic"} == {row["resource"] for row in kraft.json("configs", "keys")}
    (rules,) = kraft.json("configs", "keys", "^ssl.principal.mapping.rules$", "--explain")
    assert rules["what_it_is"].endswith(
        "principal. Refused: the principal is the certificate's whole name; remove the setting."
    )
    assert "kraft configs keys lists all" in kraft.run("configs", "keys", "no such key", code=4)
    assert "is no regular expression" in kraft.run("configs", "keys", "(", code=2)
    assert "startingOffsets" in {row["option"] for row in kraft.json("spark", "options")}


def test_kraft_storage_random_uuid_prints_an_id_that_kraft_storage_format_accepts(tmp_path: Path) -> None:
    kraft = Command(tmp_path)
    drawn = kraft.run("storage", "random-uuid").strip()
    assert is_cluster_id(drawn)
    assert drawn != kraft.json("storage", "random-uuid")["uuid"]


def test_a_bug_is_not_turned_into_a_user_error() -> None:
    assert to_command_failed(ZeroDivisionError()) is None


def test_a_kafka_error_is_reported_with_subject_reason_and_advice() -> None:
    told = sentence(KafkaError(ErrorCode.NON_EMPTY_GROUP, "group g: it has members"))
    assert told == (
        "group g: it has members (NON_EMPTY_GROUP); killed members leave after their session timeout; stop the others "
        "first: see kraft groups members"
    )
    assert sentence(KafkaError(ErrorCode.INVALID_CONFIG, "no")) == "no (INVALID_CONFIG)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topic t: topic t exists already", "topic t exists already"),
        ("topic t: Topic 't' already exists.", "Topic 't' already exists."),
        (
            "topic t: Topic 't.2' collides with existing topic: t_2",
            "topic t: Topic 't.2' collides with existing topic: t_2",
        ),
        ("group g: there is no group g", "there is no group g"),
        ("broker 9: broker 9 is not registered.", "broker 9 is not registered."),
        (
            "metadata.version: metadata.version: the controller supports 1",
            "metadata.version: the controller supports 1",
        ),
        ("topic t: topic t.2 is larger", "topic t: topic t.2 is larger"),
        ("topic t: there is no such topic", "topic t: there is no such topic"),
        ("there is no topic t", "there is no topic t"),
    ],
)
def test_a_kafka_error_names_its_subject_only_once(text: str, told: str) -> None:
    assert sentence(KafkaError(ErrorCode.INVALID_CONFIG, text)) == f"{told} (INVALID_CONFIG)"


def test_a_failure_inside_a_nursery_is_reported_like_any_other() -> None:
    async def fail() -> None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)

    with pytest.raises(CommandFailed, match="topic t") as failure:
        run_async(main)
    assert failure.value.code == 4


@pytest.mark.parametrize("failure", [KeyboardInterrupt, BrokenPipeError])
def test_an_interrupt_or_exit_inside_nurseries_is_raised_unwrapped(failure: type[BaseException]) -> None:
    async def fail() -> None:
        raise failure

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)

    with pytest.raises(failure):
        run_async(main)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_client_task_still_lets_the_member_leave_its_group(number: signal.Signals) -> None:
    done: list[str] = []

    async def be_interrupted_and_answer(asked: trio.Event) -> None:
        signal.raise_signal(number)
        await asked.wait()
        done.append("answered")

    async def main() -> None:
        asked = trio.Event()
        async with open_background(None) as (_, nursery):
            nursery.start_soon(be_interrupted_and_answer, asked)
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(5, shield=True):
                    asked.set()
                    await trio.testing.wait_all_tasks_blocked()

    with pytest.raises(KeyboardInterrupt):
        run_async(main)
    assert done == ["answered"]


def test_client_log_lines_are_not_mixed_with_command_output(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        structlog.get_logger("kraft.client").warning("offsets were not committed")

    run_async(work)
    printed = capsys.readouterr()
    assert (printed.out, "offsets were not committed" in printed.err) == ("", True)


def test_advice_in_errors_names_existing_commands(tmp_path: Path) -> None:
    advised = [text.split("kraft ", 1)[1].split() for text in ADVICE.values() if "kraft " in text]
    assert len(advised) > 5
    for words in advised:
        verb = words[: 2 if words[0] in ("topics", "groups", "partitions") else 1]
        assert "--help" in Command(tmp_path).run(*verb, "--help"), words


@pytest.mark.parametrize(
    ("text", "expected"),
    [("t", ("t", None)), ("t:0", ("t", [0])), ("t:3,0-2,1", ("t", [0, 1, 2, 3])), ("a.b:7", ("a.b", [7]))],
)
def test_partitions_are_parsed_from_topic_colon_ranges(text: str, expected: tuple[str, list[int] | None]) -> None:
    assert parse_partitions(text) == expected


@pytest.mark.parametrize("text", ["t:", "t:x", "t:1-", "t:-1"])
def test_an_invalid_partition_list_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"expected TOPIC or TOPIC:0,2-4"):
        parse_partitions(text)


@pytest.mark.parametrize("text", ["t:3-1", "t:0-99999999999", "t:99999999999"])
def test_an_absurdly_large_partition_range_is_refused_at_once(text: str) -> None:
    with pytest.raises(CommandFailed, match="is no range of partitions"):
        parse_partitions(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "t", "--json", "-F", "%s"), "give either --json or --format"),
        (("consume", "t", "--since", "-1h", "-o", "5"), "give either --offset or --since"),
        (("consume", "t", "--until", "now", "-o", "0:5"), "give either --offset or --since"),
        (("consume", "t", "-g", ""), "--group is empty"),
        (("groups", "reset-offsets", "", "--to-latest", "--topic", "t"), "a group's name is empty"),
        (("consume", "t", "-o", "--5"), "--offset --5: expected earliest, latest, N, -N or START:END"),
        (("consume", "t", "-o", "²"), "--offset ²: expected earliest, latest, N, -N or START:END"),
        (("consume", "t", "-n", "x"), "'x' is not a valid whole number"),
        (("consume", "t", "-o", "1:²"), "--offset 1:²: the end must be an offset"),
        (("features", "upgrade", "metadata.version=²"), "a level is a whole number"),
        (("features", "upgrade", "metadata.version=99999"), "a level is a whole number"),
        (("partitions", "delete-records", "t", "--yes", "--before", "soon"), "'soon' is not a time"),
        (("metadata", "events", "--follow", "--to", "9"), "--follow has no end"),
    ],
)
def test_contradictory_or_empty_options_are_refused_before_any_request(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "kraft.deploy.cli", *arguments, "-b", "127.0.0.1:1", "--timeout", "0.001"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("seconds", "said"), [("nan", "expected a number of seconds"), ("inf", "not in the range")])
def test_a_timeout_beyond_the_protocol_field_is_refused(tmp_path: Path, seconds: str, said: str) -> None:
    assert said in Command(tmp_path).run("topics", "list", "-b", "127.0.0.1:1", "--timeout", seconds, code=2)


def test_ctrl_c_before_a_command_starts_ends_without_a_message() -> None:
    program = (
        "import sys\n"
        "class Impatient:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'kraft.deploy.cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "from kraft.deploy.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "topics"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "arguments", [("--help",), ("completion", "bash"), ("topics", "create", "t", "-b", "127.0.0.1:1")]
)
def test_a_closed_standard_output_is_refused_in_one_line_before_any_action(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run_with_closed(1, tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kraft: standard output is closed; use >/dev/null to discard the output\n"


def test_a_read_only_standard_output_is_refused_in_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "kraft.deploy.cli", "completion", "bash"]
    with open(os.devnull) as nothing:
        done = subprocess.run(command, stdout=nothing, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    said = "kraft: standard output is open for reading only; use >/dev/null to discard the output\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(("stream", "said"), [(0, "no broker answered within 1 ms"), (2, "")])
def test_a_command_works_with_closed_standard_input_and_standard_error(tmp_path: Path, stream: int, said: str) -> None:
    done = run_with_closed(stream, tmp_path, "produce", "t", "-b", "127.0.0.1:1", "--timeout", "0.001")
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_unencodable_characters_are_printed_as_ascii_escapes(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    program = (
        "import sys\n"
        "from kraft.deploy.cli import _replace_closed_streams\n"
        "from kraft.deploy.cli.output import print_json\n"
        "_replace_closed_streams()\n"
        "print('9 → 171')\n"
        "print_json({'key': 'ü'})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout, done.stderr) == ('9 \\u2192 171\n{"key": "\\u00fc"}\n', "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_standard_output_is_not_reported_as_a_bug(tmp_path: Path, unbuffered: str) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "kraft.deploy.cli", "completion", "bash"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (1, "kraft: cannot write: No space left on device\n")
