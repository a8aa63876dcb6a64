"""The check of the container image, deploy/check/image.sh, leaves no file and no process."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("podman", "buildah", "mmdebstrap", "setpriv", "unshare")


def _processes_of(folder: Path) -> list[str]:
    """Return the ids of processes whose environment names this folder."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in environment.read_bytes():
                found.append(environment.parent.name)
        except OSError:  # the process has ended in the meantime
            continue
    return found


@pytest.mark.deploy
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}")
def test_killing_the_check_of_the_image_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    check = subprocess.Popen(
        ["deploy/check/image.sh", "run"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with check:
        assert check.stdout is not None
        assert "making the base" in check.stdout.readline()
        (folder,) = tmp_path.iterdir()
        assert _processes_of(folder)
        check.kill()
    deadline = time.monotonic() + 60
    while folder.exists() or _processes_of(folder):
        assert time.monotonic() < deadline, f"left behind: {folder}, processes {_processes_of(folder)}"
        time.sleep(0.1)  # the guard is no child of this process, so its end can only be polled
