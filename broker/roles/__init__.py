"""Async: what the metadata give this broker to do: leading and following, in-sync changes, directory assignments.
`replica_manager` assembles the data plane. May import kraft.broker.following, kraft.broker.api.fetch and below."""
