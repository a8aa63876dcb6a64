"""Handlers of the requests about groups: membership, committed offsets, descriptions and settings of all group types."""
