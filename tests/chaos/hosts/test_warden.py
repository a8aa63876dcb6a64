"""Tests of the warden, the privileged process that removes a run's resources: it leaves none behind, however the run
ends, and touches nothing that does not belong to the run.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.processes import identify
from kraft.sim.chaos.hosts.warden import HeldResource, Warden, WardenError
from tests.chaos.hosts.privileges import NO_MOUNTS, NO_NAMESPACES

RUNNER = Path(__file__).with_name("warden_runner.py")
WAIT_MS_MAX = 30_000
ENDINGS = [("exit", None), ("exception", None)]
ENDINGS += [("wait", number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)]


def wait_gone(pid: int) -> None:
    """Wait until a process that is not a child of this process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    has_ended = poller.poll(WAIT_MS_MAX)
    os.close(descriptor)
    assert has_ended


@pytest.fixture
def warden() -> Iterator[Warden]:
    with Warden() as opened:
        yield opened


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(("ending", "number"), ENDINGS)
def test_a_warden_leaves_nothing_behind_however_its_runner_ends(
    ending: str, number: signal.Signals | None, tmp_path: Path
) -> None:
    folder = tmp_path / "a run"
    word = "" if NO_MOUNTS or NO_NAMESPACES else f"kt{os.getpid() % 10**7}"
    command = [sys.executable, str(RUNNER), str(folder), word, ending]
    pipe = subprocess.PIPE
    runner = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True)
    with runner:
        assert runner.stdout is not None
        made = json.loads(runner.stdout.readline())
        if number is not None:
            assert folder.exists()
            assert all(identify(pid) is not None for pid in made["pids"])
            os.killpg(runner.pid, number)  # to the whole group, as the terminal does
        runner.wait()
    wait_gone(made["warden"])
    for pid in made["pids"]:
        wait_gone(pid)
    assert list(tmp_path.iterdir()) == []
    if word:
        assert not Path(f"/run/netns/{word}").exists()
        assert not Path(f"/sys/class/net/{word}b").exists()


def test_closing_a_warden_cleans_up_and_reports_no_leftovers(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    with Warden() as warden:
        warden.process(sleeper.pid)
        warden.folder(tmp_path / "made")
        (tmp_path / "made").mkdir()
    assert warden.close() == ()
    assert sleeper.wait() == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_the_warden_does_not_touch_a_released_resource(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    with Warden() as warden:
        held = [warden.process(sleeper.pid), warden.folder(tmp_path / "made")]
        (tmp_path / "made").mkdir()
        for resource in held:
            warden.release(resource)
    assert sleeper.poll() is None
    assert (tmp_path / "made").exists()


def test_the_warden_does_not_kill_a_process_with_a_registered_pid_but_another_start_time(
    warden: Warden, sleeper: subprocess.Popen[bytes]
) -> None:
    warden._hold(HeldResource("process", str(sleeper.pid), "1"))
    assert warden.close() == ()
    assert sleeper.poll() is None


def test_the_warden_keeps_and_reports_a_folder_that_was_replaced(warden: Warden, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    warden.folder(made)
    made.rename(tmp_path / "elsewhere")
    made.mkdir()
    (made / "file").write_text("somebody's")
    (said,) = warden.close()
    assert "another folder" in said
    assert (made / "file").exists()


def test_the_warden_does_not_follow_a_symbolic_link_in_a_folder(warden: Warden, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("text")
    warden.folder(tmp_path / "made")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "link").symlink_to(kept)
    assert warden.close() == ()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").exists()


@pytest.mark.parametrize("path", ["/", "/tmp", "/usr/lib", str(Path.home()), os.getcwd(), sys.prefix])
def test_the_warden_rejects_a_folder_that_no_run_can_have_created(warden: Warden, path: str) -> None:
    with pytest.raises(WardenError):
        warden.folder(path)


def test_the_warden_rejects_a_file_that_exists_before_its_registration(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(WardenError, match="exists already"):
        warden.file(tmp_path / "file")
    with pytest.raises(WardenError, match="not empty"):
        warden.folder(tmp_path)
    with pytest.raises(WardenError, match="mounted"):
        warden.mount("/dev/shm")


def test_the_warden_rejects_a_process_that_has_ended(warden: Warden, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(WardenError, match="does not run"):
        warden.process(sleeper.pid)


def test_a_killed_warden_rejects_registrations_and_is_reported_at_the_close(tmp_path: Path) -> None:
    warden = Warden()
    os.kill(warden.pid, signal.SIGKILL)
    warden._process.wait()
    with pytest.raises(WardenError, match="has ended"):
        warden.folder(tmp_path / "made")
    assert "did not report" in warden.close()[0]
