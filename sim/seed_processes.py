"""Seeds side by side in processes of their own. A process that dies (out of memory, a crash of the interpreter) fails
the seed that it was at, and no other; the campaign goes on in a new one."""

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
"""What a run leaves behind is given back with its process: nothing is collected while a world is deterministic."""


@dataclass(frozen=True, slots=True)
class Died:
    """The process that had this seed ended without a result."""

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
    """`function` of each seed, in order, by so many processes at a time; with one job and few seeds, in this one. What
    it raises is raised here.

    As in nodes' processes, kio finds no hypothesis: importing that takes a run's time, and warns."""
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
    """One process at a time, and what it is at: a seed, and its number among all."""

    def __init__(self, function: Callable[[int], Any], runs_per_process: int) -> None:
        self.number = self.seed = -1
        self.connection: Connection | None = None
        self._function = function
        self._runs_per_process = runs_per_process
        self._runs = 0

    def take(self, left: list[tuple[int, int]]) -> None:
        """Begin with the next seed; if none is left, end."""
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
        with _interrupts_blocked():  # and with them in the process that begins here, for good
            self._process.start()
        theirs.close()  # so that the pipe ends with the process
        self._runs = 0
        self._send(self._function)

    def _send(self, value: object) -> None:
        assert self.connection is not None
        with suppress(OSError):  # a process that has died is found out by its result
            self.connection.send(value)

    def result(self) -> Any:
        """Of its seed, which is over."""
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
        """Its process, whatever it is at."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self._process.terminate()
            self._process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal: the one that asked for the runs ends the others."""
    resource_tracker.ensure_running()  # who starts the first process starts it too, and that unblocks interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Those whose seed is over: waits for the first."""
    ready = wait([worker.connection for worker in workers if worker.connection is not None])
    return [worker for worker in workers if worker.connection in ready]


def _work(connection: Connection) -> None:
    """A process's life: a seed in, its result out, until nobody asks any more."""
    hide_modules(TEST_TOOLS)  # before the function comes, and with it what it imports
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
