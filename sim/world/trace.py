"""The trace: a rolling hash over all events, which shows whether two runs are identical."""

from __future__ import annotations

import hashlib
import struct
from collections import deque

from crc32c import crc32c

from kraft.seam import Buffer

EVENTS_PER_CHECKPOINT = 1000
_EVENT = struct.Struct(">QQII")


class Trace:
    """Rolling hash over (event number, virtual ns, node and kind, payload digest), with periodic checkpoints."""

    def __init__(self, lines_kept: int) -> None:
        self.events = 0
        self.checkpoints: list[str] = []
        """The hash after each EVENTS_PER_CHECKPOINT events. Two runs that differ diverge between the last equal
        checkpoint and the next."""
        self.lines: deque[str] = deque(maxlen=lines_kept)
        self._keep = lines_kept > 0
        self._rolling = hashlib.blake2b(digest_size=16)
        self._unhashed: list[bytes] = []
        self._labels: dict[tuple[str, str], int] = {}

    @property
    def digest(self) -> str:
        self._rolling.update(b"".join(self._unhashed))
        self._unhashed.clear()
        return self._rolling.hexdigest()

    def add(self, now_ns: int, node: str, kind: str, payload: Buffer = b"") -> None:
        """Add one event. `kind` is from a small set of words; the payload is hashed, not kept."""
        label = self._labels.get((node, kind))
        if label is None:
            label = self._labels[node, kind] = crc32c(f"{node}/{kind}".encode())
        self.events += 1
        check = crc32c(payload)
        self._unhashed.append(_EVENT.pack(self.events, now_ns, label, check))
        if not self.events % EVENTS_PER_CHECKPOINT:
            self.checkpoints.append(self.digest)
        if self._keep:
            self.lines.append(f"{self.events} {now_ns / 1e9:.6f} {node} {kind} {len(payload)} {check:08x}")
