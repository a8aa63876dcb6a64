"""The previous release as a tree of files, extracted from the repository's history.

Only `PREVIOUS` names that release. Without the history (an sdist, a shallow clone) the tests are skipped.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.node_command import EXEC_FILE, NodeCommand

PREVIOUS = "21f49a5718ee27c32cca92bd4f3032db33c608f2"
REPORT = "previous-release"
_REPORT = f"""
import importlib.util, os
if os.path.exists("server.properties"):
    with open("{REPORT}", "w") as file:
        file.write(f"{{os.getpid()}} {{importlib.util.find_spec('kraft').origin}}")
"""
"""Code for an interpreter that runs the previous release: it writes its pid into its node's folder."""
REPOSITORY = Path(__file__).resolve().parents[2]
SAFELY: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
"""Options for extracting the archive. Python before 3.11.4 has no filters; the archive is this repository's own."""


def unpack_previous(target: Path) -> Path:
    """Write the previous release's sources into a folder. Return the entry for PYTHONPATH."""
    folders = ("kraft", "broker", "client", "deploy", "sim")
    command = ["git", "-C", str(REPOSITORY), "archive", PREVIOUS, *folders]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no git to take the previous release from the history")
    if done.returncode:
        pytest.skip(f"the history does not hold the previous release {PREVIOUS}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, **SAFELY)
    (target / "sitecustomize.py").write_text(_REPORT)
    return target


def use_previous(folder: ClusterFolder, node_ids: list[int], sources: Path) -> None:
    """Make these nodes run the previous release from their next start on. Keys that it does not have are removed from
    their files, as an operator would do."""
    for node_id in node_ids:
        node = folder.node(node_id)
        NodeCommand(environment={"PYTHONPATH": str(sources)}).write(node)
        file = node / "server.properties"
        kept = [line for line in file.read_text().splitlines() if not line.startswith("kraft.admin.")]
        file.write_text("\n".join(kept) + "\n")


def use_this(folder: ClusterFolder, node_ids: list[int]) -> None:
    """Make these nodes run this release from their next start on."""
    for node_id in node_ids:
        (folder.node(node_id) / EXEC_FILE).unlink()


def runs_previous(folder: ClusterFolder, node_id: int, pid: int, sources: Path) -> bool:
    """Whether the process of this node imports the previous release."""
    report = folder.node(node_id) / REPORT
    return report.exists() and report.read_text() == f"{pid} {sources / 'kraft' / '__init__.py'}"
