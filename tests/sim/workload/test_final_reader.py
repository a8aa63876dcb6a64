"""Tests that the checks of what the final reader received can fail: each guarantee of a run is broken once, in a
history without errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import OVERRIDES, READ_AGAIN, REREADER, SEND, Plan, PlannedOperation
from kraft.sim.run.run import ClusterRun, RunSettings, run_plan
from kraft.sim.workload.workload import IDEMPOTENT, LOOSE, ReaderRecords, Workload

SETTINGS = RunSettings(faults=FaultSettings(duration_ms=1_500, crashes=0, network_faults=0))


def finished() -> tuple[Workload, ReaderRecords]:
    """Carry out a run without a bug; return it, and the records that its final reader got."""
    run = ClusterRun(1, SETTINGS)
    result = run.run()
    assert not result.findings
    assert run.final is not None
    return run.workload, run.final


def lose_the_last(workload: Workload, final: ReaderRecords) -> None:
    records = final.records[max(final.records)]
    del records[max(offset for offset, value in records.items() if not value.startswith(LOOSE.encode()))]
    workload.read_along.records.clear()


def double_one(workload: Workload, final: ReaderRecords) -> None:
    records = max(final.records.values(), key=len)
    exact = next(value for value in records.values() if value.startswith(IDEMPOTENT.encode()))
    records[max(records) + 1] = exact


def swap_two(workload: Workload, final: ReaderRecords) -> None:
    sent = workload.sent[IDEMPOTENT].records
    one, other = [index for index, (_, partition, _) in enumerate(sent) if partition == sent[0][1]][:2]
    sent[one], sent[other] = sent[other], sent[one]


def add_a_stranger(workload: Workload, final: ReaderRecords) -> None:
    records = max(final.records.values(), key=len)
    records[max(records) + 1] = b"nobody/1"


def unread_one(workload: Workload, final: ReaderRecords) -> None:
    place = max(workload.read_along.records)
    workload.read_along.records[place][0] = b"something else"


CANARIES: dict[str, Callable[[Workload, ReaderRecords], None]] = {
    "L10": lose_the_last,
    "T1": double_one,
    "C1": swap_two,
    "D14": add_a_stranger,
    "D10": unread_one,
}


@pytest.mark.slow
def test_checks_catch_every_broken_guarantee_to_clients() -> None:
    for check, spoil in CANARIES.items():
        workload, final = finished()
        spoil(workload, final)
        workload.judge(final)
        assert check in {finding.check for finding in workload.cluster.report.findings}, check


def test_records_of_a_reader_that_reads_repeatedly_are_checked_in_the_order_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Workload._take

    def twin(self: Workload, read: ReaderRecords, records: list[Any], reader: str) -> None:
        original(self, read, records, reader)
        if reader == "the rereader":
            read.records = {place: dict(reversed(of.items())) for place, of in read.records.items()}

    work = {
        IDEMPOTENT: tuple(PlannedOperation(at_ms, SEND, 0, 10) for at_ms in (*range(8), 1_400)),
        REREADER: tuple(PlannedOperation(at_ms, READ_AGAIN, 0) for at_ms in (800, 1_000)),
    }
    plan = Plan(duration_ms=1_500, shape=ClusterShape(controllers=1, overrides=OVERRIDES), work=work)
    clean = run_plan(plan)
    assert not clean.findings
    assert clean.counters["C2"] == 7 + 7 + 8, "of two rounds and of the final reader"
    monkeypatch.setattr(Workload, "_take", twin)
    assert {finding.check for finding in run_plan(plan).findings} == {"C2"}


@pytest.mark.parametrize(("offset", "due"), [(5, 6), (8, 6)])
def test_checks_catch_a_reader_that_skips_records_or_goes_back(offset: int, due: int) -> None:
    class Record:
        topic, partition, value = "orders", 0, b"v"

        def __init__(self, offset: int) -> None:
            self.offset = offset

    run = ClusterRun(1, SETTINGS)
    read = ReaderRecords({("orders", 0): dict.fromkeys(range(due), b"v")})
    run.workload._take(read, [Record(offset)], "a reader")
    assert [finding.check for finding in run.report.findings] == ["C2"]
