"""Tests of clients of a run that change the cluster: they move replicas between directories, and add and
remove voters."""

from __future__ import annotations

from kraft.sim.cluster.shape import ClusterShape, host_name
from kraft.sim.nemesis.plan import (
    ADD_VOTER,
    ADMIN,
    CHANGE_DIRECTORY,
    DELETE_RECORDS,
    DIRECTORY_MOVER,
    EXTRA,
    OVERRIDES,
    PLAIN,
    REMOVE_VOTER,
    SEND,
    SET_CONFIG,
    TOPIC,
    TRIMMER,
    VOTER_CHANGER,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.world.filesystem import Directory

SENDS = tuple(PlannedOperation(at_ms, SEND) for at_ms in range(0, 2_000, 20))


def carry_out(plan: Plan) -> ClusterRun:
    run = ClusterRun(plan.seed, RunSettings(plan=plan))
    result = run.run()
    assert not result.findings, result.findings[0]
    return run


def directories_with(run: ClusterRun, broker: int, log: str) -> list[str]:
    """Return the log directories of this broker that have this log."""
    data = run.world.host(host_name(broker)).root.entries["data"]
    assert isinstance(data, Directory)
    root = data.entries[str(broker)]
    assert isinstance(root, Directory)
    return [name for name, entry in root.entries.items() if isinstance(entry, Directory) and log in entry.entries]


def test_a_replica_is_moved_to_another_log_directory_and_back() -> None:
    shape = ClusterShape(controllers=1, overrides=OVERRIDES, log_dirs=2)
    there = [PlannedOperation(100 + 1_000 * which, CHANGE_DIRECTORY, 0, 3 * which) for which in (0, 1)]
    for moves, due in ((there, "dir-b"), (there[::-1], "dir-a")):
        work = {PLAIN: SENDS, DIRECTORY_MOVER: tuple(moves)}
        run = carry_out(Plan(duration_ms=2_500, shape=shape, work=work))
        topic = run.cluster.image.topics.get(TOPIC)
        assert topic is not None
        assert directories_with(run, topic.partition(0).replicas[0], f"{TOPIC}-0") == [due]


def test_voters_are_removed_and_added_while_a_controller_dies() -> None:
    changes = (
        PlannedOperation(100, REMOVE_VOTER, 0),
        PlannedOperation(1_000, REMOVE_VOTER, 1),  # skipped: at least two stay
        PlannedOperation(2_000, ADD_VOTER, 0),
    )
    fault = Fault(at_ms=1_200, kind="kill", node=103, back_ms=300)
    shape = ClusterShape(overrides=OVERRIDES, dynamic_voters=True)
    run = carry_out(Plan(duration_ms=4_000, shape=shape, faults=(fault,), work={PLAIN: SENDS, VOTER_CHANGER: changes}))
    told = [(done.text, done.outcome) for done in run.chronicle.operations if done.client == VOTER_CHANGER]
    assert told == [("remove voter 101", "done"), ("remove voter 102", "left out"), ("add voter 101", "done")]
    checks = {check.id: check.seen for check in run.cluster.watch.suite.checks.checks}
    assert checks["R16"] >= 3 * len(shape.node_ids)


def carry_out_deletions(*deletions: PlannedOperation) -> ClusterRun:
    """Delete records of a partition of an administrator's topic that is written in batches of seven, while broker 2 is
    down from 900 ms to 1,500 ms."""
    fault = Fault(at_ms=900, kind="kill", node=2, back_ms=600)
    work = {
        ADMIN: (PlannedOperation(0, SET_CONFIG),),  # a missing topic is created
        EXTRA: tuple(PlannedOperation(at_ms, SEND, 0, 10) for at_ms in range(200, 2_000, 100) for _ in range(7)),
        TRIMMER: deletions,
    }
    shape = ClusterShape(controllers=1, overrides=OVERRIDES)
    return carry_out(Plan(duration_ms=2_500, shape=shape, faults=(fault,), work=work))


def begins_of(run: ClusterRun) -> set[int]:
    """Return the log start offsets of the replicas of the administrator's topic."""
    (topic,) = (topic for topic in run.cluster.image.topics if topic.name.startswith("extra"))
    return {run.cluster.begin_of(broker, topic.name, 0) for broker in topic.partition(0).replicas}


def test_a_broker_follows_record_deletions_made_while_it_was_down() -> None:
    run = carry_out_deletions(
        PlannedOperation(800, DELETE_RECORDS, 0, 4), PlannedOperation(1_200, DELETE_RECORDS, 0, 1)
    )
    outcomes = [told.outcome for told in run.chronicle.operations if told.client == TRIMMER]
    assert outcomes[0] == "begins at 4"
    (begin,) = begins_of(run)
    assert begin > 4
    assert outcomes[1:] == [f"begins at {begin}"]


def test_a_log_restarted_within_a_batch_has_no_epoch_below_its_start() -> None:
    """Bug: the log's epoch began at the base offset of the batch, which is below the log start (D7)."""
    assert begins_of(carry_out_deletions(PlannedOperation(1_400, DELETE_RECORDS, 0, 60))) == {60}
