"""Async: the fake seam: network, disk, clock and randomness, one seeded trio run. May import kraft.seam and kraft.wire."""
