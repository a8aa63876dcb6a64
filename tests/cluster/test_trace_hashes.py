"""Ten seeds are the runs that they were when their hashes were kept, on every Python that we support."""

from __future__ import annotations

import pytest

from tests.cluster.trace_hashes import SEEDS, kept_hashes, trace_hash


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_the_run_that_it_was(seed: int) -> None:
    assert trace_hash(seed) == kept_hashes()[str(seed)], (
        "another run than before: if that is meant, `python -m tests.cluster.trace_hashes` keeps the new ones"
    )
