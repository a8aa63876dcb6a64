"""Async: the metadata quorum of a node: it drives the raft core over the seam, keeps its files, and publishes the
image. May import kraft.node and everything below it, never kraft.runtime.
"""
