"""The check of the image leaves nothing behind: deploy/check/image.sh."""

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
    """Process ids whose environment names the folder."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in environment.read_bytes():
                found.append(environment.parent.name)
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.mark.deploy
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}")
def test_the_check_of_the_image_leaves_no_file_and_no_process_when_it_is_killed(tmp_path: Path) -> None:
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
        time.sleep(0.1)  # the guard's end is no event that another process can wait for
