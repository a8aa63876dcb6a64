"""Fixtures that restore process-wide state after each test of the broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Fixture that restores the levels of loggers, which are process-wide."""
    names = (None, "kraft", "kraft.broker", "kraft.controller", "kraft.quorum", "kraft.storage")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
