"""Async: reports what happened in a run, as text and as a page with pictures. `story` carries the run out again; the
other modules are plain functions of the value that it returns. May import kraft.sim.cluster and below.
"""
