"""Async: what happened in a run, told to a reader: as text and as a page with pictures. `story` carries the run out
again, the rest is plain functions of its value. May import kraft.sim.cluster and below."""
