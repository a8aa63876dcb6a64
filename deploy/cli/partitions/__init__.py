"""Async: commands for partitions, and plans of reassignment. May import what kraft.deploy.cli imports."""
