"""Running programs of foreign clients: lines in, lines out, and SIGKILL at a chosen line."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

ANSWER_SECONDS_MAX = 60


class ProgramEnded(Exception):
    """The program has ended by itself. The text is what it printed on standard error."""


class Conversation:
    """A program that runs in the background. `lines` has everything that it printed so far."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.lines: list[str] = []
        self._fresh: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """What the program printed on standard error so far."""
        return "".join(self._errors)

    def send(self, line: str) -> None:
        """Send a line without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def next_line(self, seconds: float = ANSWER_SECONDS_MAX) -> str:
        """Return the next line. Raise ProgramEnded if there is none, TimeoutError if none comes in time."""
        try:
            line = self._fresh.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer after {seconds} s: {self.errors}") from None
        if line is None:
            self._fresh.put(None)
            raise ProgramEnded(self.errors)
        return line

    def request(self, line: str) -> str:
        """Send a line, and return the answer."""
        self.send(line)
        return self.next_line()

    def wait_until(self, is_enough: Callable[[list[str]], bool], seconds: float) -> None:
        """Wait until `lines` fulfils a condition. Raise TimeoutError."""
        deadline = time.monotonic() + seconds
        while not is_enough(self.lines):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {seconds} s; {len(self.lines)} lines, the last {self.lines[-3:]}")
            time.sleep(0.02)

    def end(self, seconds: float) -> int:
        """End standard input, and return the exit code. Raise TimeoutExpired if the program does not end in time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(seconds)

    def kill(self) -> None:
        """End the program with SIGKILL. Its last lines are in `lines` afterwards."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # a line that the program did not read
                pipe.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line.rstrip("\n"))
            self._fresh.put(self.lines[-1])
        self._fresh.put(None)

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self._errors.append(line)
