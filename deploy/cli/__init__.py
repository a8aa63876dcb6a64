"""Async: the kraft command. May import everything.

`main` is defined here and imports as little as possible: `kraft up` forks its zygote first, so that the zygote imports
what nodes need while this process parses its arguments.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import sys
from typing import NoReturn, TextIO


def main() -> NoReturn:
    """Entry point of the console script `kraft`."""
    code = _exit_code()
    if "multiprocessing.synchronize" in sys.modules:
        gc.collect()  # because `_end` runs no finalizers, and semaphores outlive a process
    _end(code)


def _exit_code() -> int:
    """Run the command and return its exit code. An exception that ended the command is released with this call, and so
    are the objects that its frames keep alive."""
    try:
        _run(sys.argv[1:])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except KeyboardInterrupt:  # before any command has started
        return 130


def _run(arguments: list[str]) -> NoReturn:
    _replace_closed_streams()
    if arguments[:1] == ["up"] and not {"--help", "-h"} & set(arguments):
        from kraft.deploy.cli.early import start_zygote_early

        start_zygote_early()
    from kraft.deploy.cli.app import run
    from kraft.deploy.launch.imports import TEST_TOOLS, hide_modules

    hide_modules(TEST_TOOLS)
    run(arguments)


def _replace_closed_streams() -> None:
    """Replace each standard stream that the caller has closed. Python sets such a stream to None, and the next file to
    be opened would get the descriptor of that stream. A closed standard input becomes empty, and a closed standard
    error discards its text. If standard output is closed, exit: a command must not act if it cannot report what it did.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the same
        print("kraft: standard output is closed; use >/dev/null to discard the output", file=sys.stderr)
        sys.exit(1)
    if not _is_writable(sys.stdout):
        print("kraft: standard output is open for reading only; use >/dev/null to discard the output", file=sys.stderr)
        sys.exit(1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # standard output gets the error handler of standard error: a terminal may lack the arrows we print
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the same


def _is_writable(stream: TextIO) -> bool:
    try:
        return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError):
        return True  # the stream is not a file: it belongs to a test, or to a program that calls this one


def _end(code: int) -> NoReturn:
    """Exit at once, because finalizing the interpreter takes longer than many commands. Buffered output is written only
    now, so a full disk may show up here."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as problem:
        is_told, code = code != 0, code or 1
        if not is_told and not isinstance(problem, BrokenPipeError):
            print(f"kraft: cannot write: {problem.strerror}", file=sys.stderr)
    finally:
        os._exit(code)
