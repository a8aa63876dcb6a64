"""Pure: batching, partitioner, group assignment, fetch state. May import kraft.wire."""
