"""Output that may lose its reader: `| head`, a terminal that is closed, a log's disk that is full.

A node, a launcher and `kraft up` have other work than to be read: what cannot be written is dropped.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO, cast


class LossyStream:
    """A text stream whose `write` and `flush` drop what the system does not take; all else is the stream's own."""

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
    """The stream, so that losing its reader loses what is written and nothing else."""
    return cast(TextIO, LossyStream(stream))


def outlive_readers() -> None:
    """Make standard output and standard error of this process lossy."""
    sys.stdout, sys.stderr = lossy(sys.stdout), lossy(sys.stderr)
