"""Async: whole clusters in one process under virtual time, and the checks over them.

May import everything but kraft.deploy.cli; sim.world never imports kraft.runtime."""
