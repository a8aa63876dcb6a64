"""What the producers of a run send in one request, and what they send in several."""

from __future__ import annotations

from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import IDEMPOTENT, PRODUCERS, SEND, SEND_TOO, TOPIC, Operation, Plan
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings


def batches_of(*verbs: str) -> list[int]:
    """How many records the batches have in which a producer's burst comes to the log."""
    first = Operation(0, SEND)  # it waits for metadata and a connection, which must not put off the burst
    work = {IDEMPOTENT: (first, *(Operation(500, verb) for verb in verbs))}
    run = ClusterRun(1, RunSettings(plan=Plan(duration_ms=1_000, work=work)))
    result = run.run()
    assert not result.findings, result.findings[0]
    watch = run.cluster.watch
    topic = watch.fold.image.topics.get(TOPIC)
    assert topic is not None
    log = watch.suite.shadows.log(topic.partition(0).leader, (watch.labels.of(topic.topic_id, TOPIC), 0))
    return [batch.next_offset - batch.base_offset for batch in log.batches[1:]]


def test_what_is_sent_too_leaves_in_one_batch_with_what_was_sent_before() -> None:
    assert batches_of(SEND, *[SEND_TOO] * 7) == [8]


def test_records_that_are_sent_one_by_one_are_several_batches_under_way() -> None:
    batches = batches_of(*[SEND] * 8)
    assert len(batches) >= 5
    assert sum(batches) == 8


def test_most_bursts_leave_together_and_some_do_not() -> None:
    work = draw_plan(1, FaultSettings()).work
    for producer in PRODUCERS:
        bursts: dict[int, set[str]] = {}
        for operation in work[producer]:
            bursts.setdefault(operation.at_ms, set()).add(operation.verb)
        together = sum(SEND_TOO in verbs for verbs in bursts.values())
        assert len(bursts) / 2 < together < len(bursts) * 0.9
