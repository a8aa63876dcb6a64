"""The only exception class of this folder."""

from __future__ import annotations

from kraft.sim.shapes import ClusterError


class ToxiproxyError(ClusterError):
    """toxiproxy cannot be built, does not run, or did not carry out a call; the text says what to do next."""
