"""Async: runs of a whole simulated cluster. `run` carries out one run, `seed_campaign` runs many seeds, and `shrink`
finds a smaller plan that fails in the same way. Other modules measure determinism, coverage and cold starts. May import
everything of kraft.sim but kraft.sim.story and kraft.sim.commands.
"""
