"""A producer with acks=all that runs during a test, and the check that every acknowledged record can be read.

As a program, it sends numbers until its standard input ends, and then prints the numbers that were acknowledged.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from kraft.client import DeliveryFailed, Producer
from tests.stages.kraft_command import Command

TOPIC = "load"
PAUSE_SECONDS = 0.005


@dataclass
class Load:
    """The records that the producer has sent, and the result of each. A record's value is `name:number`."""

    name: str
    acknowledged: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def require_each_once(self, kraft: Command, bootstrap: str) -> None:
        """Raise AssertionError unless every acknowledged record is read exactly once, and none failed."""
        lines = kraft.run("consume", TOPIC, "-b", bootstrap).splitlines()
        counts = Counter(lines)
        assert self.failed == []
        assert len(self.acknowledged) > 0
        records = [f"{self.name}:{number}" for number in self.acknowledged]
        wrong = {record: counts[record] for record in records if counts[record] != 1}
        assert wrong == {}


@contextmanager
def under_load(bootstrap: str, name: str = "load") -> Iterator[Load]:
    """Produce to an existing topic while the context is open."""
    load = Load(name)
    command = [sys.executable, "-m", "tests.deploy.load", bootstrap, name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        yield load
        told, _ = process.communicate("", timeout=150)
        report = json.loads(told)
        load.acknowledged, load.failed = report["acknowledged"], report["failed"]
    finally:
        process.kill()
        process.communicate()


async def _produce(bootstrap: str, name: str) -> None:
    deliveries = []
    is_over = trio.Event()

    async def wait_end() -> None:
        await trio.to_thread.run_sync(sys.stdin.read)
        is_over.set()

    async with Producer(bootstrap_servers=bootstrap) as producer, trio.open_nursery() as nursery:
        await producer.send(TOPIC, f"{name}:0".encode())
        print("first", flush=True)
        nursery.start_soon(wait_end)
        while not is_over.is_set():
            number = len(deliveries) + 1
            deliveries.append(await producer.enqueue(TOPIC, f"{name}:{number}".encode()))
            await trio.sleep(PAUSE_SECONDS)
        await producer.flush()
    failed = [str(one.outcome) for one in deliveries if isinstance(one.outcome, DeliveryFailed)]
    done = [at for at, one in enumerate(deliveries, 1) if not isinstance(one.outcome, DeliveryFailed)]
    print(json.dumps({"acknowledged": [0, *done], "failed": failed}))


if __name__ == "__main__":
    trio.run(_produce, *sys.argv[1:])
