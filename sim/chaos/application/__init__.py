"""Async: the user's own program as a workload, and what it did to its topics, seen from outside."""
