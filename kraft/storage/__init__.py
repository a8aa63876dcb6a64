"""Synchronous over the seam's Disk: logs, segments, indexes, epochs, producer state, checkpoints, snapshots, recovery.

The metadata log and partition logs are the same code (`log.Log`). May import kraft.wire and kraft.seam.
"""
