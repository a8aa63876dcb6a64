"""Feature levels that several brokers report."""

from __future__ import annotations

from kraft.client.core.topology import FinalizedFeatures


def test_a_broker_that_is_behind_does_not_lower_a_feature_level() -> None:
    behind, ahead = FinalizedFeatures({"transaction.version": 1}, 7), FinalizedFeatures({"transaction.version": 2}, 8)
    assert behind.newest(ahead) == ahead
    assert ahead.newest(behind) == ahead
    assert FinalizedFeatures().newest(behind) == behind
    assert behind.newest(FinalizedFeatures()) == behind
