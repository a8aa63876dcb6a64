"""Async: a whole cluster in one world: production nodes, clients, crashes, and eyes that feed the checks. May import
everything but kraft.deploy."""
