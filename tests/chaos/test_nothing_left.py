"""Tests that `kraft chaos run` leaves nothing behind, however it ends: no process, port, mount, shared memory, socket
or folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.chaos_command import SECONDS_MAX, Chaos, Left, read_until, wait_until
from tests.chaos.hosts.privileges import needs_mounts
from tests.chaos.hosts.test_clocks import needs_faketime

SHORT = """
title = "Short"
duration_s = 8
[workload]
producers = 1
[[fault]]
at_s = 1
kind = "kill"
role = "leader"
back_s = 0.5
"""
LINKS_AND_A_PAUSE = """
title = "A node is frozen, and a link hangs"
duration_s = 45
[workload]
producers = 1
[[fault]]
at_s = 0
kind = "pause"
node = 2
lasts_s = 40
[[fault]]
at_s = 0
kind = "cut"
node = 1
other = 3
lasts_s = 40
"""
HOSTS = """
[[fault]]
at_s = 0
kind = "full disk"
node = 3
lasts_s = 40
[[fault]]
at_s = 0
kind = "clock"
node = 1
step_ms = 600000
lasts_s = 40
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]

Moment = Callable[[subprocess.Popen[str]], None]


@pytest.fixture
def chaos(tmp_path: Path) -> Chaos:
    return Chaos(tmp_path)


def interrupted_run(
    chaos: Chaos, number: signal.Signals, moment: Moment, scenario: str, *application: str
) -> tuple[Left, str]:
    """Wait until the given moment of a run, send this signal to it, and wait until the run has ended. Return the
    resources to search for, and the output of the run."""
    left = Left(chaos)
    with chaos.start(chaos.scenario(scenario), *application) as process:
        moment(process)
        assert left.note(process.pid) >= 2
        process.send_signal(number)
        printed, _ = process.communicate(timeout=SECONDS_MAX)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert process.returncode == expected, printed
    return left, printed


def folder_is_made(chaos: Chaos) -> Moment:
    return lambda process: wait_until(lambda: [*chaos.temporary.glob("kraft-cluster-*")])


def nodes_run(chaos: Chaos) -> Moment:
    """Return whether some nodes run although the cluster does not serve clients yet."""
    return lambda process: wait_until(lambda: [*chaos.temporary.glob("kraft-cluster-*/1/node.log")])


def faults_are_on(*texts: str) -> Moment:
    def moment(process: subprocess.Popen[str]) -> None:
        read_until(process, *texts)

    return moment


LINKS_ARE_CUT = faults_are_on("node 2 is frozen", "node 1 is cut off from [3]")


def test_a_chaos_run_that_ends_leaves_no_process_port_mount_or_folder_behind(chaos: Chaos) -> None:
    left = Left(chaos)
    with chaos.start(chaos.scenario(SHORT)) as process:
        read_until(process, "clients work")
        assert left.note(process.pid) >= 9, "the run, its warden, toxiproxy, the launcher and six nodes"
        printed, _ = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0, printed
    left.wait_nothing()


def test_a_chaos_run_interrupted_while_its_cluster_starts_leaves_nothing_behind(chaos: Chaos) -> None:
    left, printed = interrupted_run(chaos, signal.SIGINT, nodes_run(chaos), SHORT)
    left.wait_nothing()
    assert "unknown" not in printed, "it did not go on, as after a cluster that does not start"


def test_a_chaos_run_killed_while_a_node_is_frozen_and_a_link_hangs_leaves_nothing_behind(chaos: Chaos) -> None:
    left, _ = interrupted_run(chaos, signal.SIGKILL, LINKS_ARE_CUT, LINKS_AND_A_PAUSE)
    left.wait_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", [folder_is_made, nodes_run])
def test_a_chaos_run_ended_by_a_signal_while_its_cluster_starts_leaves_nothing_behind(
    chaos: Chaos, number: signal.Signals, moment: Callable[[Chaos], Moment]
) -> None:
    left, _ = interrupted_run(chaos, number, moment(chaos), SHORT)
    left.wait_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@needs_mounts
@needs_faketime
def test_a_chaos_run_ended_by_a_signal_during_faults_leaves_nothing_behind(
    chaos: Chaos, number: signal.Signals
) -> None:
    left: Left = Left(chaos)

    def moment(process: subprocess.Popen[str]) -> None:
        LINKS_ARE_CUT(process)
        left.note(process.pid)
        wait_until(lambda: len(left.shared_memory) >= 2)
        wait_until(lambda: left.mounts())

    found, _ = interrupted_run(chaos, number, moment, LINKS_AND_A_PAUSE + HOSTS)
    left.wait_nothing()
    found.wait_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_chaos_run_ended_by_a_signal_while_an_application_runs_leaves_nothing_behind(
    chaos: Chaos, number: signal.Signals
) -> None:
    started = chaos.folder / "started"
    program = f"sleep 600 & setsid sleep 600 & touch {started}; sleep 600"
    left, _ = interrupted_run(
        chaos, number, lambda process: wait_until(started.exists), LINKS_AND_A_PAUSE, "--", "sh", "-c", program
    )
    left.wait_nothing()


@pytest.mark.slow
def test_a_chaos_run_that_gets_a_second_signal_while_it_ends_leaves_nothing_behind(chaos: Chaos) -> None:
    left = Left(chaos)
    with chaos.start(chaos.scenario(LINKS_AND_A_PAUSE)) as process:
        LINKS_ARE_CUT(process)
        left.note(process.pid)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS_MAX)
        assert process.returncode != 0
    left.wait_nothing()


@pytest.mark.slow
def test_an_interrupted_campaign_starts_no_further_run(chaos: Chaos) -> None:
    left, _ = interrupted_run(chaos, signal.SIGTERM, nodes_run(chaos), SHORT, "--repeat", "3")
    left.wait_nothing()
    assert len(os.listdir(chaos.runs)) == 1
