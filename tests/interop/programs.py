"""Clients in other languages: one program each, all with the same commands, which print lines to standard output.

    create BOOTSTRAP TOPIC                  one partition, three replicas
    produce BOOTSTRAP TOPIC CODEC COUNT     the values CODEC-0, CODEC-1, … to partition 0
    stream BOOTSTRAP TOPIC                  stream-0, stream-1, … until standard input ends; prints those acknowledged
    read BOOTSTRAP TOPIC                    prints every value that partition 0 has now
    offsets BOOTSTRAP TOPIC TIME_MS…        prints for each time the first offset at or after it; if there is none,
                                            `none` or the end offset, depending on the library
    member BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS [INSTANCE]
                                            (the assignor `broker:NAME` selects the consumer group protocol, KIP-848)
                                            in a group until standard input ends; prints its partitions at each change
                                            (`owned 0 1`) and each record (`read VALUE`)

A program that fails prints the reason on standard error and exits with a code other than 0. `tools.sh` builds them.
"""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.background import Stream

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 60
END_SECONDS_MAX = 30


@functools.cache
def install_tools() -> None:
    """Download and build missing tools. Quick if there is nothing to do."""
    subprocess.run([HERE / "tools.sh"], check=True)


def converse(command: tuple[str, ...], stop: threading.Event, heard: Callable[[str], None]) -> None:
    """Run a program until the event `stop` is set, or until the program ends by itself. Call `heard` with each line
    that it prints.

    Raise AssertionError if the program fails, or does not end soon after the end of its standard input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        threading.Thread(target=_end_after, args=(process, stop), daemon=True).start()
        try:
            for line in process.stdout or ():
                heard(line.rstrip("\n"))
        finally:
            stop.set()
    assert process.returncode == 0, f"{command[0]} ended with {process.returncode}"


def _end_after(process: subprocess.Popen[str], stop: threading.Event) -> None:
    stop.wait()
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()


@dataclass(frozen=True, slots=True)
class Program:
    """A foreign client that is a program, behind the interface of `ForeignClient`."""

    command: tuple[str, ...]
    codecs: tuple[str, ...]

    def create_topic(self, bootstrap: str, topic: str) -> None:
        self._run("create", bootstrap, topic)

    def produce(self, bootstrap: str, topic: str, codec: str, values: list[str]) -> None:
        assert values == [f"{codec}-{number}" for number in range(len(values))]
        self._run("produce", bootstrap, topic, codec, str(len(values)))

    def stream(self, bootstrap: str, topic: str) -> Stream:
        def work(stop: threading.Event) -> list[str]:
            acknowledged: list[str] = []
            converse((*self.command, "stream", bootstrap, topic), stop, acknowledged.append)
            return acknowledged

        return Stream(work)

    def read(self, bootstrap: str, topic: str) -> list[str]:
        return self._run("read", bootstrap, topic)

    def offsets_at(self, bootstrap: str, topic: str, times_ms: list[int]) -> list[int | None]:
        found = self._run("offsets", bootstrap, topic, *map(str, times_ms))
        return [None if line == "none" else int(line) for line in found]

    def _run(self, *arguments: str) -> list[str]:
        done = subprocess.run(
            (*self.command, *arguments), capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


_CLASSES = f"{HERE / 'java/target/classes'}:{HERE / 'java/target/dependency'}/*"
JAVA_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
_EVERY_CODEC = ("none", "gzip", "snappy", "lz4", "zstd")

JAVA = Program(("java", *JAVA_QUICK_START, "-cp", _CLASSES, "kraft.interop.Main"), _EVERY_CODEC)
KAFKAJS = Program(("node", str(HERE / "kafkajs/main.js")), ("none", "gzip", "snappy", "lz4"))
FRANZ_GO = Program((str(HERE / "franz-go/target/franz-go"),), _EVERY_CODEC)
