"""The one error of this folder."""

from __future__ import annotations

from kraft.sim.shapes import ClusterError


class ToxiproxyError(ClusterError):
    """toxiproxy cannot be built, does not run, or does not do what was asked; the text says what to do next."""
