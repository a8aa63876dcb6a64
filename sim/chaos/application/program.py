"""The user's own program, in any language: how it is found, how it gets the cluster's address, and how its end is
described.

Shared by `kraft run -- CMD ARG…` and `kraft chaos run SCENARIO -- CMD ARG…`. Exit codes are those of a shell: 128+N for
a program that signal N ended.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from types import MappingProxyType

from kraft.sim.chaos.hosts.warden import HeldResource, Warden, WardenError

BOOTSTRAP_WORD = "{bootstrap}"
"""Placeholder for the cluster's address in a program's arguments."""

BOOTSTRAP_VARIABLES = MappingProxyType(
    {
        "KAFKA_BOOTSTRAP_SERVERS": "the usual name; Quarkus and Micronaut read it as kafka.bootstrap.servers",
        "KAFKA_BROKERS": "the other usual name, in examples for Go and Node.js",
        "SPRING_KAFKA_BOOTSTRAP_SERVERS": "Spring Boot reads it as spring.kafka.bootstrap-servers",
    }
)
"""Environment variables that hold the cluster's address, HOST:PORT[,HOST:PORT…], and which software reads each."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126
SIGNAL_BASE = 128


class ProgramNotFound(Exception):
    """The program does not exist or cannot be started; the text names it and says what to do. `code` is a shell's exit
    code for this."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def bootstrap_environment(bootstrap: str) -> dict[str, str]:
    """Return the variables that give a program its cluster's address."""
    return dict.fromkeys(BOOTSTRAP_VARIABLES, bootstrap)


def with_bootstrap(command: Sequence[str], bootstrap: str) -> list[str]:
    """Return the command with the address substituted for each `{bootstrap}`."""
    return [word.replace(BOOTSTRAP_WORD, bootstrap) for word in command]


def require_program(command: Sequence[str]) -> None:
    """Raise ProgramNotFound if the command cannot be started. Called before a cluster is started."""
    if not command or not command[0]:
        raise ProgramNotFound("the command is empty: a program and its arguments follow --", NOT_FOUND)
    name = command[0]
    if shutil.which(name) is not None:
        return
    if os.sep not in name:
        hint = f"; there is a file ./{name} here: write ./{name}" if os.path.exists(name) else ""
        raise ProgramNotFound(f"{name}: no such program in PATH{hint}", NOT_FOUND)
    if os.path.isdir(name):
        raise ProgramNotFound(f"{name} is a folder, not a program", NOT_EXECUTABLE)
    if os.path.exists(name):
        raise ProgramNotFound(f"{name} is not executable: chmod +x {name}, or name its interpreter", NOT_EXECUTABLE)
    raise ProgramNotFound(f"{name}: no such file", NOT_FOUND)


def not_startable(name: str, problem: OSError) -> ProgramNotFound:
    """Return the system's error for a program that exists and cannot be started, for example a script without #!."""
    return ProgramNotFound(f"{name} cannot be started: {problem.strerror}", NOT_EXECUTABLE)


def hold_program(warden: Warden, pid: int, poll: Callable[[], int | None]) -> HeldResource | None:
    """Register this program and its descendants with the cleanup process (warden), which ends them if this process is
    killed. Return the registered resource, or None if `poll` shows that the program has already ended."""
    try:
        return warden.process(pid)
    except WardenError:
        if poll() is None:
            raise
        return None


def exit_code(returncode: int) -> int:
    """Convert Python's return code of a process, -N for signal N, to a shell's exit code."""
    return returncode if returncode >= 0 else SIGNAL_BASE - returncode


def describe_exit(code: int) -> str:
    """Describe an exit code: `ended with exit code 3`, `was ended by SIGSEGV (exit code 139)`."""
    try:
        name = signal.Signals(code - SIGNAL_BASE).name
    except ValueError:
        return f"ended with exit code {code}"
    return f"was ended by {name} (exit code {code})"
