"""A process is identified by its number and start time, so a signal never reaches another process with the same
number."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.ports import is_free, owner_of, require_free
from kraft.deploy.launch.processes import (
    ProcessIdentity,
    clear_identity,
    describe_exit,
    identify,
    is_dying,
    read_identity,
    write_identity,
)
from tests.stages.ports import hold_block


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_alive_until_it_is_killed(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    assert identity.is_alive
    assert identity.signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_alive
    assert is_dying(sleeper.pid)
    assert not identity.signal(signal.SIGKILL)


def test_another_process_with_the_same_process_id_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    stranger = ProcessIdentity(sleeper.pid, "long ago")
    assert not stranger.is_alive
    assert not stranger.signal(signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_paused_process_is_recognized_as_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    identity.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert identity.is_stopped
    identity.signal(signal.SIGCONT)
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED | os.WNOWAIT)
    assert not identity.is_stopped


def test_a_running_process_is_not_reported_as_about_to_end() -> None:
    assert not is_dying(os.getpid())


def test_a_written_process_identity_is_read_back_and_the_pid_file_holds_only_the_number(tmp_path: Path) -> None:
    identity = ProcessIdentity(4711, "12345")
    write_identity(tmp_path, identity)
    assert (tmp_path / "pid").read_text() == "4711\n"
    assert read_identity(tmp_path) == identity
    assert clear_identity(tmp_path, identity)
    assert read_identity(tmp_path) is None
    (tmp_path / "process.json").write_text("{}")
    assert read_identity(tmp_path) is None


def test_the_end_of_an_earlier_process_does_not_clear_the_record_of_the_next_one(tmp_path: Path) -> None:
    earlier, later = ProcessIdentity(4711, "12345"), ProcessIdentity(4712, "12399")
    write_identity(tmp_path, earlier)
    write_identity(tmp_path, later)
    assert not clear_identity(tmp_path, earlier)
    assert read_identity(tmp_path) == later
    assert (tmp_path / "pid").read_text() == "4712\n"


def test_a_process_exit_status_is_described_in_words() -> None:
    assert describe_exit(9) == "killed by SIGKILL"
    assert describe_exit(3 << 8) == "exit code 3"


def test_a_port_in_use_is_refused_with_the_process_that_uses_it() -> None:
    port = hold_block([0])
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert not is_free(port)
        assert owner_of(port) == os.getpid()
        said = rf"port {port} is taken by .* \(pid {os.getpid()}\); stop that process or choose another --port"
        with pytest.raises(LaunchError, match=said):
            require_free([port])
    assert is_free(port)
    require_free([port])
