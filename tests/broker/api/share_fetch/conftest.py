"""Fixtures that run whole simulated clusters with share groups."""

from tests.broker.coordinator.conftest import run

__all__ = ["run"]
