"""Async: a whole cluster in one simulated world, with nodes that run production code, clients, crashes, and observers
that report to the checks. May import everything but kraft.deploy.
"""
