"""Synchronous over the seam's Disk: the producers of one log, idempotent and transactional: their state and its
snapshots."""
