"""Async: compaction in a running broker: which log is cleaned next, and one round over it. May import what
kraft.broker.logs imports."""
