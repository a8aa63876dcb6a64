"""Synchronous: the clusters that a run injects faults into: pykraft nodes behind proxies or in namespaces, and clusters
that a user provides.
"""
