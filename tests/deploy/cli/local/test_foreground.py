"""`kraft up` in the foreground and `kraft node`: they report readiness, and end together with the processes that they
started.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import Command, free_port

SHAPE = ClusterLayout(combined=1)


END_SECONDS_MAX = 60
HOME = "\x1b[H"
"""Escape sequence that precedes each frame: moves the cursor to the first line."""


@contextmanager
def spawn(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command as a process that ends with the test at the latest."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "kraft.deploy.cli", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run under nohup
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_kraft_up_without_options_uses_a_temporary_folder_and_deletes_it(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    with spawn(tmp_path, "up", "--combined", "1", "--port", str(port)) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        (folder,) = tmp_path.glob("kraft-*/cluster.json")
        assert said == f"ready: bootstrap 127.0.0.1:{port}, data {folder.parent}\n"
        assert process.stdout.readline() == "end it with ctrl-C\n"
        assert answers(port)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=END_SECONDS_MAX)
        assert process.returncode == 0
        fate = f"{folder.parent}, a temporary folder, is deleted"
        assert said == f"stopping 1 node …\nall nodes have stopped; {fate}\n"
    assert not answers(port)
    assert not folder.parent.exists()


def test_kraft_up_reports_that_kraft_down_has_ended_the_cluster(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    for given, data in (((), ""), (("--data", str(tmp_path / "kept")), str(tmp_path / "kept"))):
        with spawn(tmp_path, "up", "--combined", "1", "--port", str(port), *given) as process:
            assert process.stdout is not None
            folder = process.stdout.readline().rpartition(" data ")[2].strip()
            Command(tmp_path / "state").run("down", "--data", folder)
            _, said = process.communicate(timeout=END_SECONDS_MAX)
            assert process.returncode == 0
        again = f"the data is in {data}; start it again with kraft up --data {data}"
        fate = again if data else f"{folder}, a temporary folder, is deleted"
        assert said == f"ended by kraft down; {fate}\n"
        assert Path(folder).exists() is bool(data)


def test_kraft_up_whose_nodes_end_by_themselves_fails_and_reports_how_they_ended(tmp_path: Path) -> None:
    """The last line of each log is shown, because the temporary folder is deleted together with the logs."""
    with spawn(tmp_path, "up", "--combined", "1", "--port", str(free_port(SHAPE))) as process:
        assert process.stdout is not None
        folder = process.stdout.readline().rpartition(" data ")[2].strip()
        Command(tmp_path / "state").run("kill", "1", "--data", folder)
        _, said = process.communicate(timeout=END_SECONDS_MAX)
        assert process.returncode == 1
    assert not Path(folder).exists()
    first, second, third = said.splitlines()
    assert first == f"every node has ended; {folder}, a temporary folder, is deleted"
    assert second == "kraft: not cleanly:"
    assert third.startswith("  node 1, killed by SIGKILL (2")
    assert third.endswith("node=1)")


def test_kraft_up_whose_nodes_were_stopped_one_by_one_succeeds(tmp_path: Path) -> None:
    with spawn(tmp_path, "up", "--combined", "1", "--port", str(free_port(SHAPE))) as process:
        assert process.stdout is not None
        folder = process.stdout.readline().rpartition(" data ")[2].strip()
        Command(tmp_path / "state").run("stop", "1", "--data", folder)
        _, said = process.communicate(timeout=END_SECONDS_MAX)
        assert process.returncode == 0
    assert said == f"every node has ended; {folder}, a temporary folder, is deleted\n"


def test_kraft_up_with_port_0_chooses_free_ports(tmp_path: Path) -> None:
    with spawn(tmp_path, "up", "--combined", "1", "--port", "0") as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(",")[0].rpartition(":")[2])
        assert port > 0
        assert answers(port)
        process.send_signal(signal.SIGINT)
        process.wait(END_SECONDS_MAX)


def test_kraft_up_shows_the_addresses_for_clients_on_other_machines(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    data = tmp_path / "data"
    external = f"example.org:{port + 10}"
    arguments = ("--combined", "1", "--port", str(port), "--external", external, "--data", str(data))
    with spawn(tmp_path, "up", *arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready: bootstrap 127.0.0.1:{port}, external {external}, data {data}\n"
        kraft = Command(tmp_path / "state")
        assert f"bootstrap 127.0.0.1:{port}  external {external}  cluster" in kraft.run("status", "--data", data)
        assert kraft.json("status", "--data", data)["external"] == external
        process.send_signal(signal.SIGINT)
        process.wait(END_SECONDS_MAX)


def test_kraft_up_with_an_unwritable_home_folder_shows_a_down_command_with_the_data_folder(tmp_path: Path) -> None:
    """`kraft down` without options does not find the cluster if the home folder is not writable."""
    (tmp_path / "state").write_text("a file in place of the folder")
    kraft = Command(tmp_path / "state")
    where = ("--combined", "1", "--port", str(free_port(SHAPE)), "--data", tmp_path / "data")
    said = kraft.spawn("up", "--background", *where)
    command = said.splitlines()[-1].removeprefix("end it with kraft ")
    assert command == f"down --data {tmp_path / 'data'}"
    assert "give --data DIR" in kraft.run("down", code=4)
    assert kraft.run(*command.split()) == f"{tmp_path / 'data'} is down\n"


def test_kraft_up_with_json_prints_the_addresses_and_the_folder(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    data = str(tmp_path / "data")
    with spawn(tmp_path, "up", "--combined", "1", "--port", str(port), "--data", data, "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["bootstrap"] == f"127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        process.wait(END_SECONDS_MAX)
    assert not answers(port)
    assert Path(data).exists()


def test_kraft_node_runs_from_its_properties_and_stops_on_sigterm(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/data\nnum.io.threads=16\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 100}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{port + 100}\n"
    )
    kraft = Command(tmp_path / "state")
    with spawn(tmp_path, "node", "--config", str(config)) as unformatted:
        _, said = unformatted.communicate(timeout=60)
        assert unformatted.returncode == 1
        assert "run `kraft storage format`" in said
    kraft.run("storage", "format", "--config", config)
    with spawn(tmp_path, "node", "--config", str(config), "--json") as node:
        assert node.stderr is not None
        lines = []
        for line in node.stderr:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "broker is unfenced" and "node_id" in lines[-1]:
                break
        assert any("num.io.threads has no effect" in str(entry) for entry in lines)
        assert kraft.json("quorum", "--bootstrap", f"127.0.0.1:{port}")["leader"] == 1
        node.send_signal(signal.SIGTERM)
        rest = node.stderr.read()
        node.wait(END_SECONDS_MAX)
        assert node.returncode == 0, rest
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@contextmanager
def formatted_node(tmp_path: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run `kraft node` with both roles; the pipe `stderr` gets its log."""
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/data\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 100}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{port + 100}\n"
    )
    Command(tmp_path / "state").run("storage", "format", "--config", config)
    with spawn(tmp_path, "node", "--config", str(config)) as node:
        yield node


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_node_whose_log_reader_has_ended_keeps_serving_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    """This happens with `kraft node … 2>&1 | head -3`, and with a ctrl-C that also ends `tee`."""
    port = free_port(SHAPE)
    with formatted_node(tmp_path, port) as node:
        assert node.stderr is not None
        for _ in range(3):
            node.stderr.readline()
        node.stderr.close()
        node.stderr = None
        kraft = Command(tmp_path / "state")
        server = f"127.0.0.1:{port}"
        kraft.run("topics", "create", "orders", "--bootstrap-server", server, "--timeout", "60")
        node.send_signal(number)
        assert node.wait(END_SECONDS_MAX) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_kraft_up_ends_its_cluster_at_ctrl_c_although_the_reader_of_its_output_has_ended(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    with spawn(tmp_path, "up", "--combined", "1", "--port", str(port)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        process.stdout = process.stderr = None
        Command(tmp_path / "state").run(
            "topics", "create", "orders", "--bootstrap-server", f"127.0.0.1:{port}", "--timeout", "60"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(END_SECONDS_MAX) == 0
    assert not answers(port)
    assert list(tmp_path.glob("kraft-????????")) == []


def test_a_background_cluster_keeps_running_if_its_ready_line_cannot_be_written(tmp_path: Path) -> None:
    port, folder = free_port(SHAPE), str(tmp_path / "cluster")
    with spawn(tmp_path, "up", "--background", "--combined", "1", "--port", str(port), "--data", folder) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.wait(END_SECONDS_MAX) == 0
    try:
        assert answers(port)
    finally:
        Command(tmp_path / "state").run("down", "--data", folder)


def test_a_failed_kraft_up_leaves_no_temporary_folder(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, expected in ((("--external", "foo"), "expected HOST:PORT"), (("--port", port), "is taken by")):
            with spawn(tmp_path, "up", "--combined", "1", *arguments) as process:
                _, said = process.communicate(timeout=END_SECONDS_MAX)
                assert expected in said
            assert list(tmp_path.glob("kraft-????????")) == []


def test_the_live_table_shows_nodes_and_partitions_on_a_terminal(tmp_path: Path) -> None:
    port = free_port(SHAPE)
    screen, terminal = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path), "COLUMNS": "120"}
    command = [sys.executable, "-m", "kraft.deploy.cli", "up", "--combined", "1", "--port", str(port)]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    try:
        read_until(screen, "all in sync", "(active)", f"bootstrap 127.0.0.1:{port}")
        Command(tmp_path / "state").run("topics", "create", "seen", "--partitions", "3")
        read_until(screen, "1 topic, 3 partitions, all in sync")
        process.send_signal(signal.SIGINT)
        read_to_end(screen)
        assert process.wait(END_SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert not answers(port)
    assert list(tmp_path.glob("kraft-????????")) == []


def test_the_live_table_shows_partitions_while_a_broker_is_paused_and_after_a_resize(tmp_path: Path) -> None:
    shape = ClusterLayout(controllers=1, brokers=3, port=free_port(ClusterLayout(controllers=1, brokers=3)))
    screen, terminal = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    where = ("--controllers", "1", "--brokers", "3", "--port", str(shape.port))
    command = [sys.executable, "-m", "kraft.deploy.cli", "up", *where]
    termios.tcsetwinsize(terminal, (24, 100))
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    try:
        read_until(screen, "all in sync", "(active)")
        kraft = Command(tmp_path / "state")
        kraft.run("topics", "create", "seen", "--partitions", "3")
        kraft.run("pause", "2")
        shown = read_until(screen, "paused")
        termios.tcsetwinsize(terminal, (24, 70))
        for _ in range(5):
            shown += read_until(screen, "ctrl-C ends the cluster")
        frame = read_until(screen, "ctrl-C ends the cluster")
        assert "no broker answers" not in shown + frame
        assert frame.rpartition(HOME)[2].lstrip().startswith(f"ready: bootstrap {shape.bootstrap_servers()[:20]}")
        assert frame.count("ready: bootstrap") == frame.count(HOME)
        kraft.run("resume", "2")
        process.send_signal(signal.SIGINT)
        assert "is deleted" in read_to_end(screen, terminal)
        assert process.wait(END_SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def read_until(screen: int, *expected: str) -> str:
    """Read the terminal until all of these texts were shown."""
    shown = ""
    while not all(text in shown for text in expected):
        shown += os.read(screen, 65536).decode("utf-8", "replace")
    return shown


def read_to_end(screen: int, terminal: int = -1) -> str:
    """Read until no process has the terminal open. `terminal` is our own descriptor of the terminal, if we have one."""
    if terminal >= 0:
        os.close(terminal)
    shown = ""
    with contextlib.suppress(OSError):  # reading from a terminal whose other end is closed raises OSError
        while data := os.read(screen, 65536):
            shown += data.decode("utf-8", "replace")
    return shown
