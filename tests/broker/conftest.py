"""What every test of the broker's shell leaves as it found it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Levels of loggers are the process's: give them back."""
    names = (None, "kraft", "kraft.broker", "kraft.controller", "kraft.quorum", "kraft.storage")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
