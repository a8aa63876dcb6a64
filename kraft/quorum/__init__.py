"""Async: the metadata quorum as a node runs it: the raft core driven over the seam, its files, and the published image.
May import kraft.node and everything below it, never kraft.runtime."""
