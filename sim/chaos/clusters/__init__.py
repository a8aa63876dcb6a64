"""Synchronous: the clusters that a run injects faults into: our own nodes behind proxies or in namespaces, and a
cluster that the user brings.
"""
