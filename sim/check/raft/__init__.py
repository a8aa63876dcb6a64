"""Pure: what must hold of the metadata quorum: elections, logs, roles, membership."""
