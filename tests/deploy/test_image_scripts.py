"""The scripts of the container image, run as testcontainers modules run them, without a container."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraft.config import parse_properties

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


SCRIPTS = ROOT / "deploy" / "docker" / "rootfs" / "etc" / "kafka" / "docker"
MOUNTED = "# mine\nprocess.roles : broker,controller\n  log.dirs = /mine\nlisteners = PLAINTEXT://127.0.0.1:{port}\n"


def _script(name: str, root: Path) -> Path:
    """Return the path of a script of the image, all of whose files are below `root`."""
    text = (SCRIPTS / name).read_text()
    for folder in ("/etc/kafka", "/mnt/shared", "/opt/kafka"):
        text = text.replace(f"{folder}/", f"{root}{folder}/")
    path = root / name
    path.write_text(text)
    return path


def _image(root: Path, mounted: str) -> None:
    shutil.copytree(SCRIPTS, root / "etc" / "kafka" / "docker")
    (root / "mnt" / "shared" / "config").mkdir(parents=True)
    (root / "mnt" / "shared" / "config" / "server.properties").write_text(mounted)


def test_the_image_keeps_the_log_directory_of_a_mounted_file_with_spaces_around_equals(tmp_path: Path) -> None:
    _image(tmp_path, MOUNTED.format(port=9092))
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = ["bash", str(_script("configure", tmp_path))]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    written = parse_properties((tmp_path / "etc" / "kafka" / "kafka.properties").read_text())
    assert written["log.dirs"] == "/mine"


def test_the_images_health_check_reads_listeners_with_spaces_around_equals(tmp_path: Path) -> None:
    check = [sys.executable, str(_script("healthcheck", tmp_path))]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (tmp_path / "etc" / "kafka").mkdir(parents=True)
        properties = tmp_path / "etc" / "kafka" / "kafka.properties"
        properties.write_text(MOUNTED.format(port=listener.getsockname()[1]))
        done = subprocess.run(check, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "not ready" in done.stderr) == (1, True)


def test_the_images_health_check_without_listeners_checks_the_default_one(tmp_path: Path) -> None:
    (tmp_path / "etc" / "kafka").mkdir(parents=True)
    (tmp_path / "etc" / "kafka" / "kafka.properties").write_text("node.id=1\n")
    done = subprocess.run([sys.executable, str(_script("healthcheck", tmp_path))], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
