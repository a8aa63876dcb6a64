"""Async: verbs that write and read records, and the forms that records have in text. May import what kraft.deploy.cli
imports."""
