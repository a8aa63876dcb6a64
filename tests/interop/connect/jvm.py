"""Programs of Apache Kafka that run in the background with a file of properties: Connect's workers and MirrorMaker.

Invariant: no program outlives the process that started it, however that process ends; see
`kraft.sim.chaos.hosts.leash`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException

from kraft.sim.chaos.apache.kafka_files import QUICK_JVM, java
from kraft.sim.chaos.hosts.leash import Leash
from tests.bench.kafka import installed
from tests.interop.programs import HERE

SEQUENCES = HERE / "connect/sequences/target/classes"
"""The source connector of these tests."""
LOG_BYTES_SHOWN = 4_000
LOOK_S = 0.25


class KafkaProgram:
    """One of Kafka's programs and its log. It is started by `start`, and killed at the end of the `with` block."""

    def __init__(self, main_class: str, properties: Mapping[str, object], folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        written = folder / "program.properties"
        written.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = java(installed(), QUICK_JVM, main_class, str(written))
        place = command.index("-cp") + 1
        self._command = [*command[:place], f"{command[place]}:{SEQUENCES}", *command[place + 1 :]]
        self._process: subprocess.Popen[Any] | None = None
        self._leash = Leash()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.kill()
        finally:
            self._leash.release()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program, also again after `kill`; does not wait until it serves."""
        assert not self.is_running
        with (self._folder / "log").open("ab") as log:
            self._process = self._leash.start(self._command, cwd=self._folder, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the program with SIGKILL, even if it is paused. Does nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freeze the program with SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")


def wait_for(what: str, is_so: Callable[[], bool], seconds: float, programs: Iterable[KafkaProgram]) -> None:
    """Wait until a condition holds. Raise TimeoutError with the end of the programs' logs; `what` names the condition.

    A condition that raises OSError or KafkaException does not hold yet: a program that starts, or a broker that was
    killed, does not answer."""
    deadline = time.monotonic() + seconds
    while True:
        failure: Exception | None = None
        try:
            if is_so():
                return
        except (OSError, KafkaException) as error:
            failure = error
        if time.monotonic() > deadline:
            logs = "\n".join(program.log[-LOG_BYTES_SHOWN:] for program in programs)
            raise TimeoutError(f"not after {seconds:g} s: {what} ({failure})\n{logs}")
        time.sleep(LOOK_S)
