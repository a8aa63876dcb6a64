"""Tests that the same seed gives the same run, in any process, and that different seeds give different runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kraft.sim.world import NotOfThisWorld, World, WorldOptions
from tests.stages import world_scenario as scenario

ROOT = Path(__file__).parent.parent.parent


def hash_in_a_fresh_process(seed: int, *, hash_seed: str, zone: str) -> str:
    """Return the trace hash of the scenario in a process with its own hash seed, time zone and heap."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "TZ": zone, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.stages.world_scenario", str(seed)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_the_same_seed_gives_the_same_trace_in_new_processes_and_in_one_that_ran_before() -> None:
    first = hash_in_a_fresh_process(5, hash_seed="1", zone="UTC")
    second = hash_in_a_fresh_process(5, hash_seed="4242", zone="Asia/Tokyo")
    scrambled = [bytearray(size * 7 % 4096) for size in range(10_000)]
    del scrambled[::3]
    assert len(first) == 32
    assert first == second == World(5).run(scenario.main) == World(5).run(scenario.main)


def test_runs_of_different_seeds_have_different_traces() -> None:
    assert len({World(seed).run(scenario.main) for seed in range(3)}) == 3


def test_the_trace_of_a_world_has_checkpoints_and_on_request_its_last_lines() -> None:
    world = World(1, WorldOptions(trace_lines=20))
    final = world.run(scenario.main)
    assert len(world.trace_checkpoints) == world.events // 1000 > 0
    assert len(world.trace_lines) == 20
    assert final != world.trace_checkpoints[0]


def test_a_random_stream_does_not_depend_on_other_streams() -> None:
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


BY_ANYBODY = (
    "import time; time.sleep(0)",
    "import time; time.monotonic()",
    "import time; time.time()",
    "import time; time.time_ns()",
    "import time; time.perf_counter()",
    "import os; os.urandom(4)",
    "import os; os.getrandom(4)",
    "import random; random.random()",
    "import random; random.uniform(1, 2)",
    "import random; random.sample([1, 2], 1)",
    "import random; random.choices([1, 2])",
    "import random; random.randbytes(4)",
    "import random; random.SystemRandom().random()",
    "import secrets; secrets.token_bytes(4)",
    "import secrets; secrets.randbelow(4)",
    "import uuid; uuid.uuid4()",
    "import threading; threading.Thread(target=print).start()",
)
BY_KRAFT = (
    "import random; random.Random()",
    "import random; random.Random(None)",
    "import random; random.Random(1).seed()",
    "import time; time.process_time()",
    "import time; time.clock_gettime(time.CLOCK_REALTIME)",
    "import time; time.localtime()",
    "import time; time.strftime('%Y')",
    "import os; open(os.devnull).close()",
    "import io, os; io.open(os.devnull).close()",
    "import os; os.close(os.open(os.devnull, 0))",
    "import os, pathlib; pathlib.Path(os.devnull).read_bytes()",
    "import tempfile; tempfile.TemporaryFile().close()",
)
OF_NO_HARM = (
    "import random; random.Random(7).random()",
    "import time; time.localtime(0); time.gmtime(0); time.strftime('%Y', time.gmtime(0))",
    "import logging; logging.getLogger('x').makeRecord('x', 20, 'f', 1, 'm', (), None)",
    "import traceback, linecache; linecache.clearcache(); traceback.format_stack()",
)


def as_module(name: str, code: str) -> Callable[[], None]:
    """Run `code` as a module of this name would."""
    return lambda: exec(code, {"__name__": name})


def in_a_world(run: Callable[[], None]) -> None:
    async def main(world: World) -> None:
        run()

    World(1).run(main)


REACHES = [("tests.x", code) for code in BY_ANYBODY] + [("kraft.node.x", code) for code in BY_KRAFT]


@pytest.mark.parametrize("reach", REACHES)
def test_calls_for_real_time_randomness_threads_and_sockets_raise_within_a_simulated_world(
    reach: tuple[str, str],
) -> None:
    run = as_module(*reach)
    with pytest.raises(NotOfThisWorld, match="use the seam"):
        in_a_world(run)
    run()


@pytest.mark.parametrize("code", OF_NO_HARM)
def test_calls_without_real_time_or_randomness_are_allowed(code: str) -> None:
    in_a_world(as_module("kraft.node.x", code))


@pytest.mark.parametrize("code", BY_KRAFT)
def test_an_application_may_use_files_within_a_simulated_world(code: str) -> None:
    in_a_world(as_module("orders.service", code))


def test_a_forbidden_call_ends_the_run_even_if_its_exception_is_caught() -> None:
    went_on = []

    async def main(world: World) -> None:
        with suppress(NotOfThisWorld):
            time.time()
        await world.sleep_ms(1)
        went_on.append(True)

    with pytest.raises(NotOfThisWorld, match=r"time\.time was called"):
        World(1).run(main)
    assert not went_on


BREAKS_THE_LOOP = """
import os, time, trio
from kraft.sim.world import World

def raise_in_the_loop(_):
    raise ArithmeticError

async def main(world):
    with trio.move_on_after(1):
        await trio.lowlevel.wait_task_rescheduled(raise_in_the_loop)

clock = time.perf_counter
try:
    World(1).run(main)
except trio.TrioInternalError as problem:
    print(type(problem.__cause__).__name__, time.perf_counter is clock, flush=True)
os._exit(0)  # without the finalizers of the tasks that never ended
"""


def test_the_functions_of_the_real_world_are_back_after_a_run_whose_event_loop_broke() -> None:
    """A time-out of a test breaks the loop: it raises at an arbitrary point."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BREAKS_THE_LOOP]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert found.split() == ["ArithmeticError", "True"]
