"""Async: the kraft command. May import everything."""
