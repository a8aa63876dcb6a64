"""Pure: decisions about brokers: registration, heartbeats, fencing, failure detection, log directories."""
