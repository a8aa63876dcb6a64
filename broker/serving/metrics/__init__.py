"""Synchronous: the registry of metrics (`metric_registry`), the table of all that a node shows (`table`), and the
modules that register metrics of no single room. Each registers functions that read plain counters when metrics are
collected. May import everything below kraft.broker."""
