"""The bug bank: known ways to get consensus, replication, groups and clients wrong, each planted as a twin for one run.

A mutation is a replaced function that lives here; production code knows nothing of it. Each has a directed schedule,
which exposes it, and most a swarm, which finds it by seeds. `make bugbank` runs them all and writes docs/bugbank.md.
"""
