"""`kraft sim`: the simulator's own command line."""

from __future__ import annotations

from kraft.sim.commands import app

__all__ = ["app"]
