"""Async: `kraft spark`: its commands, its session and its output. May import what kraft.deploy.cli imports."""
