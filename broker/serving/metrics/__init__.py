"""Synchronous: the registry of metrics (`metric_registry`), the table of all metrics of a node (`table`), and the
modules that register metrics which belong to no single folder. Each module registers functions that read plain counters
when metrics are collected.

May import everything below kraft.broker.
"""
