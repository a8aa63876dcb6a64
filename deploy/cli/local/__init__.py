"""Async: commands for the processes of a local cluster: start, stop, watch, faults. May import what kraft.deploy.cli
imports.
"""
