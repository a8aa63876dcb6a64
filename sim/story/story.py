"""Story: the report of a run, with its main events up to the finding, and the logs at that time.

The plan is carried out again and ends at the finding, so that the page shows the evidence and nothing later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kraft.sim.check.base import Finding
from kraft.sim.check.invariants import RUN_JUDGES
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.chronicle import Chronicle
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import Plan
from kraft.sim.run.plan_file import RecordedPlan
from kraft.sim.run.run import ClusterRun, RunSettings, Signature

BATCHES_SHOWN = 8
NODE_FACTS = frozenset(
    ("node", "leader", "replica", "broker", "controller", "voter", "candidate", "first", "second", "new", "dead")
)
"""Names of the facts of a finding that contain node ids."""


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """A batch at the end of a log; `differs` if other logs hold a different batch at its offset."""

    base_offset: int
    next_offset: int
    epoch: int
    digest: int
    differs: bool


@dataclass(frozen=True, slots=True)
class HeldLog:
    """One node's copy of a log at the end of the reported run."""

    node: int
    start_offset: int
    end_offset: int
    batches: tuple[HeldBatch, ...]
    """The last batches of the log."""


@dataclass(frozen=True, slots=True)
class Story:
    """Report of one run. `finding` is its subject; `nodes` and `partition` are those that the finding names."""

    source: str
    plan: Plan
    chronicle: Chronicle
    end_ms: int
    trace_hash: str
    """Trace hash of the run recorded in the plan file, which continued after its finding. If no run is recorded, the
    trace hash of this run."""
    finding: Finding | None
    statement: str
    """Statement of the invariant that failed."""
    nodes: tuple[int, ...]
    partition: TopicPartition | None
    logs: tuple[HeldLog, ...]
    """Logs of the partition that the finding names. If it names none and is about metadata, these are the metadata
    logs."""


def make_story(recorded: RecordedPlan, source: str) -> Story:
    """Carry the plan out again, to its finding if there is one, otherwise to its end; return what happened."""
    run = ClusterRun(recorded.plan.seed, RunSettings(plan=recorded.plan, stop_at=recorded.failure))
    result = run.run()
    alike = [found for found in result.findings if recorded.failure in (None, Signature.of(found))]
    finding = next(iter((*alike, *result.findings)), None)
    partition = None if finding is None else partition_of(finding)
    return Story(
        source,
        recorded.plan,
        run.chronicle,
        result.virtual_ms if finding is None else finding.at_ms,
        recorded.trace_hash or result.trace_hash,
        finding,
        "" if finding is None else _statement(run, finding.check),
        () if finding is None else nodes_of(finding, recorded.plan.shape.node_ids),
        partition,
        tuple(_held_logs(run.cluster, partition)) if finding is not None and _is_about_logs(finding) else (),
    )


def partition_of(finding: Finding) -> TopicPartition | None:
    """Return the partition that a finding names."""
    for fact in finding.evidence.values():
        if isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[0], str) and isinstance(fact[1], int):
            return fact
    return None


def nodes_of(finding: Finding, known: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nodes that a finding names."""
    named: set[object] = {fact for name, fact in finding.evidence.items() if name in NODE_FACTS}
    for fact in finding.evidence.values():
        if isinstance(fact, Mapping):
            named |= {key for key in fact if isinstance(key, int)}
    return tuple(node for node in known if node in named)


def _is_about_logs(finding: Finding) -> bool:
    """Return whether the finding is about the log of a partition, or about the metadata log (checks R and M)."""
    return partition_of(finding) is not None or finding.check[0] in "RM"


def _statement(run: ClusterRun, check_id: str) -> str:
    statements = [check.statement for check in run.checks if check.id == check_id]
    if check_id in RUN_JUDGES:
        statements.append(RUN_JUDGES[check_id].statement)
    return next(iter(statements), "")


def _held_logs(cluster: SimCluster, partition: TopicPartition | None) -> Iterator[HeldLog]:
    shadows = cluster.watch.suite.shadows.of(partition)
    held: dict[int, set[tuple[int, int]]] = {}
    for _, shadow in shadows:
        for batch in shadow.batches:
            held.setdefault(batch.next_offset, set()).add((batch.epoch, batch.digest))
    for node, shadow in shadows:
        batches = (
            HeldBatch(each.base_offset, each.next_offset, each.epoch, each.digest, len(held[each.next_offset]) > 1)
            for each in shadow.batches[-BATCHES_SHOWN:]
        )
        yield HeldLog(node, shadow.start_offset, shadow.end_offset, tuple(batches))
