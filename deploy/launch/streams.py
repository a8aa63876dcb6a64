"""Output streams that keep working without a reader: `| head` has ended, the terminal is closed, the disk is full.

A node, a launcher and `kraft up` must keep running in these cases, so output that cannot be written is dropped.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO, cast


class LossyStream:
    """A text stream that wraps another one. Its `write` and `flush` drop the output that the system does not accept;
    all other attributes are those of the wrapped stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def lossy(stream: TextIO) -> TextIO:
    """Return the stream wrapped so that output is dropped, without an error, once its reader has disappeared."""
    return cast(TextIO, LossyStream(stream))


def make_outputs_lossy() -> None:
    """Make standard output and standard error of this process lossy."""
    sys.stdout, sys.stderr = lossy(sys.stdout), lossy(sys.stderr)
