"""The bug bank: known errors in consensus, replication, groups and clients. Each is planted for one run by a function
(twin) that replaces the original.

A mutation is a bug with its twins; production code has no trace of it. Each mutation has a directed schedule that
exposes it. Most also have a swarm: a random schedule that exposes the bug for some of its seeds. `make bugbank` runs
them all and writes docs/bugbank.md.
"""
