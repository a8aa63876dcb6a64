"""Synchronous: the metrics that a node shows, one module per source. `table` lists them all. They stand in the registry
of `kraft.broker.node.metrics`; a module here registers functions that read plain counters when somebody collects. May
import everything below kraft.broker; of its siblings the registry alone, and the rest for types."""
