"""The same seed gives the same run, in any process; another seed gives another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.sim.world import NotOfThisWorld, World, WorldOptions
from tests.world import scenario

ROOT = Path(__file__).parent.parent.parent


def hash_in_a_fresh_process(seed: int, *, hash_seed: str, zone: str) -> str:
    """The trace hash of the scenario in a process with its own hash seed, time zone and heap."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "TZ": zone, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.world.scenario", str(seed)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_the_same_seed_gives_the_same_trace_in_fresh_processes_and_in_a_warm_one() -> None:
    first = hash_in_a_fresh_process(5, hash_seed="1", zone="UTC")
    second = hash_in_a_fresh_process(5, hash_seed="4242", zone="Asia/Tokyo")
    scrambled = [bytearray(size * 7 % 4096) for size in range(10_000)]
    del scrambled[::3]
    assert len(first) == 32
    assert first == second == World(5).run(scenario.main) == World(5).run(scenario.main)


def test_another_seed_gives_another_trace() -> None:
    assert len({World(seed).run(scenario.main) for seed in range(3)}) == 3


def test_the_trace_has_checkpoints_and_its_last_lines_on_demand() -> None:
    world = World(1, WorldOptions(trace_lines=20))
    final = world.run(scenario.main)
    assert len(world.trace_checkpoints) == world.events // 1000 > 0
    assert len(world.trace_lines) == 20
    assert final != world.trace_checkpoints[0]


def test_a_stream_of_chance_does_not_depend_on_the_others() -> None:
    draws = []
    for noisy in (False, True):

        async def main(world: World, noisy: bool = noisy) -> None:
            seam = world.node("one")
            if noisy:
                world.node("two").random.below(10)
                seam.random.stream("noise").below(10)
            draws.append([seam.random.stream("elections").below(1000) for _ in range(10)])

        World(3).run(main)
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    "reach",
    [
        "import time; time.sleep(0)",
        "import time; time.monotonic()",
        "import os; os.urandom(4)",
        "import random; random.random()",
        "import uuid; uuid.uuid4()",
        "import threading; threading.Thread(target=print).start()",
    ],
)
def test_reaching_for_the_real_world_raises(reach: str) -> None:
    async def main(world: World) -> None:
        exec(reach)

    with pytest.raises(NotOfThisWorld, match="use the seam"):
        World(1).run(main)
    exec(reach)
