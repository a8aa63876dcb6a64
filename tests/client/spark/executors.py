"""Run Spark in several processes of this machine: a standalone master with workers, and jobs with one driver each."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from kraft.sim.chaos.hosts.leash import Leash, leashed
from tests.client.spark.sessions import QUICK_JVM
from tests.stages.started_clusters import held_folder

ROOT = Path(__file__).parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 60
JOB_SECONDS_MAX = 200
RUN_MODULE = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)
"""Python code that runs a module like `python -m`, from a folder that becomes the last entry of sys.path. So a package
that is installed or was shipped to the process is imported first."""


@contextmanager
def job_running(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Job]:
    """Run a job of `executor_jobs`, with its driver, in a process that ends with the block. `folder`: where the process
    writes its output."""
    command = [sys.executable, "-c", RUN_MODULE, str(ROOT), "tests.client.spark.executor_jobs", *arguments]
    home = _linked_home(folder / "spark-home")
    with (
        (folder / "messages").open("w+") as messages,
        leashed(
            command,
            cwd=folder,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
        ) as process,
    ):
        yield Job(process, folder / "messages")


def _linked_home(home: Path) -> Path:
    """Link Spark's files into a separate folder, because workers of `local-cluster` write into Spark's folder."""
    home.mkdir()
    for entry in SPARK_HOME.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@dataclass(frozen=True, slots=True)
class Job:
    """A running job of `executor_jobs`."""

    process: subprocess.Popen[str]
    messages: Path

    def result(self) -> Any:
        """Wait until the job has ended, and return its result. Raises AssertionError, with the job's output, if it has
        failed."""
        printed, _ = self.process.communicate(timeout=JOB_SECONDS_MAX)
        self.require_sound()
        return json.loads(printed.splitlines()[-1])

    def require_sound(self) -> None:
        """Raise AssertionError with the job's output if it has failed."""
        assert not self.process.poll(), self.messages.read_text()[-20_000:]


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A running standalone cluster: a master, and workers with one core each, as child processes of this one."""

    url: str
    workers: tuple[subprocess.Popen[str], ...]

    def worker_of(self, executor: int) -> subprocess.Popen[str]:
        """Return the worker to which the executor with this process id belongs."""
        parent = psutil.Process(executor).ppid()
        return next(worker for worker in self.workers if worker.pid == parent)


@contextmanager
def standalone_running(workers: int) -> Iterator[StandaloneCluster]:
    """Start Spark's standalone cluster manager on free loopback ports. All of its processes end with the block."""
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
    }
    with held_folder("kraft-standalone-") as (folder, leash):
        started: list[subprocess.Popen[str]] = []

        def start(name: str, *options: str) -> subprocess.Popen[str]:
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
            started.append(_start(leash, command, folder, environment))
            return started[-1]

        try:
            address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            url = _wait_line(start("master.Master", *address), r"Starting Spark master at (spark://\S+)")
            options = (*address, "--cores", "1", "--memory", "1g", "--work-dir")
            running = [start("worker.Worker", *options, str(folder / str(index)), url) for index in range(workers)]
            for worker in running:
                _wait_line(worker, r"(Successfully registered with master)")
            yield StandaloneCluster(url, tuple(running))
        finally:
            for process in reversed(started):
                _end(process)


def _start(leash: Leash, command: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return leash.start(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _wait_line(process: subprocess.Popen[str], pattern: str) -> str:
    """Return group 1 of the first line of the log that matches. Later lines are read and discarded."""
    found: queue.Queue[str | None] = queue.Queue()
    lines: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                match = re.search(pattern, line)
                if match:
                    found.put(match.group(1))
                if len(lines) < 1000:
                    lines.append(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        text = found.get(timeout=START_SECONDS_MAX)
    except queue.Empty:
        text = None
    assert text is not None, f"no line with {pattern!r} in:\n{''.join(lines)}"
    return text


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process and all its children. Executors are children of workers, and would otherwise remain for some
    seconds."""
    kill_tree(process)
    process.wait()


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Kill a process and all its children with SIGKILL, as if their machine had failed."""
    try:
        parent = psutil.Process(process.pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(family[1:], START_SECONDS_MAX)
