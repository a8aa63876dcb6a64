"""Tests of which records the producers of a run send in one request, and which in several."""

from __future__ import annotations

from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import IDEMPOTENT, PRODUCERS, SEND, SEND_TOO, TOPIC, Plan, PlannedOperation
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings


def batches_of(*verbs: str) -> list[int]:
    """Return the number of records in each batch that a producer's burst becomes in the log."""
    first = PlannedOperation(0, SEND)  # it waits for metadata and a connection, which must not delay the burst
    work = {IDEMPOTENT: (first, *(PlannedOperation(500, verb) for verb in verbs))}
    run = ClusterRun(1, RunSettings(plan=Plan(duration_ms=1_000, work=work)))
    result = run.run()
    assert not result.findings, result.findings[0]
    watch = run.cluster.watch
    topic = watch.fold.image.topics.get(TOPIC)
    assert topic is not None
    log = watch.suite.shadows.log(topic.partition(0).leader, (watch.labels.of(topic.topic_id, TOPIC), 0))
    return [batch.next_offset - batch.base_offset for batch in log.batches[1:]]


def test_an_operation_send_too_joins_the_batch_of_the_operation_before_it() -> None:
    assert batches_of(SEND, *[SEND_TOO] * 7) == [8]


def test_records_sent_one_by_one_are_several_batches_in_flight() -> None:
    batches = batches_of(*[SEND] * 8)
    assert len(batches) >= 5
    assert sum(batches) == 8


def test_records_of_most_drawn_bursts_are_sent_together_and_of_some_one_by_one() -> None:
    work = draw_plan(1, FaultSettings()).work
    for producer in PRODUCERS:
        bursts: dict[int, set[str]] = {}
        for operation in work[producer]:
            bursts.setdefault(operation.at_ms, set()).add(operation.verb)
        together = sum(SEND_TOO in verbs for verbs in bursts.values())
        assert len(bursts) / 2 < together < len(bursts) * 0.9
