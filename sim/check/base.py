"""What a check is: it reads observations, counts the ones that meant something, and reports with evidence.

A check never touches a node and never raises for what a node did: it records a `Finding`. A check that saw nothing
non-trivial makes the run's verdict "unknown", not "valid".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kraft.sim.check.observations import Observation

FINDINGS_MAX = 8
"""Findings kept per check; the first ones are the ones that explain."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant: which, when (the run's event number and virtual ms), what, and the evidence for it."""

    check: str
    event: int
    at_ms: int
    text: str
    evidence: Mapping[str, Any]

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.evidence.items())
        return f"{self.check} at event {self.event} ({self.at_ms} ms): {self.text} [{facts}]"


class Check:
    """Base of all checks. A subclass names its `id` and `statement`, and in `readers` a method per observation type."""

    id: ClassVar[str]
    statement: ClassVar[str]

    def __init__(self) -> None:
        self.seen = 0
        self.findings: list[Finding] = []
        self.event = 0
        self.at_ms = 0
        self.when_found: Callable[[Finding], None] | None = None
        """Is told of each finding, at the moment when it is found."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        """Which observation goes to which method."""
        raise AttributeError(f"{type(self).__name__} declares no readers")

    def finish(self) -> None:
        """The run is over: report what was still due."""

    def count(self) -> None:
        """This observation was non-trivial."""
        self.seen += 1

    def fail(self, text: str, **evidence: Any) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(self.id, self.event, self.at_ms, text, evidence))
            if self.when_found is not None:
                self.when_found(self.findings[-1])


class Checks:
    """A set of checks over one run. `observe` is called in the order of the events."""

    def __init__(self, checks: Iterable[Check]) -> None:
        self.checks = list(checks)
        self._readers: dict[type, list[tuple[Check, Callable[[Any], None]]]] = {}
        for check in self.checks:
            for kind, reader in check.readers().items():
                self._readers.setdefault(kind, []).append((check, reader))
        self._event = 0

    def observe(self, observation: Observation, at_ms: int) -> None:
        self._event += 1
        for check, reader in self._readers.get(type(observation), ()):
            check.event = self._event
            check.at_ms = at_ms
            reader(observation)

    def finish(self, at_ms: int) -> None:
        """The run is over."""
        for check in self.checks:
            check.event = self._event
            check.at_ms = at_ms
            check.finish()

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order in which they happened."""
        return sorted((f for check in self.checks for f in check.findings), key=lambda finding: finding.event)

    def unseen(self) -> list[str]:
        """Ids of the checks that never saw non-trivial input."""
        return [check.id for check in self.checks if not check.seen]

    def verdict(self) -> str:
        """ "invalid", "unknown" (some check saw nothing) or "valid"."""
        if self.findings:
            return "invalid"
        return "unknown" if self.unseen() else "valid"
