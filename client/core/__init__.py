"""Pure: batching, partitioner, assignment, fetch state. May import kraft.wire."""
