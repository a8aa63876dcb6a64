"""The scripts of the container image, run as testcontainers' modules run them, without a container."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(listener.getsockname()[1]) for listener in listeners]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_the_images_scripts_edited_by_testcontainers_start_a_node_and_log_kafkas_lines(tmp_path: Path) -> None:
    run = subprocess.run(
        ["unshare", "--mount", "tests/deploy/image_scripts.sh", str(tmp_path), *_free_ports(3)],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for line in ("Transitioning from RECOVERY to RUNNING", "Kafka Server started", "[KafkaServer id=1] started"):
        assert run.stdout.count(line) == 1, run.stdout
    assert "healthy" in run.stdout
    assert "the node has stopped" in run.stdout
