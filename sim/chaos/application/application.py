"""Application: the user's own program, run as a workload while faults happen.

    require_program(command)                                     # before a cluster is started
    async with Application(command, bootstrap, now_ms, echo=True) as application:
        …                                                        # the faults of the scenario
        await application.stop()
    application.end, application.output

The program runs in its own process group, without standard input. It gets the cluster's address in its environment and
wherever its arguments contain `{bootstrap}` (see `program`). Its output lines are kept with their times, up to a limit,
and shown as they are printed.

How the program ends:
- It may end before the faults do; the faults continue. Its exit code counts: anything but 0 is a failure.
- It may still run when the scenario is over. Then `stop` sends SIGTERM to its group. Success is exit code 0 or death by
  SIGTERM (143, which is also a JVM's exit code for it). So a program may check its own result on SIGTERM and report a
  bad one by another exit code.
- If it does not end in time, it is killed, and its exit code proves nothing. When it has ended, all processes that it
  started in its group and that still run are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import trio

from kraft.sim.chaos.application.program import (
    SIGNAL_BASE,
    bootstrap_environment,
    describe_exit,
    exit_code,
    hold_program,
    not_startable,
    require_program,
    with_bootstrap,
)
from kraft.sim.chaos.hosts.warden import HeldResource, Warden
from kraft.sim.chaos.run.run_folder import OutputLine

STDOUT, STDERR, NOTE = "stdout", "stderr", "note"
"""Streams of a line of output; a NOTE was written by the run itself."""
STOP_MS_MAX = 10_000
"""Maximum time from SIGTERM to the end of the program."""
DRAIN_MS_MAX = 1_000
"""Maximum time for which the program's output may stay open after the program has ended: a process that it started
outside its group may still have the pipe open."""
LINES_MAX = 20_000
BYTES_MAX = 4 * 1024 * 1024
LINE_BYTES_MAX = 4_000
LAST_LINES = 10
"""Number of output lines that a failure shows."""


@dataclass(frozen=True, slots=True)
class ApplicationEnd:
    """How the program ended. `exit_code` is a shell's (128+N for signal N); None if it had to be killed. `was_stopped`:
    it was running until `stop`. `at_ms` is on the run's clock."""

    exit_code: int | None
    was_stopped: bool
    at_ms: float
    last_lines: tuple[str, ...] = ()

    @property
    def counted_exit(self) -> int | None:
        """The exit code that counts for the verdict. It is 0 also for a program that was stopped and died of SIGTERM.
        None if the program had to be killed, because then the code proves nothing."""
        if self.was_stopped and self.exit_code == SIGNAL_BASE + signal.SIGTERM:
            return 0
        return self.exit_code

    @property
    def failure(self) -> str:
        """Why the run is invalid, as a sentence; "" if the program did not fail."""
        if not self.counted_exit:
            return ""
        when = " when it was asked to end with SIGTERM (0 or 143 would be success)" if self.was_stopped else ""
        return f"the application {describe_exit(self.counted_exit)}{when}"

    @property
    def trouble(self) -> str:
        """Why the program's success is unknown, as a sentence; "" if it is known."""
        if self.exit_code is not None:
            return ""
        return f"the application did not end within {STOP_MS_MAX / 1000:g} s after SIGTERM and was killed"


class Application:
    """A running program; see the module. `now_ms` is the run's clock. `environment` is added to this process's
    environment. `warden`, if given, is the cleanup process that ends the program when this process is killed. Entering
    raises ProgramNotFound if the command cannot be started."""

    def __init__(
        self,
        command: Sequence[str],
        bootstrap: str,
        now_ms: Callable[[], float],
        *,
        environment: Mapping[str, str] | None = None,
        echo: bool = False,
        warden: Warden | None = None,
    ) -> None:
        self.output: list[OutputLine] = []
        """Output lines of the program, in order: the first lines up to LINES_MAX lines and BYTES_MAX bytes, and then,
        once the program has ended, the last LAST_LINES."""
        self.end: ApplicationEnd | None = None
        """How the program ended; None while it is running."""
        self._command = with_bootstrap(command, bootstrap)
        self._environment = {**os.environ, **bootstrap_environment(bootstrap), **(environment or {})}
        self._now_ms = now_ms
        self._echo = echo
        self._warden = warden
        self._held: HeldResource | None = None
        self._bytes = 0
        self._is_full = False
        self._left_out: deque[OutputLine] = deque(maxlen=LAST_LINES)
        """The newest output lines that exceed the limit; the last LAST_LINES of them are kept."""
        self._was_stopped = self._was_killed = False
        self._ended = trio.Event()

    async def __aenter__(self) -> Self:
        require_program(self._command)
        self._process = await self._start()
        if self._warden is not None:
            self._held = hold_program(self._warden, self._process.pid, self._process.poll)
        async with AsyncExitStack() as stack:
            self._nursery = await stack.enter_async_context(trio.open_nursery())
            self._nursery.start_soon(self._follow)
            self._stack = stack.pop_all()
        return self

    async def _start(self) -> trio.Process:
        try:
            return await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                env=self._environment,
            )
        except OSError as problem:
            raise not_startable(self._command[0], problem) from problem

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.stop()
        finally:
            if self.end is None:
                self._signal_group(signal.SIGKILL)
            self._nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):  # SIGKILL does not fail, so this is short
                await self._process.wait()
            await self._stack.__aexit__(None, None, None)  # what the caller raised is not wrapped by this nursery

    @property
    def pid(self) -> int:
        """The program's process id, which is also the id of its process group."""
        return self._process.pid

    async def wait(self) -> ApplicationEnd:
        """Wait until the program has ended by itself."""
        await self._ended.wait()
        assert self.end is not None
        return self.end

    async def stop(self, *, timeout_ms: float = STOP_MS_MAX) -> ApplicationEnd:
        """Send SIGTERM to the program, and kill it if it does not end in time. Does nothing if it has ended."""
        if self.end is None and self._process.poll() is None:
            self._was_stopped = True
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)
            with trio.move_on_after(timeout_ms / 1000):
                await self._ended.wait()
            if self._process.poll() is None:
                self._was_killed = True
                self._signal_group(signal.SIGKILL)
        return await self.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def _follow(self) -> None:
        """Collect the program's output until it has ended, then determine how it ended."""
        async with trio.open_nursery() as nursery:
            for stream, pipe in ((STDOUT, self._process.stdout), (STDERR, self._process.stderr)):
                assert pipe is not None
                nursery.start_soon(self._read, stream, pipe)
            returncode = await self._process.wait()
            at_ms = self._now_ms()
            self._signal_group(signal.SIGKILL)  # processes that it left running
            nursery.cancel_scope.deadline = trio.current_time() + DRAIN_MS_MAX / 1000
        if self._warden is not None and self._held is not None:
            self._warden.release(self._held)
        self.output += self._left_out
        code = None if self._was_killed else exit_code(returncode)
        last_lines = tuple(line.text for line in self.output[-LAST_LINES:])
        self.end = ApplicationEnd(code, self._was_stopped, at_ms, last_lines)
        self._ended.set()

    async def _read(self, stream: str, pipe: trio.abc.ReceiveStream) -> None:
        """Split a stream into lines. A line longer than LINE_BYTES_MAX becomes several."""
        rest = b""
        try:
            async for chunk in pipe:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(stream, line)
                while len(rest) > LINE_BYTES_MAX:
                    self._take(stream, rest[:LINE_BYTES_MAX])
                    rest = rest[LINE_BYTES_MAX:]
        finally:
            if rest:
                self._take(stream, rest)

    def _take(self, stream: str, line: bytes) -> None:
        for begin in range(0, max(1, len(line)), LINE_BYTES_MAX):
            self._take_piece(stream, line[begin : begin + LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r"))

    def _take_piece(self, stream: str, text: str) -> None:
        if self._echo:
            print(text, file=sys.stdout if stream == STDOUT else sys.stderr, flush=True)
        line = OutputLine(time_ms=self._now_ms(), stream=stream, text=text)
        self._bytes += len(text.encode())
        if self._is_full:
            self._left_out.append(line)
        elif len(self.output) < LINES_MAX and self._bytes <= BYTES_MAX:
            self.output.append(line)
        else:
            self._is_full = True
            note = f"more was printed: only {LINES_MAX} lines or {BYTES_MAX} bytes are kept, and the last {LAST_LINES}"
            self.output.append(OutputLine(time_ms=line.time_ms, stream=NOTE, text=note))
            self._left_out.append(line)
