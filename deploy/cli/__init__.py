"""Async: the kraft command. May import everything.

`main` stands here, and imports nothing that it can put off: `kraft up` forks its zygote first, so that the zygote
imports what nodes need while this process reads its arguments.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import sys
from typing import NoReturn, TextIO


def main() -> NoReturn:
    """The console script."""
    code = _exit_code()
    if "multiprocessing.synchronize" in sys.modules:
        gc.collect()  # `_end` runs no finalizers, and semaphores outlive a process
    _end(code)


def _exit_code() -> int:
    """Run the verb. When this returns, what ended it is forgotten, and with it what its frames held."""
    try:
        _run(sys.argv[1:])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except KeyboardInterrupt:  # so early that no verb has begun
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
    """A stream that the caller closed is None, and the next file that is opened would get its number. Input is empty
    then, and nobody hears of problems; but without an output a verb must not do what it could not tell of."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the same
        print("kraft: standard output is closed; >/dev/null if nobody is to read it", file=sys.stderr)
        sys.exit(1)
    if not _is_writable(sys.stdout):
        print("kraft: standard output is open for reading only; >/dev/null if nobody is to read it", file=sys.stderr)
        sys.exit(1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: a terminal need not know our arrows
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the same


def _is_writable(stream: TextIO) -> bool:
    try:
        return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError):
        return True  # it is no file: a test's, or another program's that calls us


def _end(code: int) -> NoReturn:
    """End at once: to take the interpreter apart takes longer than many a command. What little a verb printed is
    written only now, and may find no room."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as problem:
        is_told, code = code != 0, code or 1
        if not is_told and not isinstance(problem, BrokenPipeError):
            print(f"kraft: cannot write: {problem.strerror}", file=sys.stderr)
    finally:
        os._exit(code)
