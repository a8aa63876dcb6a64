"""Rows that `kraft quorum` shows for replicas."""

from __future__ import annotations

import pytest

from kraft.deploy.cli.quorum import _progress


@pytest.mark.parametrize(("log_end_offset", "told"), [(9, (9, 1)), (10, (10, 0)), (11, (11, 0)), (-1, (None, None))])
def test_kraft_quorum_shows_no_lag_for_a_replica_that_never_fetched(
    log_end_offset: int, told: tuple[int | None, int | None]
) -> None:
    assert _progress(log_end_offset, 10) == told
