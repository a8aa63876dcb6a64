"""Findings of a run besides those of checks: nodes that stopped although they were not asked to, logged errors, broken
guarantees.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from types import NoneType
from typing import Any

import structlog

from kraft.seam import DiskError, StorageCorrupt, current_seam
from kraft.sim.check.base import FINDINGS_MAX, Finding
from kraft.sim.world.network import FakeNetwork

LOG_LINES_KEPT = 400
ERROR_LEVELS = ("error", "critical", "exception")
OF_DISKS = (NoneType, DiskError, StorageCorrupt)
"""Exceptions that are excused on a node whose disk a fault makes fail. Any other exception is a bug, whatever is wrong
with the node."""


class Report:
    """Findings that no check reports, in the same form as the checks' findings, and the last lines that nodes
    logged."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.findings: list[Finding] = []
        self.log_lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self.is_excused: Callable[[str], bool] = lambda node: False
        """Callback that returns whether this node may log errors of its disks now."""
        self.is_judged: Callable[[str], bool] = lambda node: True
        """Callback that returns whether an error that this node logs counts as a finding; errors of an application do
        not."""
        self.when_found: Callable[[Finding], None] | None = None
        """Called with each finding, at the moment it is recorded."""
        self.excused: Counter[str] = Counter()
        """Node → excused errors that it logged or that stopped it."""
        self._now_ms = now_ms

    def fail(self, check: str, text: str, **evidence: Any) -> None:
        """Add a finding, unless its check has the maximum number already."""
        if sum(finding.check == check for finding in self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(check, 0, self._now_ms(), text, evidence))
            if self.when_found is not None:
                self.when_found(self.findings[-1])

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what nodes log; an error that a node logs is a finding (N1)."""
        before = structlog.get_config()
        structlog.configure(processors=[self._take], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
        try:
            yield
        finally:
            structlog.configure(**before)

    def _take(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        seam = current_seam.get()
        network = None if seam is None else seam.network
        node = network.host.name if isinstance(network, FakeNetwork) else "?"
        problem = event.pop("exc_info", None)
        problem = sys.exc_info()[1] if problem is True else problem
        facts = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
        text = str(event.get("event", ""))
        self.log_lines.append(f"{self._now_ms():>7} ms {node:<10} {level:<8} {text} {facts}")
        if level in ERROR_LEVELS and self.is_excused(node) and isinstance(problem, OF_DISKS):
            self.excused[node] += 1
        elif level in ERROR_LEVELS and self.is_judged(node):
            self.fail("N1", f"{node} logged an error: {text}", facts=facts, problem=repr(problem))
        raise structlog.DropEvent
