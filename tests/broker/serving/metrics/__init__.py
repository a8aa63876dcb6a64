"""Tests of a node's metrics: each name in the table exists on running nodes, and its value changes when the counted
event happens.
"""
