"""What nodes log as errors is found, unless their disks fail on purpose and the error is about that."""

from __future__ import annotations

import pytest
import structlog

from kraft.seam import DiskError, StorageCorrupt
from kraft.sim.cluster.findings import Report

EXCUSED = (
    None,
    DiskError("input/output error", errno=5, path="/data/1/a.log"),
    StorageCorrupt("/data/1: a batch fails its CRC"),
)


def reported(problem: Exception | None) -> Report:
    """A node whose disk fails on purpose logs an error with this exception."""
    report = Report(lambda: 0)
    report.is_excused = lambda node: True
    with report.listening():
        structlog.get_logger("kraft.broker").error("request failed", exc_info=problem)
    return report


@pytest.mark.parametrize("problem", EXCUSED)
def test_an_error_of_a_disk_that_fails_on_purpose_is_excused(problem: Exception | None) -> None:
    report = reported(problem)
    assert not report.findings
    assert sum(report.excused.values()) == 1


def test_any_other_exception_is_found_also_where_a_disk_fails_on_purpose() -> None:
    (finding,) = reported(KeyError("a bug")).findings
    assert (finding.check, finding.evidence["problem"]) == ("N1", "KeyError('a bug')")


def test_an_exception_that_is_being_handled_while_it_is_logged_is_found_too() -> None:
    report = Report(lambda: 0)
    report.is_excused = lambda node: True
    with report.listening():
        try:
            raise KeyError("a bug")
        except KeyError:
            structlog.get_logger("kraft.controller").exception("request failed")
    assert [finding.check for finding in report.findings] == ["N1"]
