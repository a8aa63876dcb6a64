"""Where the golden files are, and what is in them."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "previous"
CONTROLLER, BROKER = 101, 1
NODES = (CONTROLLER, BROKER)
LOG = GOLDEN / "log"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def files_of(folder: Path) -> dict[str, bytes]:
    """Name → bytes of the files in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
