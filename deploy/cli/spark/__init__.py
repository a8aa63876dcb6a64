"""Async: `kraft spark`: its verbs, its session and its output. May import what kraft.deploy.cli imports."""
