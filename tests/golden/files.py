"""Paths of the golden files, and their contents."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "previous"
CONTROLLER, BROKER = 101, 1
NODES = (CONTROLLER, BROKER)
LOG = GOLDEN / "log"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
