"""The systemd unit is valid, and permits everything that a node needs to do."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.config import parse_properties
from tests.deploy.systemd.single import SECONDS_MAX, properties
from tests.stages.kraft_command import Command

UNIT = Path(__file__).parents[3] / "deploy" / "systemd" / "kraft@.service"
CALL = re.compile(r"^\d+ +([a-z_0-9]+)\(", re.MULTILINE)


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_systemd_accepts_the_unit_and_rates_its_sandboxing_as_good(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    unit = tmp_path / "kraft@.service"  # systemd must find the program, which is not installed at /opt/kraft here
    unit.write_text(UNIT.read_text().replace("/opt/kraft/bin/kraft", "/bin/true"))
    for words in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run([analyze, *words, str(unit)], capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""


def members(group: str) -> set[str]:
    """Return the system calls of one of systemd's groups, including those of nested groups."""
    words = [program("systemd-analyze"), "syscall-filter", group]
    lines = subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS_MAX).stdout.splitlines()
    names = [line.strip() for line in lines[1:] if line.strip() and not line.strip().startswith("#")]
    return {one for name in names for one in (members(name) if name.startswith("@") else {name})}


@pytest.mark.deploy
def test_a_node_makes_no_system_call_that_the_systemd_unit_forbids(kraft: Command, tmp_path: Path) -> None:
    filters = re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert filters == ["@system-service", "~@privileged @resources"]
    allowed = members("@system-service") - members("@privileged") - members("@resources")
    config = properties(tmp_path)
    kraft.run("storage", "format", "--config", config, "--standalone")
    trace = tmp_path / "trace"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS_MAX)
        node = [sys.executable, "-m", "kraft.deploy.cli", "node", "--config", str(config)]
        environment = ["env", f"NOTIFY_SOCKET={tmp_path / 'notify'}", "WATCHDOG_USEC=30000000"]
        traced = [program("strace"), "-f", "-qq", "-I2", "-o", str(trace), *environment, *node]
        with subprocess.Popen(traced, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            while b"READY=1" not in manager.recv(65536):
                pass
            listeners = parse_properties(config.read_text())["listeners"]
            bootstrap = listeners.split(",")[0].partition("://")[2]
            kraft.run("topics", "create", "orders", "-b", bootstrap)
            kraft.run("produce", "orders", "-b", bootstrap, text="one\n")
            kraft.run("consume", "orders", "-b", bootstrap)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS_MAX)
    text = trace.read_text(errors="replace")
    called = set(CALL.findall(text))
    assert {"epoll_wait", "fdatasync", "sendto"} & called
    assert called - allowed == set()
    assert "PROT_WRITE|PROT_EXEC" not in text  # rule of MemoryDenyWriteExecute
