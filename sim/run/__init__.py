"""Async: runs of a whole simulated cluster. `run` carries out one run and `campaign` many; `shrink` finds a smaller
plan that fails in the same way; others measure coverage. May import everything of kraft.sim but kraft.sim.story and
kraft.sim.commands.
"""
