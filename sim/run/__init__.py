"""Async: runs of a whole simulated cluster: one run (`run`), many (`campaign`), a smaller one that fails likewise
(`shrink`), and what was covered. May import everything of kraft.sim but kraft.sim.story and kraft.sim.commands."""
