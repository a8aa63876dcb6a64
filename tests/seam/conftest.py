"""Fixture of the conformance suite: every test of the seam runs over the real one and over the simulated world's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.runtime.disk_faults import DiskFaults
from tests.seam.sites import RealSite, WorldSite


@pytest.fixture(params=["real", "real, one wait", "real, breakable disk", "world"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> RealSite | WorldSite:
    if request.param == "world":
        return WorldSite()
    if request.param == "real, breakable disk":
        return RealSite(tmp_path, disk_faults=DiskFaults())
    return RealSite(tmp_path, shares_wait=request.param == "real, one wait")
