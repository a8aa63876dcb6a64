"""Async: commands for consumer groups and their offsets. May import what kraft.deploy.cli imports."""
