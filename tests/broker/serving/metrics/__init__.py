"""Tests of a node's metrics: each name in the table exists on running nodes, and the counted code changes its value."""
