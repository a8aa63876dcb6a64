"""short_path: a name of a Unix socket that fits into the 107 bytes of its address, however deep its folder is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ADDRESS_BYTES_MAX = 100


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The path itself, or a short name of it that is valid within the context. OSError if its folder is not there."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
