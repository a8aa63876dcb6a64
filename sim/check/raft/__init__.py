"""Pure: invariants of the metadata quorum: elections, logs, roles and membership."""
