"""A short path for a Unix socket, because a socket address has only 107 bytes, however deep the folder is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ADDRESS_BYTES_MAX = 100


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield the path itself if it is short enough, else a short name for it that is valid within the context. Raise
    OSError if the folder does not exist."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
