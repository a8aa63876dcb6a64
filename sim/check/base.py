"""Base of all checks: a check reads observations, counts those that could have violated it, and reports findings with
evidence.

A check never touches a node and never raises because of what a node did: it records a `Finding`. An observation is
trivial for a check if it could not have violated it. If a check saw only trivial observations, the run's verdict is
"unknown", not "valid".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kraft.sim.check.observations import Observation

FINDINGS_MAX = 8
"""Maximum findings kept per check. The first ones are kept, because they explain the failure best."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A violated invariant: its code, the time (the run's event number and virtual ms), a description, and the
    evidence."""

    check: str
    event: int
    at_ms: int
    text: str
    evidence: Mapping[str, Any]

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.evidence.items())
        return f"{self.check} at event {self.event} ({self.at_ms} ms): {self.text} [{facts}]"


class Check:
    """Base of all checks. A subclass defines its `id` and `statement`, and maps observation types to methods in
    `readers`."""

    id: ClassVar[str]
    statement: ClassVar[str]

    def __init__(self) -> None:
        self.seen = 0
        self.findings: list[Finding] = []
        self.event = 0
        self.at_ms = 0
        self.when_found: Callable[[Finding], None] | None = None
        """Called with each finding, at the moment it is recorded."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        """Return the method that handles each observation type."""
        raise AttributeError(f"{type(self).__name__} declares no readers")

    def finish(self) -> None:
        """Report findings that can be decided only at the end of the run."""

    def count(self) -> None:
        """Count the current observation as one that could have violated the check."""
        self.seen += 1

    def fail(self, text: str, **evidence: Any) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(self.id, self.event, self.at_ms, text, evidence))
            if self.when_found is not None:
                self.when_found(self.findings[-1])


class Checks:
    """A set of checks over one run. `observe` must be called in the order of the events."""

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
        """Finish all checks at the end of the run."""
        for check in self.checks:
            check.event = self._event
            check.at_ms = at_ms
            check.finish()

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order of their events."""
        return sorted((f for check in self.checks for f in check.findings), key=lambda finding: finding.event)

    def unseen(self) -> list[str]:
        """Ids of the checks that saw only observations that could not have violated them."""
        return [check.id for check in self.checks if not check.seen]

    def verdict(self) -> str:
        """Verdict: "invalid" (there are findings), "unknown" (some check saw nothing that could have violated it) or
        "valid"."""
        if self.findings:
            return "invalid"
        return "unknown" if self.unseen() else "valid"
