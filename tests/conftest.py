"""Hypothesis profiles: `fast` (the default: few examples, the same ones in every run) and `exhaustive`, for long runs:
`HYPOTHESIS_PROFILE=exhaustive make test`. Ports that a module holds are released when it ends."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

from tests.stages.ports import release_ports

__all__ = ["release_ports"]

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "fast", max_examples=20, deadline=None, derandomize=True, suppress_health_check=SLOW_IS_FINE, database=None
)
settings.register_profile("exhaustive", max_examples=1000, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# A shell's background job starts with SIGINT ignored, and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
