"""Pure: from the files of a run to its verdict: anomalies, evidence that each fault took effect, availability, latency.

The anomalies of sends and polls are found by `kraft.sim.check.histories.client_histories`, orders of metadata
operations by `kraft.sim.check.histories.linearizability`: one library for both worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAnomaly:
    """A reason for which a run is invalid. At most EVIDENCE_MAX of a name are kept, the smallest first."""

    name: str
    text: str
    """One sentence that says why it must not be."""
    place: str
    """TOPIC-PARTITION, a topic, a group; "" if it is of none."""
    evidence: Mapping[str, Any]
    operations: tuple[int, ...]
    """Indexes of the history's events that prove it."""
    is_allowed: bool = False
    """The scenario's settings permit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEffect:
    """Whether a fault took effect, and by what one sees it."""

    fault: int
    """Its number among the run's faults, from 0."""
    is_seen: bool
    evidence: str
    """In words: "ISR of chaos-0 went from 1,2,3 to 2,3 after 0.21 s", or what was looked for in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The longest time without a success after a fault, over the operations that it could hit."""

    fault: int
    f: str
    """Function of the history: send, create topic, poll."""
    gap_ms: float
    first_success_ms: float | None
    """Time from the begin of the fault to the first success behind the gap; None: there was none."""
    places: tuple[str, ...] = ()
    """The partitions of which the gap is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatistics:
    """Operations of a function in a phase: before faults, fault N, between faults, after heal."""

    phase: str
    begin_ms: float
    end_ms: float
    f: str
    ok: int
    fail: int
    info: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`verdict`: invalid if an anomaly is not allowed, else unknown if there are `reasons`, else valid."""

    verdict: str
    reasons: tuple[str, ...] = ()
    """Why nothing is known, each a sentence."""
    anomalies: tuple[FoundAnomaly, ...] = ()
    anomaly_counts: Mapping[str, int] = field(default_factory=dict)
    """Name → how many there are, also beyond those that are kept."""
    effects: tuple[FaultEffect, ...] = ()
    gaps: tuple[Gap, ...] = ()
    phases: tuple[PhaseStatistics, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Function → ok, fail, info → how many."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Reason of a fail or info → how often."""
    checked: Mapping[str, int] = field(default_factory=dict)
    """Invariant → how much was looked at that could have broken it."""
    throughput: Sequence[tuple[float, float]] = ()
    """(ms, acknowledged records per second) for each second of the run."""
