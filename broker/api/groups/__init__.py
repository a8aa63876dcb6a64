"""Async: handlers of the requests about groups: membership, committed offsets and descriptions of all group types."""
