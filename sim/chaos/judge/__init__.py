"""Pure: derives the verdict of a run from its files: anomalies, evidence that each fault took effect, availability,
latency.

`kraft.sim.check.histories.client_histories` finds anomalies of sends and polls.
`kraft.sim.check.histories.linearizability` checks the order of metadata operations. Both are shared with the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAnomaly:
    """A reason for which a run is invalid. At most EVIDENCE_MAX anomalies of a name are kept, the smallest first."""

    name: str
    text: str
    """One sentence that says what is wrong."""
    place: str
    """TOPIC-PARTITION, a topic or a group; "" if the anomaly concerns none of them."""
    evidence: Mapping[str, Any]
    operations: tuple[int, ...]
    """Indexes of the history events that prove the anomaly."""
    is_allowed: bool = False
    """Whether the scenario's settings permit the anomaly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEffect:
    """Whether a fault took effect, and the evidence for it."""

    fault: int
    """Index of the fault among the run's faults, from 0."""
    is_seen: bool
    evidence: str
    """The evidence in words, as "ISR of chaos-0 went from 1,2,3 to 2,3 after 0.21 s", or the evidence that was not
    found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The longest time without a success after a fault, among the operations that the fault could affect."""

    fault: int
    f: str
    """Function of the operations, as the history names it: send, create topic, poll."""
    gap_ms: float
    first_success_ms: float | None
    """Time from the begin of the fault to the first success after the gap; None if there was none."""
    places: tuple[str, ...] = ()
    """The partitions that had the gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatistics:
    """Statistics of one function's operations in a phase of the run. Phases: before faults, fault N, between faults,
    after heal."""

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
class RunVerdict:
    """The verdict of a run. `verdict`: invalid if there is an anomaly that is not allowed, otherwise unknown if there
    are `reasons`, otherwise valid."""

    verdict: str
    reasons: tuple[str, ...] = ()
    """Why the verdict is unknown, each a sentence."""
    anomalies: tuple[FoundAnomaly, ...] = ()
    anomaly_counts: Mapping[str, int] = field(default_factory=dict)
    """Name → number of anomalies found, including those whose details are not kept."""
    effects: tuple[FaultEffect, ...] = ()
    gaps: tuple[Gap, ...] = ()
    phases: tuple[PhaseStatistics, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Function → outcome (ok, fail, info) → number of operations."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Reason of a fail or info → number of operations."""
    checked: Mapping[str, int] = field(default_factory=dict)
    """Invariant → how many items were checked that could have violated it."""
    throughput: Sequence[tuple[float, float]] = ()
    """(ms, acknowledged records per second) for each second of the run."""
