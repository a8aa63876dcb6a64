"""Test that a run of a whole cluster leaves nothing behind when it is ended with kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.deploy.launch.processes import identify
from kraft.sim.chaos.hosts.clocks import SHARED
from tests.chaos.hosts.privileges import needs_mounts, needs_namespaces
from tests.chaos.hosts.test_clocks import needs_faketime
from tests.chaos.hosts.test_warden import wait_gone

RUNNER = "tests.chaos.hosts.cluster_runner"
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@needs_mounts
@needs_namespaces
@needs_faketime
def test_a_killed_run_leaves_no_process_network_mount_shared_memory_socket_or_folder(tmp_path: Path) -> None:
    memory = set(os.listdir(SHARED))
    command = [sys.executable, "-m", RUNNER, str(tmp_path / "cluster")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as runner:
        assert runner.stdout is not None
        made = json.loads(runner.stdout.readline())
        assert len([pid for pid in made["pids"] if identify(pid) is not None]) == 3
        assert str(tmp_path) in Path("/proc/mounts").read_text()
        runner.send_signal(signal.SIGKILL)
    wait_gone(made["warden"])
    assert [pid for pid in made["pids"] if identify(pid) is not None] == []
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not Path(made["socket"]).exists()
    assert [name for name in os.listdir("/sys/class/net") if name.startswith(made["bridge"].removesuffix("b"))] == []
    assert {name for name in os.listdir(SHARED) if "kraft-chaos" in name} <= memory
