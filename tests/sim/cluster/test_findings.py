"""Tests that errors that nodes log are findings, unless a fault makes their disks fail and the error is about that."""

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
    """Return the report after a node with a failing disk has logged an error with this exception."""
    report = Report(lambda: 0)
    report.is_excused = lambda node: True
    with report.listening():
        structlog.get_logger("kraft.broker").error("request failed", exc_info=problem)
    return report


@pytest.mark.parametrize("problem", EXCUSED)
def test_a_logged_error_of_a_disk_with_an_injected_fault_is_excused(problem: Exception | None) -> None:
    report = reported(problem)
    assert not report.findings
    assert sum(report.excused.values()) == 1


def test_checks_catch_a_logged_exception_not_about_disks_even_with_an_injected_disk_fault() -> None:
    (finding,) = reported(KeyError("a bug")).findings
    assert (finding.check, finding.evidence["problem"]) == ("N1", "KeyError('a bug')")


def test_checks_catch_an_exception_that_is_caught_and_logged() -> None:
    report = Report(lambda: 0)
    report.is_excused = lambda node: True
    with report.listening():
        try:
            raise KeyError("a bug")
        except KeyError:
            structlog.get_logger("kraft.controller").exception("request failed")
    assert [finding.check for finding in report.findings] == ["N1"]
