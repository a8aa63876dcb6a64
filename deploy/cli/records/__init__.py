"""Async: commands that write and read records, and text formats of records. May import what kraft.deploy.cli
imports."""
