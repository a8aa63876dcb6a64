"""Runs side by side in processes of their own."""

from __future__ import annotations

from kraft.sim.cluster.many import in_processes


def finds_hypothesis(seed: int) -> tuple[int, bool]:
    """What kio would find: importing it takes seconds, and warns of trio's random numbers."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        return seed, False
    return seed, True


def test_a_process_of_runs_imports_no_test_tools() -> None:
    assert list(in_processes(finds_hypothesis, (1, 2), 2)) == [(1, False), (2, False)]
