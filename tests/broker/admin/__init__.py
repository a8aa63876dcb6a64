"""Tests of a node's admin listener: its HTTP connection without a node, and its pages on simulated nodes and on a real
process.
"""
