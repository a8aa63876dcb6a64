"""Runs seeds in parallel in separate processes. If a process dies (out of memory, a crash of the interpreter), only its
current seed fails; the campaign continues in a new process.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from kraft.deploy.launch.imports import TEST_TOOLS, hide_modules

T = TypeVar("T")

RUNS_PER_PROCESS = 25
"""Number of runs after which a process is replaced, to free its memory: garbage collection is off while a simulated
world runs."""


@dataclass(frozen=True, slots=True)
class Died:
    """The process of this seed ended without a result."""

    seed: int
    exit_code: int | None

    def __str__(self) -> str:
        code = self.exit_code
        if code is None or code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name
        return f"its process was ended by {name}" + (": out of memory?" if name == "SIGKILL" else "")


def in_processes(
    function: Callable[[int], T], seeds: Sequence[int], jobs: int, *, runs_per_process: int = RUNS_PER_PROCESS
) -> Iterator[T | Died]:
    """Call `function` for each seed, in order, in this many processes at a time. With one job and few seeds, call it in
    this process. Exceptions of `function` are raised here.

    The import of hypothesis by kio is blocked, as in the processes of nodes: it takes as long as a run, and warns."""
    if jobs <= 1 and len(seeds) <= runs_per_process:
        yield from map(function, seeds)
        return
    left = list(reversed([*enumerate(seeds)]))
    workers = [_Worker(function, runs_per_process) for _ in range(max(jobs, 1))]
    done: dict[int, T | Died] = {}
    try:
        for worker in workers:
            worker.take(left)
        for number in range(len(seeds)):
            while number not in done:
                for worker in _ready(workers):
                    done[worker.number] = worker.result()
                    worker.take(left)
            yield done.pop(number)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that runs one seed at a time, with the seed and its position among all seeds."""

    def __init__(self, function: Callable[[int], Any], runs_per_process: int) -> None:
        self.number = self.seed = -1
        self.connection: Connection | None = None
        self._function = function
        self._runs_per_process = runs_per_process
        self._runs = 0

    def take(self, left: list[tuple[int, int]]) -> None:
        """Start the next seed; if no seed remains, end the process."""
        if not left or self._runs == self._runs_per_process:
            self.end()
        if not left:
            return
        self.number, self.seed = left.pop()
        if self.connection is None:
            self._start()
        self._runs += 1
        self._send(self.seed)

    def _start(self) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.connection, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_work, args=(theirs,), daemon=True)
        with _interrupts_blocked():  # and permanently in the process that starts here
            self._process.start()
        theirs.close()  # so that the pipe ends with the process
        self._runs = 0
        self._send(self._function)

    def _send(self, value: object) -> None:
        assert self.connection is not None
        with suppress(OSError):  # a dead process is detected when its result is read
            self.connection.send(value)

    def result(self) -> Any:
        """Return the result of the seed, whose run is over."""
        assert self.connection is not None
        try:
            is_good, result = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            died = Died(self.seed, self._process.exitcode)
            self.connection.close()
            self.connection = None
            return died
        if not is_good:
            raise result
        return result

    def end(self) -> None:
        """End the process, even during a run."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self._process.terminate()
            self._process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block interrupts: Ctrl-C reaches every process of a terminal, but only the parent ends the others."""
    # the first process also starts the resource tracker, and that unblocks interrupts
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Return the workers whose run is over; wait until there is at least one."""
    ready = wait([worker.connection for worker in workers if worker.connection is not None])
    return [worker for worker in workers if worker.connection in ready]


def _work(connection: Connection) -> None:
    """Serve in a process: receive a seed, send its result, until the pipe ends."""
    hide_modules(TEST_TOOLS)  # before the function, and its imports, are received
    function = connection.recv()
    while True:
        try:
            seed = connection.recv()
        except EOFError:
            return
        try:
            told = (True, function(seed))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the seeds were given out
            error.add_note("".join(traceback.format_exception(error)))
            told = (False, error)
        connection.send(told)
