"""Each bare loop ends, and counts the CPU time of all processes that do a broker's work."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from dataclasses import astuple
from tests.bench import bare
print(json.dumps(astuple(getattr(bare, sys.argv[1])(int(sys.argv[2])))))
"""


@pytest.mark.parametrize("loop", ["receive_check_append", "replicate", "sendfile"])
@pytest.mark.parametrize("megabytes", [1, 30])
def test_each_bare_loop_of_the_benchmark_returns_a_rate(loop: str, megabytes: int) -> None:
    """The loop runs in a separate process, because it forks and this process has threads."""
    command = [sys.executable, "-c", PROGRAM, loop, str(megabytes)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    rate, cpu_seconds_per_gigabyte = json.loads(told)
    assert rate > 0
    assert 0 <= cpu_seconds_per_gigabyte < 1000 * megabytes
