"""The user's own program, in any language: how it is found, where its cluster's address is put, how its end is named.

What `kraft run -- CMD ARG…` and `kraft chaos run SCENARIO -- CMD ARG…` have in common. Exit codes are a shell's: 128+N
for a program that signal N ended.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from types import MappingProxyType

from kraft.sim.chaos.hosts.warden import Thing, Warden, WardenError

BOOTSTRAP_WORD = "{bootstrap}"
"""Stands for the cluster's address in a program's arguments."""

BOOTSTRAP_VARIABLES = MappingProxyType(
    {
        "KAFKA_BOOTSTRAP_SERVERS": "the usual name; Quarkus and Micronaut read it as kafka.bootstrap.servers",
        "KAFKA_BROKERS": "the other usual name, in examples for Go and Node.js",
        "SPRING_KAFKA_BOOTSTRAP_SERVERS": "Spring Boot reads it as spring.kafka.bootstrap-servers",
    }
)
"""Environment variables that hold the cluster's address, HOST:PORT[,HOST:PORT…], and who reads each."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126
SIGNAL_BASE = 128


class ProgramNotFound(Exception):
    """There is no such program; the text says which, and what to do. `code` is the exit code of a shell for that."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def bootstrap_environment(bootstrap: str) -> dict[str, str]:
    """The variables that tell a program where its cluster is."""
    return dict.fromkeys(BOOTSTRAP_VARIABLES, bootstrap)


def with_bootstrap(command: Sequence[str], bootstrap: str) -> list[str]:
    """The command with the address in place of each `{bootstrap}`."""
    return [word.replace(BOOTSTRAP_WORD, bootstrap) for word in command]


def require_program(command: Sequence[str]) -> None:
    """ProgramNotFound if the command cannot be started: to be called before a cluster is."""
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
    """What the system says of a program that is there and cannot be started: a script without #!, for example."""
    return ProgramNotFound(f"{name} cannot be started: {problem.strerror}", NOT_EXECUTABLE)


def hold_program(warden: Warden, pid: int, poll: Callable[[], int | None]) -> Thing | None:
    """Have the warden end this program, with all below it, if this process is killed. None if it has ended already, as
    `poll` says."""
    try:
        return warden.process(pid)
    except WardenError:
        if poll() is None:
            raise
        return None


def exit_code(returncode: int) -> int:
    """Python's return code of a process, which is -N for signal N, as a shell's exit code."""
    return returncode if returncode >= 0 else SIGNAL_BASE - returncode


def describe_exit(code: int) -> str:
    """`ended with exit code 3`, `was ended by SIGSEGV (exit code 139)`."""
    try:
        name = signal.Signals(code - SIGNAL_BASE).name
    except ValueError:
        return f"ended with exit code {code}"
    return f"was ended by {name} (exit code {code})"
