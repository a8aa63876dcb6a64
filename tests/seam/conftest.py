"""The suite's fixture: every test of the seam runs over the real one and over the world's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seam.sites import RealSite, WorldSite


@pytest.fixture(params=["real", "world"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> RealSite | WorldSite:
    return RealSite(tmp_path) if request.param == "real" else WorldSite()
